#include <cstdio>
#include <string>
#include <tandem/tandem.hpp>

// Four ranks, here the threads of one program. Rank r holds a quarter of the rows of A and a quarter of the
// columns of B, and gets its columns of A * B: rows of A travel while those that have arrived are multiplied.
tandem::Result<void> rank_main(tandem::Group& group) {
  const std::int64_t m = 512, n = 256, k = 384;
  const tandem::Shard rows = tandem::shard_of(m, group.size(), group.rank());
  const tandem::Shard columns = tandem::shard_of(n, group.size(), group.rank());

  // value() throws when the call failed; a program of yours may ask each Result instead. It may return at any
  // point: memory of the device stays until what is queued has run. Memory of your own, behind a TensorView,
  // does not: synchronize the stream before it goes.
  auto device = tandem::open_device({tandem::DeviceKind::kCpu, 0}, group.config()).value();
  auto stream = device->create_stream().value();
  const auto a = tandem::symm::empty({rows.size, k}, tandem::DType::kF32, *device).value();
  const auto b = device->allocate_tensor({k, columns.size}, tandem::DType::kF32).value();
  const auto out = device->allocate_tensor({m, columns.size}, tandem::DType::kF32).value();
  for (std::int64_t i = 0; i < rows.size * k; ++i) {
    const std::int64_t row = rows.offset + i / k;
    a.view().data_as<float>()[i] = float(row);
  }
  for (std::int64_t i = 0; i < k * columns.size; ++i) b.view().data_as<float>()[i] = 1.0F;

  tandem::AllGatherMatmulArgs args;
  args.a = a.view();
  args.b = {&b.view(), 1};
  args.gather_size = m;
  args.out = {&out.view(), 1};
  const auto report = tandem::fused_all_gather_matmul(args, group, *stream);  // enqueues and returns
  if (!report) return tl::unexpected(report.error());
  if (auto done = stream->synchronize(); !done) return done;

  for (std::int64_t i = 0; i < out.view().numel(); ++i) {
    const std::int64_t row = i / columns.size;
    const float want = float(k * row);
    const float got = out.view().data_as<float>()[i];
    if (got != want) return tandem::fail(tandem::ErrorCode::kInternal, "a wrong element");
  }
  const std::string algorithm(tandem::to_string(report->algorithm)), reason(report->reason);
  std::printf("rank %d: %s (%s)\n", group.rank(), algorithm.c_str(), reason.c_str());
  return {};
}

int main() {
  const auto done = tandem::run_thread_ranks(4, tandem::Config{}, rank_main);
  if (!done) std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return done ? 0 : 1;
}
