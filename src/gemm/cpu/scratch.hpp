#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>

namespace tandem::gemm::cpu {

/// Scratch of the calling thread, 64-byte aligned, at least `num_floats` floats; valid until the thread's
/// next call. Kept until the thread ends, so that a stream's worker allocates it once. Errors: kOutOfMemory.
[[nodiscard]] Result<float*> thread_scratch(std::int64_t num_floats);

}  // namespace tandem::gemm::cpu
