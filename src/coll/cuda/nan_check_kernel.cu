// Looks for NaN in a tensor, as fast as memory gives it: warps take segments of rows in turns, and their
// threads load 16 bytes at a time, several before they look at the first. What stands before and behind the
// vectors of a row is looked at element by element.
//
// Totals of a check lie in the memory of the GPU (KernelControl::nan_totals). Only threads that find
// something write them. Each block passes a __syncthreads(), then an atomic of one thread, behind a fence if
// the block has found something. The last block's atomic reads those of all others. If one has found
// something a fence comes behind it: the block sees all totals, tells the host, and leaves them as they were.
// The report is written before the record (give_up(), kernel_device.cuh), whose release covers it, as both
// are written by one thread. A check whose rank has given up before tells nothing: hosts may be reading the
// report.
//
// Host checks: attach.cpp (by_vectors).

#include <algorithm>
#include <tandem/symm/kernel_device.cuh>

#include "coll/cuda/nan_check_kernel.hpp"
#include "coll/cuda/vectors.hpp"

namespace tandem::coll::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarpThreads = 32;
constexpr int kLoads = 8;  // under way at a time
constexpr std::int64_t kSegmentBytes = kLoads * kWarpThreads * kVectorBytes;

struct alignas(16) Vector {
  std::uint64_t words[2];
};

/// Of each row. A row that begins beside a multiple of 16 has no more vectors than one that does not.
__host__ __device__ inline std::int64_t segments_of_row(const NanCheck& check) {
  const std::int64_t row_bytes = check.rows.row_length * check.element_bytes;
  return (row_bytes + kSegmentBytes - 1) / kSegmentBytes;
}

class Scan {
 public:
  __device__ explicit Scan(const NanCheck& check) : check_(check) {}

  /// Segment `idx` of row `row`, by one warp.
  __device__ void look_at(std::int64_t row, std::int64_t idx, int lane) {
    const auto* const begin = static_cast<const std::uint8_t*>(check_.rows.data) +
                              check_.rows.offset_of_row(row) * check_.element_bytes;
    const std::int64_t position = row * check_.rows.row_length;
    if (!check_.by_vectors) return look_at_elements(begin, position, idx, lane);
    const std::int64_t row_bytes = check_.rows.row_length * check_.element_bytes;
    const auto beside = reinterpret_cast<std::uintptr_t>(begin) % kVectorBytes;
    const std::int64_t to_vectors = beside == 0 ? 0 : static_cast<std::int64_t>(kVectorBytes - beside);
    const std::int64_t head = min(to_vectors, row_bytes);
    const std::int64_t num_vectors = (row_bytes - head) / kVectorBytes;
    look_at_vectors(begin + head, num_vectors, position + head / check_.element_bytes, idx, lane);
    if (idx > 0) return;
    const std::int64_t tail = head + num_vectors * kVectorBytes;
    look_at_end(begin, 0, head, position, lane);
    look_at_end(begin, tail, row_bytes, position, lane);
  }

  [[nodiscard]] __device__ unsigned long long count() const { return count_; }
  [[nodiscard]] __device__ unsigned long long first() const { return first_; }

 private:
  __device__ void look_at_vectors(const std::uint8_t* data, std::int64_t num_vectors, std::int64_t position,
                                  std::int64_t idx, int lane) {
    const auto* const vectors = reinterpret_cast<const Vector*>(data);
    const std::int64_t first = idx * (kLoads * kWarpThreads) + lane;
    Vector loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const std::int64_t at = first + i * kWarpThreads;
      loaded[i] = at < num_vectors ? vectors[at] : Vector{};
    }
    std::uint64_t any = 0;
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      any |= check_.rule.nans_in(loaded[i].words[0]) | check_.rule.nans_in(loaded[i].words[1]);
    if (any == 0) return;
    // Rare: loads once more rather than keep the registers.
    const auto* const words = reinterpret_cast<const std::uint64_t*>(data);
#pragma unroll 1
    for (int i = 0; i < 2 * kLoads; ++i) {
      const std::int64_t word = 2 * (first + i / 2 * kWarpThreads) + i % 2;
      if (word < 2 * num_vectors)
        note(check_.rule.nans_in(words[word]), position + word * 8 / check_.element_bytes);
    }
  }

  /// Bytes [from, to) of a row: fewer than a vector.
  __device__ void look_at_end(const std::uint8_t* row, std::int64_t from, std::int64_t to,
                              std::int64_t position, int lane) {
    const std::int64_t at = from + static_cast<std::int64_t>(lane) * check_.element_bytes;
    if (at < to) note(check_.rule.nans_in(load(row + at)), position + at / check_.element_bytes);
  }

  /// Of rows whose elements lie apart, or beside multiples of their size.
  __device__ void look_at_elements(const std::uint8_t* row, std::int64_t position, std::int64_t idx,
                                   int lane) {
    const std::int64_t per_segment = kSegmentBytes / check_.element_bytes;
    const std::int64_t end = min((idx + 1) * per_segment, check_.rows.row_length);
    for (std::int64_t i = idx * per_segment + lane; i < end; i += kWarpThreads)
      note(check_.rule.nans_in(load(row + i * check_.rows.step * check_.element_bytes)), position + i);
  }

  [[nodiscard]] __device__ std::uint64_t load(const std::uint8_t* element) const {
    std::uint64_t word = 0;
    for (int i = 0; i < check_.element_bytes; ++i) word |= static_cast<std::uint64_t>(element[i]) << (8 * i);
    return word;
  }

  /// `nans`: of elements from `position` on.
  __device__ void note(std::uint64_t nans, std::int64_t position) {
    for (; nans != 0; nans &= nans - 1) {
      const int bit = __ffsll(static_cast<long long>(nans)) - 1;
      const auto idx = static_cast<unsigned long long>(
          check_.rows.index_at(position + bit / (8 * check_.element_bytes)));
      first_ = min(first_, idx);
      ++count_;
    }
  }

  const NanCheck& check_;
  unsigned long long count_ = 0;
  unsigned long long first_ = ~0ULL;
};

