#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>
#include <vector>

#include "device/cuda/cuda_stream.hpp"

namespace tandem::gemm::cuda {

inline constexpr std::int64_t kScratchAlignment = 256;
/// The first place of a block at a multiple of that; what is wanted of it has to leave room for as much.
[[nodiscard]] std::byte* aligned_start(const Buffer& block);

/// Memory that a product uses while it runs, one block a stream of CUDA's, however many streams of tandem's
/// adopt it: products of different streams run at once.
/// It grows and never shrinks; an outgrown block stays, because products that are still queued, and graphs,
/// use it.
class StreamScratch {
 public:
  /// At least `num_bytes`, aligned to 256 bytes; null for 0. Allocates nothing when the stream had as much
  /// before. Not in enqueue() of a stream, since it makes memory under a lock of its own.
  /// Errors: kUnsupported while capturing, when it would have to grow; kOutOfMemory.
  [[nodiscard]] Result<std::byte*> reserve(std::int64_t num_bytes, tandem::cuda::CudaStream& stream);

 private:
  std::mutex mutex_;
  std::map<cudaStream_t, std::vector<Buffer>> blocks_;
};

}  // namespace tandem::gemm::cuda
