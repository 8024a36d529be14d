#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tandem/cuda/native_stream.hpp>
#include <tandem/tandem.hpp>
#include <vector>

#include "all_reduce_kernel.hpp"
#include "run_ranks.hpp"

// The all-reduce of ../one_shot_all_reduce.cpp as a CUDA kernel: the signalling is the same three calls.
// Every rank has a GPU of its own if there are enough, else all share the first.
//
//   ./example_one_shot_all_reduce_cuda               the ranks are threads
//   ./example_one_shot_all_reduce_cuda --processes   the ranks are processes

namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kCount = 100'000;
constexpr int kRounds = 3;
constexpr int kExitSkipped = 77;

tandem::Result<void> check_cuda(cudaError_t code) {
  if (code == cudaSuccess) return {};
  return tandem::fail(tandem::ErrorCode::kDriver, cudaGetErrorString(code), code);
}

std::vector<float> input_of(int rank, int round) {
  std::vector<float> values(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) {
    values[static_cast<std::size_t>(i)] = static_cast<float>((rank + 1) * (i % 7 + round));
  }
  return values;
}

tandem::Result<void> check(const std::vector<float>& out, int world_size, int round) {
  std::vector<float> want(kCount);
  for (int q = 0; q < world_size; ++q) {
    const std::vector<float> input = input_of(q, round);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += input[i];
  }
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (out[i] == want[i]) continue;
    return tandem::fail(tandem::ErrorCode::kInternal, "round " + std::to_string(round) + ", element " +
                                                          std::to_string(i) + ": " + std::to_string(out[i]) +
                                                          ", expected " + std::to_string(want[i]));
  }
  return {};
}

tandem::Result<void> rank_main(tandem::Group& group) {
  const int gpu = tandem::count_cuda_devices() >= group.size() ? group.rank() : 0;
  auto device = tandem::open_device({tandem::DeviceKind::kCuda, gpu}, group.config()).value();
  auto stream = device->create_stream().value();
  const auto input = tandem::symm::empty({kCount}, tandem::DType::kF32, *device).value();
  const auto output = device->allocate_tensor({kCount}, tandem::DType::kF32).value();
  if (auto done = check_cuda(cudaSetDevice(gpu)); !done) return done;
  if (auto done = check_cuda(load_all_reduce()); !done) return done;
  const auto handle = tandem::symm::rendezvous(input, group).value();

  for (int round = 0; round < kRounds; ++round) {
    const std::vector<float> mine = input_of(group.rank(), round);
    if (auto done = device->copy_from_host(mine.data(), input.view()); !done) return done;
    // What a wait of the kernel gives up for is returned by the stream's synchronize().
    if (auto done = handle->watch(*stream); !done) return done;
    auto launched = check_cuda(launch_all_reduce(handle->kernel_handle(), tandem::symm::kFirstUserChannel,
                                                 output.view().data_as<float>(), kCount,
                                                 tandem::cuda::native_stream(*stream).value()));
    if (!launched) return launched;
    if (auto done = stream->synchronize(); !done) return done;
    std::vector<float> sums(kCount);
    if (auto done = device->copy_to_host(output.view(), sums.data()); !done) return done;
    if (auto done = check(sums, group.size(), round); !done) return done;
  }
  std::printf("rank %d of %d on cuda:%d: %d all-reduces of %lld floats are right\n", group.rank(),
              group.size(), gpu, kRounds, static_cast<long long>(kCount));
  return {};
}

tandem::Result<void> run(int argc, char** argv) {
  if (argc == 2 && std::string_view(argv[1]) == "--processes") return launch_processes(kRanks);
  return tandem::run_thread_ranks(kRanks, tandem::Config{}, rank_main);
}

}  // namespace

int main(int argc, char** argv) {
  // Ranks that share a GPU: with too few connections a kernel that waits holds up the one it waits for.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const auto context = tandem::join_job(argc, argv);
  if (context && !*context && tandem::count_cuda_devices() == 0) {
    std::puts("no GPU here: skipped");
    return kExitSkipped;
  }
  const auto done = !context   ? tandem::Result<void>(tl::unexpected(context.error()))
                    : *context ? run_as_rank(**context, rank_main)
                               : run(argc, argv);
  if (!done) std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return done ? 0 : 1;
}