/// By one thread, behind all blocks.
__device__ void tell(const NanCheck& check, unsigned long long count, unsigned long long first) {
  symm::KernelControl& control = *check.control;
  if (symm::detail::load_relaxed(control.has_given_up) == symm::KernelControl::kWaits) {
    symm::NanReport& report = *control.nan_report;
    report = check.report;
    report.count = static_cast<std::int64_t>(count);
    report.first = static_cast<std::int64_t>(first);
  }
  symm::detail::give_up(control, {symm::KernelCall::kNanCheck, -1, -1}, symm::GiveUpReason::kNan, 0, 0, 0);
}

__global__ void __launch_bounds__(kThreads) nan_check_kernel(const __grid_constant__ NanCheck check) {
  const std::int64_t per_row = segments_of_row(check);
  const std::int64_t num_segments = check.rows.num_rows * per_row;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * (kThreads / kWarpThreads);
  Scan scan(check);
  for (std::int64_t segment = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarpThreads;
       segment < num_segments; segment += step) {
    const std::int64_t row = check.rows.num_rows == 1 ? 0 : segment / per_row;
    scan.look_at(row, segment - row * per_row, lane);
  }
  auto& totals = check.control->nan_totals;
  if (scan.count() > 0) {
    atomicAdd(&totals.count, scan.count());
    atomicMin(&totals.first, scan.first());
  }
  constexpr unsigned kOneFound = 1U << 16;  // beside the count of blocks, of which there are fewer
  const bool is_clean = __syncthreads_and(scan.count() == 0) != 0;
  if (threadIdx.x != 0) return;
  if (!is_clean) __threadfence();
  const unsigned before = atomicAdd(&totals.num_blocks, is_clean ? 1U : 1U + kOneFound);
  if (before % kOneFound != gridDim.x - 1) return;
  totals.num_blocks = 0;
  if (is_clean && before < kOneFound) return;
  __threadfence();
  tell(check, atomicExch(&totals.count, 0ULL), atomicExch(&totals.first, ~0ULL));
}

/// As many as run at one time. On two H200s 4096 x 7168 x 8192 of bf16, native, takes 1.031 of the time
/// without checks; with half as many 1.040, and with up to eight a multiprocessor 1.039.
std::int64_t blocks_for(std::int64_t num_segments, int num_multiprocessors) {
  constexpr std::int64_t kWarps = kThreads / kWarpThreads;
  constexpr int kAtOneTime = 2;  // on a multiprocessor
  return std::min<std::int64_t>((num_segments + kWarps - 1) / kWarps, kAtOneTime * num_multiprocessors);
}

}  // namespace

cudaError_t launch_nan_check(const NanCheck& check, int num_multiprocessors, cudaStream_t stream) {
  const std::int64_t num_segments = check.rows.num_rows * segments_of_row(check);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks_for(num_segments, num_multiprocessors)));
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  return cudaLaunchKernelEx(&config, nan_check_kernel, check);
}

tandem::cuda::KernelList nan_check_kernels() {
  tandem::cuda::KernelList list;
  tandem::cuda::add_kernels(list, nan_check_kernel);
  return list;
}

}  // namespace tandem::coll::cuda
