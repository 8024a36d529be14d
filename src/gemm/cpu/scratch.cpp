#include "gemm/cpu/scratch.hpp"

#include <cstdlib>
#include <memory>

#include "base/format.hpp"

namespace tandem::gemm::cpu {
namespace {

struct Freeing {
  void operator()(float* memory) const { std::free(memory); }
};
struct ThreadScratch {
  std::unique_ptr<float, Freeing> memory;
  std::int64_t num_floats = 0;
};

}  // namespace

Result<float*> thread_scratch(std::int64_t num_floats) {
  thread_local ThreadScratch scratch;
  if (num_floats > scratch.num_floats) {
    constexpr std::int64_t kAlignment = 64;
    const std::int64_t num_bytes = (num_floats * 4 + kAlignment - 1) / kAlignment * kAlignment;
    scratch = {};
    auto* memory = std::aligned_alloc(kAlignment, static_cast<std::size_t>(num_bytes));
    if (memory == nullptr) {
      return failf(ErrorCode::kOutOfMemory, "mm: no {} bytes for packed operands", num_bytes);
    }
    scratch = {std::unique_ptr<float, Freeing>(static_cast<float*>(memory)), num_floats};
  }
  return scratch.memory.get();
}

}  // namespace tandem::gemm::cpu
