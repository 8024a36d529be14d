#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/fused/report.hpp>

namespace tandem::fused {

// Checks that both gather ops make.

/// What is gathered, and along which dim.
struct Gathering {
  const TensorView& a;
  int dim;
  std::int64_t size;  ///< of that dim over all ranks
};

/// a's sizes over all ranks: what the layouts depend on.
[[nodiscard]] Result<Dims> gathered_sizes(std::string_view who, const Gathering& gathering);

/// Whether a has this rank's part of the gathered dim.
[[nodiscard]] Result<void> check_shard(std::string_view who, const Gathering& gathering, const Group& group);

/// Sizes of out[i]: `gathered` with the columns of b[i].
[[nodiscard]] Result<Dims> output_sizes(std::string_view who, const TensorView& b, const Dims& gathered,
                                        int i);

/// What out[i], and all of a, must look like: gather-dim-major.
[[nodiscard]] Result<Layout> output_layout(std::string_view who, const Gathering& gathering,
                                           std::span<const TensorView> b, int i);
[[nodiscard]] Result<Layout> gathered_layout(std::string_view who, const Gathering& gathering);

}  // namespace tandem::fused
