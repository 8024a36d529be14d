#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/fused/report.hpp>

namespace tandem::fused {

// Checks that both scatter ops make.

/// What is multiplied and scattered.
struct Products {
  std::span<const TensorView> a;
  std::span<const TensorView> b;
  int scatter_dim;
};

/// Sizes of the product before the scatter: a's with b's columns.
[[nodiscard]] Result<Dims> product_sizes(std::string_view who, const Products& products);

/// The shard of rank `rank`, contiguous.
[[nodiscard]] Layout shard_layout(Dims sizes, int dim, int world, int rank);
[[nodiscard]] Result<Layout> output_layout(std::string_view who, const Products& products, int world,
                                           int rank);

/// Whether this is a sum or a mean, and partials may travel in that type; `dtype` is out's.
[[nodiscard]] Result<void> check_reduction(std::string_view who, coll::ReduceOp op,
                                           std::optional<DType> partials, DType dtype);

}  // namespace tandem::fused
