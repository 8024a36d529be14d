#include <algorithm>
#include <cstdio>
#include <tandem/tandem.hpp>

// Four ranks, here the threads of one program. Rank r holds a quarter of the rows of A and a quarter of the
// columns of B, and gets its columns of A * B: rows of A travel while those that have arrived are multiplied.
tandem::Result<void> rank_main(tandem::Group& group) {
  const std::int64_t m = 512, n = 256, k = 384;
  const std::int64_t rows = tandem::shard_of(m, group.size(), group.rank()).size;
  const std::int64_t columns = tandem::shard_of(n, group.size(), group.rank()).size;
  auto device = tandem::open_device({tandem::DeviceKind::kCpu, 0}, group.config()).value();
  auto stream = device->create_stream().value();  // value() throws where a call has failed
  const auto a = device->allocate_tensor({rows, k}, tandem::DType::kF32).value();
  const auto b = device->allocate_tensor({k, columns}, tandem::DType::kF32).value();
  std::fill_n(a.view().data_as<float>(), rows * k, 1.0F + float(group.rank()));
  std::fill_n(b.view().data_as<float>(), k * columns, 1.0F);

  tandem::AllGatherMatmulArgs args{.a = a.view(), .b = b.view(), .gather_size = m};
  const auto out = tandem::make_output(args, *device).value();
  args.out = out.view();
  const auto report = tandem::fused_all_gather_matmul(args, group, *stream);  // enqueues and returns
  if (!report) return tl::unexpected(report.error());
  if (auto done = stream->synchronize(); !done) return done;

  const float last = out.view().data_as<float>()[m * columns - 1];
  std::printf("rank %d: %.*s, the last element is %g\n", group.rank(), int(report->reason.size()),
              report->reason.data(), last);
  if (last == float(k * group.size())) return {};
  return tandem::fail(tandem::ErrorCode::kInternal, "a wrong element");
}

int main() {
  const auto done = tandem::run_thread_ranks(4, tandem::Config{}, rank_main);
  if (!done) std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return done ? 0 : 1;
}
