// A product of CUTLASS that consumes its left operand while it arrives, by tandem's tile scheduler. Here the
// chunks come late, in another order and with pauses, by copies on a second stream; the result has to be, bit
// for bit, what the same kernel makes of a left operand that is there. Then one chunk never comes, and the
// error names it.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <tandem/cuda/native_stream.hpp>
#include <tandem/tandem.hpp>
#include <vector>

#include "async_input_gemm_kernel.hpp"

namespace {

using tandem::DType;
using tandem::Result;

constexpr int kM = 1024, kN = 776, kK = 520, kChunks = 4, kFirst = 2;
constexpr int kArrivals[kChunks] = {3, 2, 1, 0};
constexpr int kSpare = 8;  // of the GPU's multiprocessors, for the copies
constexpr int kExitSkipped = 77;

Result<void> check_cuda(cudaError_t code) {
  if (code == cudaSuccess) return {};
  return tandem::fail(tandem::ErrorCode::kDriver, cudaGetErrorString(code), code);
}

/// Whole numbers from -4 to 4 as bf16.
std::vector<std::uint16_t> numbers(std::size_t count, std::uint32_t seed) {
  constexpr std::uint16_t kBits[] = {0, 0x3f80, 0x4000, 0x4040, 0x4080, 0xbf80, 0xc000, 0xc040, 0xc080};
  std::vector<std::uint16_t> values(count);
  for (auto& value : values) value = kBits[(seed = seed * 1664525U + 1013904223U) / 65536U % 9];
  return values;
}

class Example {
 public:
  explicit Example(tandem::Group& group);
  Result<void> run();

 private:
  Result<std::vector<std::uint16_t>> product();
  /// Brings all chunks but `missing`, slowly.
  Result<void> bring(int missing);
  Result<void> start();

  std::unique_ptr<tandem::Device> device_;
  std::unique_ptr<tandem::Stream> stream_, other_;
  tandem::Tensor source_, a_, b_, out_, signals_;
  std::shared_ptr<tandem::symm::Handle> handle_;
};

Example::Example(tandem::Group& group)
    : device_(tandem::open_device({tandem::DeviceKind::kCuda, 0}, group.config()).value()),
      stream_(device_->create_stream().value()),
      other_(device_->create_stream().value()),
      source_(device_->allocate_tensor({kM, kK}, DType::kBF16).value()),
      a_(tandem::symm::empty({kM, kK}, DType::kBF16, *device_).value()),
      b_(device_->allocate_tensor({kN, kK}, DType::kBF16).value()),
      out_(device_->allocate_tensor({kM, kN}, DType::kBF16).value()),
      signals_(tandem::symm::empty({kChunks}, DType::kU32, *device_).value()),
      handle_(tandem::symm::rendezvous(a_, group).value()) {}

Result<void> Example::start() {
  // What a wait of the kernel gives up for is returned by the stream's synchronize().
  if (auto done = handle_->watch(*stream_); !done) return done;
  return check_cuda(launch_async_input_gemm({.a = a_.view().data,
                                             .b = b_.view().data,
                                             .out = out_.view().data,
                                             .m = kM,
                                             .n = kN,
                                             .k = kK,
                                             .signals = signals_.view().data_as<const std::uint32_t>(),
                                             .chunks = kChunks,
                                             .first_chunk = kFirst,
                                             .waits = handle_->kernel_handle()},
                                            kSpare, tandem::cuda::native_stream(*stream_).value()));
}

Result<void> Example::bring(int missing) {
  for (const int chunk : kArrivals) {
    if (chunk == missing) continue;
    if (auto done = other_->sleep(std::chrono::milliseconds(1)); !done) return done;
    const auto rows = tandem::shard_of(kM, kChunks, chunk);
    auto copied = other_->copy(source_.view().narrow(0, rows.offset, rows.size),
                               a_.view().narrow(0, rows.offset, rows.size));
    if (!copied) return copied;
    if (auto done = other_->stream_write_value32(signals_.view(), chunk, 1); !done) return done;
  }
  return {};
}

Result<std::vector<std::uint16_t>> Example::product() {
  std::vector<std::uint16_t> out(std::size_t{kM} * kN);
  if (auto done = stream_->synchronize(); !done) return tl::unexpected(done.error());
  if (auto done = device_->copy_to_host(out_.view(), out.data()); !done) return tl::unexpected(done.error());
  return out;
}

Result<void> Example::run() {
  if (auto done = check_cuda(cudaSetDevice(0)); !done) return done;
  if (auto done = check_cuda(load_async_input_gemm()); !done) return done;
  for (const auto& [tensor, seed] : {std::pair{&source_, 1U}, {&b_, 2U}}) {
    const auto values = numbers(static_cast<std::size_t>(tensor->view().numel()), seed);
    if (auto done = device_->copy_from_host(values.data(), tensor->view()); !done) return done;
  }
  // All there first.
  if (auto done = bring(-1); !done) return done;
  if (auto done = other_->synchronize(); !done) return done;
  if (auto done = start(); !done) return done;
  const auto expected = product();
  if (!expected) return tl::unexpected(expected.error());

  // NaN and no signals; then the chunks.
  const std::vector<std::uint16_t> nan(std::size_t{kM} * kK, 0x7fff);
  const std::vector<std::uint32_t> none(kChunks, 0);
  if (auto done = device_->copy_from_host(nan.data(), a_.view()); !done) return done;
  if (auto done = device_->copy_from_host(none.data(), signals_.view()); !done) return done;
  if (auto done = start(); !done) return done;
  if (auto done = bring(-1); !done) return done;
  const auto got = product();
  if (!got) return tl::unexpected(got.error());
  if (*got != *expected) return tandem::fail(tandem::ErrorCode::kNumeric, "late chunks change the product");
  std::printf("%d x %d x %d in %d chunks that came late: equal bit by bit\n", kM, kN, kK, kChunks);

  if (auto done = device_->copy_from_host(none.data(), signals_.view()); !done) return done;
  if (auto done = start(); !done) return done;
  if (auto done = bring(1); !done) return done;
  const auto failed = product();
  if (failed) return tandem::fail(tandem::ErrorCode::kInternal, "a chunk was missing, and nobody said so");
  std::printf("a chunk that never came: %s\n", failed.error().to_string().c_str());
  return {};
}

}  // namespace

int main() {
  if (tandem::count_cuda_devices() == 0) {
    std::puts("no GPU here: skipped");
    return kExitSkipped;
  }
  tandem::Config config;
  config.op_timeout = std::chrono::milliseconds(500);
  const auto done =
      tandem::run_thread_ranks(1, config, [](tandem::Group& group) { return Example(group).run(); });
  if (!done) std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
  return done ? 0 : 1;
}
