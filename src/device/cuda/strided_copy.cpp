#include "device/cuda/strided_copy.hpp"

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

bool is_rows_copy(const CopyLoops& loops) {
  constexpr std::int64_t kMaxPitchBytes = std::numeric_limits<std::int32_t>::max();
  if (loops.num_loops != 1 || loops.run_bytes < kSectorBytes) return false;
  const CopyLoops::Loop& rows = loops.loops[0];
  return rows.from_stride_bytes >= loops.run_bytes && rows.from_stride_bytes <= kMaxPitchBytes &&
         rows.to_stride_bytes >= loops.run_bytes && rows.to_stride_bytes <= kMaxPitchBytes;
}

cudaError_t enqueue_copy(const CopyLoops& loops, const void* from, void* to, CopyBy by, cudaStream_t stream) {
  if (by == CopyBy::kKernel) return launch_strided_copy(strided_copy(loops, from, to), stream);
  const auto run_bytes = static_cast<std::size_t>(loops.run_bytes);
  if (loops.num_loops == 0) return cudaMemcpyAsync(to, from, run_bytes, cudaMemcpyDeviceToDevice, stream);
  if (!is_rows_copy(loops)) return launch_strided_copy(strided_copy(loops, from, to), stream);
  const CopyLoops::Loop& rows = loops.loops[0];
  return cudaMemcpy2DAsync(to, static_cast<std::size_t>(rows.to_stride_bytes), from,
                           static_cast<std::size_t>(rows.from_stride_bytes), run_bytes,
                           static_cast<std::size_t>(rows.size), cudaMemcpyDeviceToDevice, stream);
}

}  // namespace tandem::cuda
