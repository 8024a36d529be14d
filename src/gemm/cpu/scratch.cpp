#include "gemm/cpu/scratch.hpp"

#include <sys/mman.h>

#include <cstdlib>

#include "base/byte_size.hpp"
#include "base/format.hpp"
#include "base/memory_limit.hpp"
#include "base/memory_pages.hpp"

namespace tandem::gemm::cpu {
namespace {

struct ThreadScratch {
  FloatMemory memory;
  std::int64_t num_floats = 0;
};

}  // namespace

void FreeFloats::operator()(float* memory) const {
  std::free(memory);
}

FloatMemory allocate_floats(std::int64_t num_floats) {
  constexpr std::int64_t kLine = 64;
  constexpr std::int64_t kLargePage = std::int64_t{2} << 20;
  const std::int64_t wanted = multiply_bytes(num_floats, static_cast<std::int64_t>(sizeof(float)));
  if (wanted >= kFewBytes && !check_memory("mm", wanted)) return nullptr;
  const std::int64_t alignment = wanted < kLargePage ? kLine : kLargePage;
  const auto num_bytes = static_cast<std::size_t>((wanted + alignment - 1) / alignment * alignment);
  void* const memory = std::aligned_alloc(static_cast<std::size_t>(alignment), num_bytes);
  // A wish: without large pages it is slower, and nothing else.
  if (memory != nullptr && alignment == kLargePage)
    static_cast<void>(madvise(memory, num_bytes, MADV_HUGEPAGE));
  return FloatMemory(static_cast<float*>(memory));
}

Result<float*> thread_scratch(std::int64_t num_floats) {
  thread_local ThreadScratch scratch;
  if (num_floats > scratch.num_floats) {
    scratch = {};
    FloatMemory memory = allocate_floats(num_floats);
    if (memory == nullptr)
      return failf(ErrorCode::kOutOfMemory, "mm: no {} bytes for packed operands", num_floats * 4);
    scratch = {std::move(memory), num_floats};
  }
  return scratch.memory.get();
}

}  // namespace tandem::gemm::cpu
