#include "device/cuda/strided_copy.hpp"

#include <cstddef>
#include <cstdlib>
#include <limits>

namespace tandem::cuda {
namespace {

// What memory moves at least; the 2-D copy of shorter rows is mostly overhead.
constexpr std::int64_t kSectorBytes = 32;
constexpr std::int64_t kMaxUnitBytes = 16;
// A tile is 32 x 32: of a shorter side, most of it is empty.
constexpr std::int64_t kMinTiledSize = 8;

/// The largest power of two, up to 16, that divides everything the copy steps by.
std::int64_t widest_unit_bytes(const CopyLoops& loops, const void* from, const void* to) {
  std::uint64_t bits = static_cast<std::uint64_t>(kMaxUnitBytes | loops.run_bytes);
  bits |= reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  for (int i = 0; i < loops.num_loops; ++i) {
    const CopyLoops::Loop& loop = loops.loops[static_cast<std::size_t>(i)];
    bits |= static_cast<std::uint64_t>(loop.from_stride_bytes | loop.to_stride_bytes);
  }
  return static_cast<std::int64_t>(bits & (~bits + 1));
}

/// The dimension to tile together with dimension 0, or 0 where threads along dimension 0 read neighbours (or
/// all the same unit) anyway.
int dim_to_tile(const StridedCopy& copy) {
  if (std::abs(copy.from_strides[0]) * copy.unit_bytes < kSectorBytes || copy.sizes[0] < kMinTiledSize)
    return 0;
  int best = 0;
  for (int d = 1; d < copy.num_dims; ++d) {
    const std::int64_t stride = std::abs(copy.from_strides[d]);
    if (stride != 0 && stride < std::abs(copy.from_strides[best])) best = d;
  }
  return copy.sizes[best] < kMinTiledSize ? 0 : best;
}

}  // namespace

StridedCopy strided_copy(const CopyLoops& loops, const void* from, void* to) {
  StridedCopy copy;
  const std::int64_t unit_bytes = widest_unit_bytes(loops, from, to);
  copy.from = from;
  copy.to = to;
  copy.unit_bytes = static_cast<int>(unit_bytes);
  const auto add_dim = [&](std::int64_t size, std::int64_t from_stride, std::int64_t to_stride) {
    copy.sizes[copy.num_dims] = size;
    copy.from_strides[copy.num_dims] = from_stride;
    copy.to_strides[copy.num_dims] = to_stride;
    ++copy.num_dims;
  };
  if (loops.run_bytes > unit_bytes || loops.num_loops == 0) add_dim(loops.run_bytes / unit_bytes, 1, 1);
  for (int i = loops.num_loops; i-- > 0;) {
    const CopyLoops::Loop& loop = loops.loops[static_cast<std::size_t>(i)];
    add_dim(loop.size, loop.from_stride_bytes / unit_bytes, loop.to_stride_bytes / unit_bytes);
  }
  copy.tile_dim = dim_to_tile(copy);
  return copy;
}

namespace {

bool are_pitched(const CopyLoops::Loop& rows, std::int64_t run_bytes) {
  constexpr std::int64_t kMaxPitchBytes = std::numeric_limits<std::int32_t>::max();
  return rows.from_stride_bytes >= run_bytes && rows.from_stride_bytes <= kMaxPitchBytes &&
         rows.to_stride_bytes >= run_bytes && rows.to_stride_bytes <= kMaxPitchBytes;
}

cudaError_t enqueue_rows(const CopyLoops::Loop& rows, std::int64_t run_bytes, const void* from, void* to,
                         cudaStream_t stream) {
  return cudaMemcpy2DAsync(to, static_cast<std::size_t>(rows.to_stride_bytes), from,
                           static_cast<std::size_t>(rows.from_stride_bytes),
                           static_cast<std::size_t>(run_bytes), static_cast<std::size_t>(rows.size),
                           cudaMemcpyDeviceToDevice, stream);
}

/// The loops from `idx` on, of which the innermost is a copy of rows.
cudaError_t enqueue_groups(const CopyLoops& loops, int idx, const std::byte* from, std::byte* to,
                           cudaStream_t stream) {
  const CopyLoops::Loop& loop = loops.loops[static_cast<std::size_t>(idx)];
  if (idx == loops.num_loops - 1) return enqueue_rows(loop, loops.run_bytes, from, to, stream);
  for (std::int64_t i = 0; i < loop.size; ++i) {
    const cudaError_t code = enqueue_groups(loops, idx + 1, from + i * loop.from_stride_bytes,
                                            to + i * loop.to_stride_bytes, stream);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

cudaError_t enqueue_run(const CopyLoops& loops, const void* from, void* to, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, static_cast<std::size_t>(loops.run_bytes), cudaMemcpyDeviceToDevice,
                         stream);
}

}  // namespace

bool is_rows_copy(const CopyLoops& loops) {
  return loops.num_loops == 1 && loops.run_bytes >= kSectorBytes &&
         are_pitched(loops.loops[0], loops.run_bytes);
}

bool can_copy_by_engine(const CopyLoops& loops) {
  if (loops.num_loops == 0) return true;
  std::int64_t num_copies = 1;
  for (int i = 0; i < loops.num_loops - 1; ++i) num_copies *= loops.loops[static_cast<std::size_t>(i)].size;
  return num_copies <= kMostEngineCopies &&
         are_pitched(loops.loops[static_cast<std::size_t>(loops.num_loops - 1)], loops.run_bytes);
}

cudaError_t enqueue_engine_copy(const CopyLoops& loops, const void* from, void* to, cudaStream_t stream) {
  if (loops.num_loops == 0) return enqueue_run(loops, from, to, stream);
  return enqueue_groups(loops, 0, static_cast<const std::byte*>(from), static_cast<std::byte*>(to), stream);
}

cudaError_t enqueue_copy(const CopyLoops& loops, const void* from, void* to, CopyBy by, cudaStream_t stream) {
  if (by == CopyBy::kKernel) return launch_strided_copy(strided_copy(loops, from, to), stream);
  if (loops.num_loops == 0) return enqueue_run(loops, from, to, stream);
  if (!is_rows_copy(loops)) return launch_strided_copy(strided_copy(loops, from, to), stream);
  return enqueue_rows(loops.loops[0], loops.run_bytes, from, to, stream);
}

}  // namespace tandem::cuda
