#pragma once

#include <cstdint>
#include <memory>
#include <tandem/base/error.hpp>

namespace tandem::gemm::cpu {

struct FreeFloats {
  void operator()(float* memory) const;
};
using FloatMemory = std::unique_ptr<float, FreeFloats>;

/// Memory for packed operands, 64-byte aligned; null if there is none. Large memory lies in large pages where
/// the system has some: a panel and the rows beside it need more small ones than a processor keeps addresses
/// of.
[[nodiscard]] FloatMemory allocate_floats(std::int64_t num_floats);

/// Scratch of the calling thread, 64-byte aligned, at least `num_floats` floats; valid until the thread's
/// next call. Kept until the thread ends, so that a stream's worker allocates it once. Errors: kOutOfMemory.
[[nodiscard]] Result<float*> thread_scratch(std::int64_t num_floats);

}  // namespace tandem::gemm::cpu
