#include "device/cuda/copy_kernels.hpp"

namespace tandem::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 32;
constexpr int kTileRows = kThreads / kTile;
// Two waves of full blocks on the largest Hopper; what is left is looped over.
constexpr std::int64_t kMaxBlocks = 2 * 132 * 8;
// Below it, 32 bits count the units and the steps of the loop over them.
constexpr std::int64_t kMaxUnits32 = std::int64_t{1} << 31;

/// One unit a thread and turn, neighbours in `to` by neighbouring threads. Unit numbers are mixed-radix, with
/// dimension 0 as the lowest digit.
template <class Unit, class Index>
__global__ void __launch_bounds__(kThreads)
    copy_units_kernel(const __grid_constant__ StridedCopy copy, const Index num_units) {
  const auto* const from = static_cast<const Unit*>(copy.from);
  auto* const to = static_cast<Unit*>(copy.to);
  const int last = copy.num_dims - 1;
  const Index step = static_cast<Index>(gridDim.x) * kThreads;
  for (Index unit = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x; unit < num_units; unit += step) {
    Index rest = unit;
    std::int64_t from_idx = 0;
    std::int64_t to_idx = 0;
    for (int d = 0; d < last; ++d) {
      const Index size = static_cast<Index>(copy.sizes[d]);
      const Index outer = rest / size;
      const auto idx = static_cast<std::int64_t>(rest - outer * size);
      from_idx += idx * copy.from_strides[d];
      to_idx += idx * copy.to_strides[d];
      rest = outer;
    }
    from_idx += static_cast<std::int64_t>(rest) * copy.from_strides[last];
    to_idx += static_cast<std::int64_t>(rest) * copy.to_strides[last];
    to[to_idx] = from[from_idx];
  }
}

/// One tile of 32 x 32 units a block and turn: read with threads along `tile_dim`, written with threads along
/// dimension 0. Shared memory: the tile, with a column more than it needs so that a column of it lies in
/// different banks.
template <class Unit>
__global__ void __launch_bounds__(kThreads)
    copy_tiles_kernel(const __grid_constant__ StridedCopy copy, const std::int64_t num_tiles) {
  __shared__ Unit tile[kTile][kTile + 1];
  const auto* const from = static_cast<const Unit*>(copy.from);
  auto* const to = static_cast<Unit*>(copy.to);
  const int lane = static_cast<int>(threadIdx.x) % kTile;
  const int row = static_cast<int>(threadIdx.x) / kTile;
  const std::int64_t size_0 = copy.sizes[0];
  const std::int64_t size_t = copy.sizes[copy.tile_dim];
  const std::int64_t tiles_0 = (size_0 + kTile - 1) / kTile;
  const std::int64_t tiles_t = (size_t + kTile - 1) / kTile;
  const std::int64_t from_stride_0 = copy.from_strides[0];
  const std::int64_t from_stride_t = copy.from_strides[copy.tile_dim];
  const std::int64_t to_stride_0 = copy.to_strides[0];
  const std::int64_t to_stride_t = copy.to_strides[copy.tile_dim];

  for (std::int64_t turn = blockIdx.x; turn < num_tiles; turn += gridDim.x) {
    const std::int64_t begin_0 = turn % tiles_0 * kTile;
    std::int64_t rest = turn / tiles_0;
    const std::int64_t begin_t = rest % tiles_t * kTile;
    rest /= tiles_t;
    std::int64_t from_base = begin_0 * from_stride_0 + begin_t * from_stride_t;
    std::int64_t to_base = begin_0 * to_stride_0 + begin_t * to_stride_t;
    for (int d = 1; d < copy.num_dims; ++d) {
      if (d == copy.tile_dim) continue;
      const std::int64_t outer = rest / copy.sizes[d];
      const std::int64_t idx = rest - outer * copy.sizes[d];
      from_base += idx * copy.from_strides[d];
      to_base += idx * copy.to_strides[d];
      rest = outer;
    }
    if (begin_t + lane < size_t) {
      for (int i = row; i < kTile && begin_0 + i < size_0; i += kTileRows) {
        tile[i][lane] = from[from_base + i * from_stride_0 + lane * from_stride_t];
      }
    }
    __syncthreads();
    if (begin_0 + lane < size_0) {
      for (int i = row; i < kTile && begin_t + i < size_t; i += kTileRows) {
        to[to_base + lane * to_stride_0 + i * to_stride_t] = tile[lane][i];
      }
    }
    __syncthreads();  // before the next turn overwrites the tile
  }
}

// `Unit` by size; 16 bytes are one vector load and store.
template <class Launch>
cudaError_t with_unit(int unit_bytes, Launch launch) {
  switch (unit_bytes) {
    case 1:
      return launch(std::uint8_t{});
    case 2:
      return launch(std::uint16_t{});
    case 4:
      return launch(std::uint32_t{});
    case 8:
      return launch(std::uint64_t{});
    case 16:
      return launch(uint4{});
    default:
      return cudaErrorInvalidValue;
  }
}

cudaLaunchConfig_t config_of(std::int64_t num_blocks, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(num_blocks < kMaxBlocks ? num_blocks : kMaxBlocks));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return config;
}

template <class Unit>
cudaError_t launch_units(const StridedCopy& copy, cudaStream_t stream) {
  std::int64_t num_units = 1;
  for (int d = 0; d < copy.num_dims; ++d) num_units *= copy.sizes[d];
  const cudaLaunchConfig_t config = config_of((num_units + kThreads - 1) / kThreads, stream);
  if (num_units < kMaxUnits32) {
    return cudaLaunchKernelEx(&config, copy_units_kernel<Unit, std::uint32_t>, copy,
                              static_cast<std::uint32_t>(num_units));
  }
  return cudaLaunchKernelEx(&config, copy_units_kernel<Unit, std::uint64_t>, copy,
                            static_cast<std::uint64_t>(num_units));
}

template <class Unit>
cudaError_t launch_tiles(const StridedCopy& copy, cudaStream_t stream) {
  std::int64_t num_tiles = 1;
  for (int d = 0; d < copy.num_dims; ++d) {
    const bool tiled = d == 0 || d == copy.tile_dim;
    num_tiles *= tiled ? (copy.sizes[d] + kTile - 1) / kTile : copy.sizes[d];
  }
  const cudaLaunchConfig_t config = config_of(num_tiles, stream);
  return cudaLaunchKernelEx(&config, copy_tiles_kernel<Unit>, copy, num_tiles);
}

template <class... Units>
KernelList copy_kernels_of() {
  KernelList list;
  (add_kernels(list, copy_units_kernel<Units, std::uint32_t>, copy_units_kernel<Units, std::uint64_t>,
               copy_tiles_kernel<Units>),
   ...);
  return list;
}

}  // namespace

KernelList copy_kernels() {
  return copy_kernels_of<std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t, uint4>();
}

cudaError_t launch_strided_copy(const StridedCopy& copy, cudaStream_t stream) {
  return with_unit(copy.unit_bytes, [&](auto unit) {
    using Unit = decltype(unit);
    return copy.tile_dim != 0 ? launch_tiles<Unit>(copy, stream) : launch_units<Unit>(copy, stream);
  });
}

}  // namespace tandem::cuda
