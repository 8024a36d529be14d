#include <cstdint>
#include <cstdio>
#include <string>
#include <tandem/cpu/launch.hpp>
#include <tandem/tandem.hpp>

#include "run_ranks.hpp"

// A communication kernel of one's own: every rank reads every other's buffer and adds up, in one step. It
// needs no more of tandem than the three calls of tandem/symm/kernel.hpp; a CUDA kernel would make the same
// ones.
//
//   ./example_one_shot_all_reduce               the ranks are threads
//   ./example_one_shot_all_reduce --processes   the ranks are processes

namespace {

using tandem::symm::KernelHandle;
using tandem::symm::PutOrder;
using tandem::symm::WaitOrder;

constexpr std::int64_t kCount = 5000;
constexpr int kRounds = 3;
constexpr int kBlock = tandem::symm::kFirstUserChannel;  // the lower channels belong to tandem's own ops

// Sum of all ranks' `count` floats, added in rank order: the same bits on every rank. False if the group has
// failed.
bool one_shot_all_reduce(const KernelHandle& handle, float* out, std::int64_t count) {
  // Everybody's input is written, by whatever came before on their streams.
  if (!sync_blocks(handle, kBlock, PutOrder::kRelease, WaitOrder::kAcquire)) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int q = 0; q < handle.world_size; ++q) sum += static_cast<const float*>(handle.buffers[q])[i];
    out[i] = sum;
  }
  // Everybody has read: from here on the inputs may be overwritten. The acquire orders the next kernel's
  // writes after the others' reads.
  return sync_blocks(handle, kBlock, PutOrder::kRelease, WaitOrder::kAcquire);
}

tandem::Result<void> check(const float* out, int world_size, int round) {
  for (std::int64_t i = 0; i < kCount; ++i) {
    float want = 0;
    for (int q = 0; q < world_size; ++q) want += static_cast<float>((q + 1) * (i % 7 + round));
    if (out[i] != want) {
      return tandem::fail(tandem::ErrorCode::kInternal,
                          "round " + std::to_string(round) + ", element " + std::to_string(i) + ": " +
                              std::to_string(out[i]) + ", expected " + std::to_string(want));
    }
  }
  return {};
}

tandem::Result<void> rank_main(tandem::Group& group) {
  auto device = tandem::open_device({tandem::DeviceKind::kCpu, 0}, group.config()).value();
  auto stream = device->create_stream().value();
  const auto input = tandem::symm::empty({kCount}, tandem::DType::kF32, *device).value();
  const auto output = device->allocate_tensor({kCount}, tandem::DType::kF32).value();
  const auto handle = tandem::symm::rendezvous(input, group).value();
  const KernelHandle kernel = handle->kernel_handle();
  float* const in = input.view().data_as<float>();
  float* const out = output.view().data_as<float>();

  for (int round = 0; round < kRounds; ++round) {
    auto launched = tandem::cpu::launch(*stream, tandem::cpu::Task([=, &group]() -> tandem::Result<void> {
      for (std::int64_t i = 0; i < kCount; ++i)
        in[i] = static_cast<float>((kernel.rank + 1) * (i % 7 + round));
      return one_shot_all_reduce(kernel, out, kCount) ? tandem::Result<void>{} : group.status();
    }));
    if (!launched) return launched;
    if (auto done = stream->synchronize(); !done) return done;
    if (auto done = check(out, group.size(), round); !done) return done;
  }
  std::printf("rank %d of %d: %d all-reduces of %lld floats are right\n", group.rank(), group.size(), kRounds,
              static_cast<long long>(kCount));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  return example_main(argc, argv, 4, rank_main);
}
