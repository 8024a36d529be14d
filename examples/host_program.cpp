#include <cstdio>
#include <tandem/backend/backend.hpp>
#include <tandem/bootstrap/thread_ranks.hpp>
#include <tandem/program/host/executor.hpp>
#include <vector>

namespace host = tandem::program::host;

constexpr int kDevices = 4;
constexpr std::int64_t kIterations = 8, kRows = 16, kN = 32, kK = 64;  // kRows: of one shard

// C = A * B, A sharded over the devices: stated once, without sizes.
host::Fusion state() {
  host::Fusion fusion;
  host::SymbolicTensor* const a = fusion.make_contig_tensor(4);  // [S, DIDx(D), M/(S*D), K]
  host::SymbolicTensor* const b = fusion.make_contig_tensor(2);  // [K, N]
  host::SymbolicTensor* const c = fusion.matmul(a, b);           // [S, D, M/(S*D), N]
  fusion.add_input(a);
  fusion.add_input(b);
  fusion.add_output(c);
  const auto mesh = host::DeviceMesh::create_for_num_devices(kDevices);
  for (host::SymbolicTensor* tensor : {a, b, c}) tensor->set_device_mesh(mesh);
  a->axis(1).parallelize(host::ParallelType::kDIDx);
  c->axis(0).parallelize(host::ParallelType::kStream);
  return fusion;
}

tandem::Result<void> rank_main(tandem::Group& group) {
  host::LowerOptions options;
  options.workers_wait = true;
  options.device = group.rank();
  options.dump = [](std::string_view text) { std::printf("%.*s", int(text.size()), text.data()); };
  const auto program = host::lower(state(), options);
  if (!program) return tl::unexpected(program.error());

  const auto device = tandem::open_device({}, group.config()).value();
  const auto stream = device->create_stream().value();
  const auto a = device->allocate_tensor({kIterations, 1, kRows, kK}, tandem::DType::kF32).value();
  const auto b = device->allocate_tensor({kK, kN}, tandem::DType::kF32).value();
  for (std::int64_t i = 0; i < a.view().numel(); ++i) a.view().data_as<float>()[i] = float(group.rank());
  for (std::int64_t i = 0; i < b.view().numel(); ++i) b.view().data_as<float>()[i] = 1.0F;

  const std::vector<tandem::TensorView> inputs{a.view(), b.view()};
  const auto executor = host::Executor::create(*program, inputs, group, *device);
  if (!executor) return tl::unexpected(executor.error());
  const auto c = device->allocate_tensor((*executor)->out_sizes(), tandem::DType::kF32).value();
  if (auto enqueued = (*executor)->run(inputs, c.view(), *stream); !enqueued) return enqueued;
  if (auto done = stream->synchronize(); !done) return done;

  for (std::int64_t i = 0; i < c.view().numel(); ++i) {
    const std::int64_t owner = i / (kRows * kN) % kDevices;
    if (c.view().data_as<float>()[i] == float(kK * owner)) continue;
    return tandem::fail(tandem::ErrorCode::kInternal, "a wrong element");
  }
  return {};
}

int main() {
  const auto done = tandem::run_thread_ranks(kDevices, tandem::Config{}, rank_main);
  if (!done) std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return done ? 0 : 1;
}
