#pragma once

#include <cstdint>

#include "device/copy_loops.hpp"
#include "device/cuda/copy_kernels.hpp"

namespace tandem::cuda {

/// The copy in the widest units that both sides are aligned to, by tiles where that touches neighbours on
/// both sides.
[[nodiscard]] StridedCopy strided_copy(const CopyLoops& loops, const void* from, void* to);

/// Whether it is rows of bytes with a pitch on each side, as cudaMemcpy2DAsync copies them.
[[nodiscard]] bool is_rows_copy(const CopyLoops& loops);

/// Most copies of rows that one engine copy is made of.
inline constexpr std::int64_t kMostEngineCopies = 64;
/// Whether enqueue_engine_copy() takes it: rows of a pitch that is at least their bytes, in at most
/// kMostEngineCopies groups.
[[nodiscard]] bool can_copy_by_engine(const CopyLoops& loops);
/// By a copy engine, whatever a kernel would take.
[[nodiscard]] cudaError_t enqueue_engine_copy(const CopyLoops& loops, const void* from, void* to,
                                              cudaStream_t stream);

enum class CopyBy : std::uint8_t { kEngine, kKernel };
/// kEngine: whole and row copies by copy engine, all others by a kernel.
[[nodiscard]] cudaError_t enqueue_copy(const CopyLoops& loops, const void* from, void* to, CopyBy by,
                                       cudaStream_t stream);

}  // namespace tandem::cuda
