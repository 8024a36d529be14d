#pragma once

// What the native kernels offer to the host; they themselves are in instances/. Included by .cu files.

#include <cuda_runtime_api.h>

#include <cstdint>
#include <tandem/base/dtype.hpp>
#include <tandem/device/chunk_waits.hpp>
#include <tandem/gemm/chunk_order.hpp>
#include <tandem/gemm/tile_order.hpp>
#include <tandem/symm/kernel.hpp>

#include "gemm/cuda/sm90/partial_exchange.hpp"
#include "gemm/cuda/sm90/piece_exchange.hpp"
#include "gemm/cuda/sm90/sum_epilogue.hpp"
#include "gemm/cuda/sm90/sum_scales.hpp"
#include "gemm/native_tiles.hpp"

namespace tandem::gemm::cuda {

/// One launch: chunks of equal rows, but for the last one if all others have whole tiles.
struct AsyncInputLaunch {
  const void* a = nullptr;  ///< row 0 of chunk 0
  const void* b = nullptr;
  void* out = nullptr;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t rows = 0;
  ChunkOrder chunks;  ///< of these rows, as tiles are taken
  TileStart start;
  int signal_rows = 0;  ///< rows that a signal stands for: whole tiles, or of chunks that all have as many
  const std::uint32_t* signals = nullptr;
  std::uint32_t expected = 1;
  // What signals [complete_begin, complete_end) stand for, contiguous at `complete`.
  const void* complete = nullptr;
  std::int64_t complete_rows = 0;
  int complete_begin = 0;
  int complete_end = 0;
  int first_number = 0;     ///< signal 0's in errors
  int chunks_per_rank = 0;  ///< signals of a rank; 0: nobody knows the senders
  symm::KernelHandle waits;
  ChunkWaitLog log;           ///< where waits for chunks are noted, if anywhere
  IncomingPieces pieces;      ///< of chunks that arrive in pieces, if any; their signals are not looked at
  PiecePush push;             ///< what the kernel sends, if anything
  int num_clusters = 1;       ///< most that run at one time
  bool begins_early = false;  ///< beside the kernel before: see device/cuda/next_kernel.cuh
  double wave_us = 0;         ///< what a tile takes, about
  SumScales scales;           ///< of kernels that scale
  SumEpilogue epilogue;       ///< without an addend where rows go to owners
  /// Where rows go to their owners, who are the chunks: `out` is of the own rows then.
  PartialExchange partials;
};

/// Those of a launch of so many CTAs.
[[nodiscard]] inline PartialExchange partials_of(const AsyncInputLaunch& what, int ctas) {
  PartialExchange partials = what.partials;
  partials.parties = ctas * kPartiesOfCta;
  return partials;
}

/// Of a CTA: a warp group of producers, two of consumers.
inline constexpr int kAsyncInputThreads = 384;

/// One instance.
struct AsyncInputKernel : NativeKernel {
  const void* kernel;
  int shared_bytes;
  cudaError_t (*launch)(const AsyncInputLaunch& what, cudaStream_t stream);
};

}  // namespace tandem::gemm::cuda
