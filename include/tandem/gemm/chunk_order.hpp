#pragma once

#include <cstdint>
#include <tandem/base/shard.hpp>

namespace tandem::gemm {

/// The order in which a product takes rows that arrive in chunks: pivot, pivot + 1, ..., around to pivot - 1.
/// Chunks are cut by the shard rule; those without rows are left out. Runs on hosts and, compiled with
/// --expt-relaxed-constexpr, in kernels.
class ChunkOrder {
 public:
  constexpr ChunkOrder() = default;
  /// Needs rows >= 0, chunks >= 1 and 0 <= pivot < chunks.
  constexpr ChunkOrder(std::int64_t rows, int chunks, int pivot)
      : rows_(rows), stride_(shard_stride(rows, chunks)) {
    size_ = stride_ == 0 ? 0 : static_cast<int>((rows + stride_ - 1) / stride_);
    first_ = pivot < size_ ? pivot : 0;  // behind an empty pivot the order goes on at 0
  }

  /// How many chunks have rows.
  [[nodiscard]] constexpr int size() const { return size_; }
  /// Rows of every chunk but perhaps the last one.
  [[nodiscard]] constexpr std::int64_t stride() const { return stride_; }
  /// The chunk that is taken as number `step`.
  [[nodiscard]] constexpr int chunk(int step) const {
    const int ahead = size_ - first_;
    return step < ahead ? first_ + step : step - ahead;
  }
  /// The step at which a chunk with rows is taken.
  [[nodiscard]] constexpr int step_of(int chunk) const {
    return chunk < first_ ? chunk + size_ - first_ : chunk - first_;
  }
  [[nodiscard]] constexpr Shard rows_of(int chunk) const {
    const std::int64_t begin = chunk * stride_;
    const std::int64_t end = begin + stride_;
    return {begin, (end < rows_ ? end : rows_) - begin};
  }

 private:
  std::int64_t rows_ = 0;
  std::int64_t stride_ = 0;
  int size_ = 0;
  int first_ = 0;
};

}  // namespace tandem::gemm
