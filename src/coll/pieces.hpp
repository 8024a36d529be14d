#pragma once

#include <algorithm>
#include <cstdint>
#include <tandem/base/shard.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::coll {

/// How the parts of a tensor along `dim` are cut into pieces that all ranks find alike: along the first
/// dimension that has several indices, up to `dim`. So a piece of a contiguous part is contiguous.
class Cut {
 public:
  Cut(const Dims& sizes, int dim, int num_pieces) : num_pieces_(num_pieces) {
    while (dim_ < dim && sizes[dim_] == 1) ++dim_;
  }

  [[nodiscard]] int num_pieces() const { return num_pieces_; }
  [[nodiscard]] int dim() const { return dim_; }
  /// Of a part with `size` indices in dim(). Pieces may be empty.
  [[nodiscard]] Shard range(std::int64_t size, int piece) const {
    const std::int64_t stride = stride_of(size);
    const std::int64_t begin = std::min(size, piece * stride);
    const std::int64_t end = piece == num_pieces_ - 1 ? size : std::min(size, begin + stride);
    return {begin, end - begin};
  }
  [[nodiscard]] TensorView piece_of(const TensorView& part, int piece) const {
    const Shard cut = range(part.size(dim_), piece);
    return part.narrow(dim_, cut.offset, cut.size);
  }

 private:
  /// Whole vectors, where there are enough.
  [[nodiscard]] std::int64_t stride_of(std::int64_t size) const {
    constexpr std::int64_t kGrain = 64;
    const std::int64_t stride = shard_stride(size, num_pieces_);
    return stride < kGrain ? stride : (stride + kGrain - 1) / kGrain * kGrain;
  }

  int dim_ = 0;
  int num_pieces_;
};

}  // namespace tandem::coll
