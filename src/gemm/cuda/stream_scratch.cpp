#include "gemm/cuda/stream_scratch.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::gemm::cuda {

std::byte* aligned_start(const Buffer& block) {
  const auto address = reinterpret_cast<std::intptr_t>(block.data());
  return static_cast<std::byte*>(block.data()) +
         (kScratchAlignment - address % kScratchAlignment) % kScratchAlignment;
}

Result<std::byte*> StreamScratch::reserve(std::int64_t num_bytes, tandem::cuda::CudaStream& stream) {
  if (num_bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  std::vector<Buffer>& blocks = blocks_[stream.native()];
  const std::int64_t has_bytes = blocks.empty() ? 0 : blocks.back().size_bytes() - kScratchAlignment;
  if (num_bytes > has_bytes) {
    if (stream.is_capturing()) {
      return failf(ErrorCode::kUnsupported,
                   "mm: needs {} bytes of scratch memory and has {}, but the stream is capturing: "
                   "gemm::prepare() the product on this stream before",
                   num_bytes, has_bytes);
    }
    // At least twice as much as before: all outgrown blocks together stay smaller than the one in use.
    const std::int64_t wanted = std::max(num_bytes, 2 * has_bytes);
    TANDEM_ASSIGN(Buffer block, stream.device().allocate(wanted + kScratchAlignment));
    blocks.push_back(std::move(block));
  }
  return aligned_start(blocks.back());
}

}  // namespace tandem::gemm::cuda
