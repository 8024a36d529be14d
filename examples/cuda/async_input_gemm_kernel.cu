#include "async_input_gemm_kernel.hpp"

// A GEMM of CUTLASS, mainloop and epilogue as they come, whose left operand arrives in chunks: all that is
// tandem's is the tile scheduler.

#include <algorithm>

#include <cutlass/bfloat16.h>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include <tandem/gemm/async_input_scheduler.cuh>

namespace {

using Element = cutlass::bfloat16_t;
using Tile = cute::Shape<cute::_128, cute::_128, cute::_64>;
using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
using Row = cutlass::layout::RowMajor;
using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Row, 8, Element, Row, 8,
    cutlass::epilogue::TmaWarpSpecializedCooperative>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, Row, 8, Element,
    cutlass::layout::ColumnMajor, 8, float, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(Epilogue::SharedStorage))>,
    cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue,
                                                    tandem::gemm::PersistentAsyncInput>;

__global__ void __launch_bounds__(Kernel::MaxThreadsPerBlock, 1)
    async_input_gemm(const __grid_constant__ Kernel::Params params) {
  extern __shared__ char shared[];
  Kernel kernel;
  kernel(params, shared);
}

Kernel::Arguments arguments_of(const AsyncInputGemm& gemm, int ctas) {
  Kernel::Arguments args{};
  args.mode = cutlass::gemm::GemmUniversalMode::kGemm;
  args.problem_shape = cute::make_shape(gemm.m, gemm.n, gemm.k, 1);
  args.mainloop.ptr_A = static_cast<const Element*>(gemm.a);
  args.mainloop.dA = {gemm.k, cute::_1{}, 0};
  args.mainloop.ptr_B = static_cast<const Element*>(gemm.b);
  args.mainloop.dB = {gemm.k, cute::_1{}, 0};
  args.epilogue.ptr_D = static_cast<Element*>(gemm.out);
  args.epilogue.dD = {gemm.n, cute::_1{}, 0};
  args.hw_info = {0, ctas, ctas};
  args.scheduler.order =
      tandem::gemm::TileOrder(tandem::gemm::ChunkOrder(gemm.m, gemm.chunks, gemm.first_chunk), gemm.n,
                              {.tile_rows = 128, .tile_columns = 128});
  args.scheduler.tiles_per_chunk = gemm.m / gemm.chunks / 128;
  args.scheduler.num_clusters = std::min(ctas, args.scheduler.order.num_clusters());
  args.scheduler.signals.words = gemm.signals;
  args.scheduler.signals.waits = gemm.waits;
  return args;
}

}  // namespace

cudaError_t load_async_input_gemm() {
  return cudaFuncSetAttribute(async_input_gemm, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              Kernel::SharedStorageSize);
}

cudaError_t launch_async_input_gemm(const AsyncInputGemm& gemm, int spare, cudaStream_t stream) {
  int device = 0;
  int multiprocessors = 0;
  if (const auto code = cudaGetDevice(&device); code != cudaSuccess) return code;
  if (const auto code = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
      code != cudaSuccess)
    return code;
  // A CTA fills a multiprocessor. All have to be resident: those that wait would keep the others from
  // starting.
  const auto params = Kernel::to_underlying_arguments(arguments_of(gemm, multiprocessors - spare), nullptr);
  async_input_gemm<<<Kernel::get_grid_shape(params), Kernel::get_block_shape(), Kernel::SharedStorageSize,
                     stream>>>(params);
  return cudaGetLastError();
}
