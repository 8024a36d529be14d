#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tandem/base/shard.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/fused/report.hpp>

namespace tandem::fused {

/// A checked call of a gather op as what it comes down to. The gathered dim counts in units: a unit is what
/// one index of that dim holds, so that a travels as [gather_size, unit] whatever its shape.
struct GatherProblem {
  // Equal on all ranks.
  DType dtype = DType::kF32;
  Dims sizes;  ///< of all of a
  int dim = 0;
  int world = 1;
  Algorithm asked = Algorithm::kAuto;
  std::int64_t in_place_offset = -1;  ///< of a in a_handle, in elements; -1: no a_handle
  std::int64_t plan_n = 0;            ///< as the caller says; 0: not told
  bool is_capturing = false;          ///< the op is recorded
  int patch_peers = 0;                ///< to so many ranks native products send the shards themselves
  // This rank's.
  DeviceId device;
  int num_b = 0;
  std::int64_t sum_n = 0;  ///< columns of all b's together
  bool keeps_gathered = false;
  bool copies_a = false;  ///< a's strides need one copy
  bool has_bias = false;
  /// Bit min(i, 63): native multiplies b[i] behind its waits, by plain products.
  std::uint64_t by_mm = 0;

  [[nodiscard]] bool gathers_last() const { return dim == sizes.size() - 1; }
  [[nodiscard]] std::int64_t total() const { return sizes[dim]; }
  [[nodiscard]] std::int64_t k() const { return sizes.back(); }
  /// Columns of a rank's products, as all ranks count them: a square b where nobody tells.
  [[nodiscard]] std::int64_t planned_n() const { return plan_n > 0 ? plan_n : k(); }
  /// Rows of the gathered matrix, and those of one unit (0 if a unit is a column).
  [[nodiscard]] std::int64_t rows() const;
  [[nodiscard]] std::int64_t unit_rows() const;
  [[nodiscard]] std::int64_t unit_elements() const;
  [[nodiscard]] Shard part_of(int rank) const { return shard_of(total(), world, rank); }

  friend bool operator==(const GatherProblem&, const GatherProblem&) = default;
};
[[nodiscard]] std::size_t hash_of(const GatherProblem& problem);
/// "bf16 [4096, 8192] dim 0 w4": what the ranks have in common, but the op and the algorithm.
[[nodiscard]] std::string to_string(const GatherProblem& problem);

}  // namespace tandem::fused
