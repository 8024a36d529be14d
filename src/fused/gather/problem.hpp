#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tandem/base/shard.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>
#include <tandem/fused/report.hpp>

namespace tandem::fused {

[[nodiscard]] constexpr bool is_by_blocks(ScaleMode mode) {
  return mode == ScaleMode::kBlockwiseSharded || mode == ScaleMode::kBlockwiseReplicated;
}

/// A checked call of either gather op as what it comes down to. The gathered dim counts in units: a unit is
/// what one index of that dim holds.
struct GatherProblem {
  /// A tensor that is gathered along with a and multiplied with nothing.
  struct AlsoGathered {
    DType dtype = DType::kF32;
    std::int64_t last = 0;  ///< size of the last dim, on this rank
    friend bool operator==(const AlsoGathered&, const AlsoGathered&) = default;
  };

  // Equal on all ranks; but not AlsoGathered::last where the last dim is gathered.
  DType dtype = DType::kF32;
  Dims sizes;  ///< of all of a
  int dim = 0;
  int world = 1;
  int num_hosts = 1;  ///< on which ranks are, as many on each
  Algorithm asked = Algorithm::kAuto;
  bool is_scaled = false;  ///< by fused_all_gather_scaled_matmul()
  ScaleMode scale_mode = ScaleMode::kNone;
  bool fast_accum = false;             ///< of scaled products
  std::optional<DType> quantize = {};  ///< a is rounded to it, with a scale by scale_mode, behind the gather
  int num_also_gathered = 0;
  std::array<AlsoGathered, kMaxAlsoGathered> also_gather = {};
  std::int64_t in_place_offset = -1;  ///< of a in a_handle, in elements; -1: no a_handle
  std::int64_t plan_n = 0;            ///< as the caller says; 0: not told
  bool batch_invariant = false;       ///< Config::batch_invariant of the device
  bool is_capturing = false;          ///< the op is recorded
  /// Of `native`: ranks publish their shards in the inbox, tell each other, and products read them there.
  bool pulls = false;
  bool has_link = false;  ///< where ranks pull: what is told of still has to cross a link
  int piece_peers = 0;    ///< to so many ranks native products send the shards themselves
  // This rank's.
  DeviceId device;
  bool checks_nan = false;  ///< Group::nan_check()
  int num_b = 0;
  std::int64_t sum_n = 0;  ///< columns of all b's together
  bool keeps_gathered = false;
  std::uint32_t copied = 0;  ///< bit i: the strides of travelling tensor i need one copy
  bool has_bias = false;     ///< of plain products
  // Of native.
  std::uint64_t by_mm = 0;    ///< bit min(i, 63): b[i] is multiplied behind its waits, by plain products
  int first_consumed = -1;    ///< the first b whose product consumes a as it arrives; -1: none
  bool orders_scale = false;  ///< all rows' scales are copied into the order of the rows
  /// Multiprocessors that products leave to the kernels that bring rows from other hosts.
  int left_free = 0;
  bool aligns_own = false;  ///< the shard goes into the inbox: products cannot send it from where it is

  [[nodiscard]] int ranks_per_host() const { return world / num_hosts; }
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
  /// Whether a's scale is gathered along with a.
  [[nodiscard]] bool has_sharded_scale() const {
    return !quantize &&
           (scale_mode == ScaleMode::kRowwiseSharded || scale_mode == ScaleMode::kBlockwiseSharded);
  }
  /// The type in which a is multiplied.
  [[nodiscard]] DType factor() const { return quantize.value_or(dtype); }
  [[nodiscard]] bool is_scaled_by_blocks() const { return is_by_blocks(scale_mode); }
  /// Last size of a's scale over all ranks.
  [[nodiscard]] std::int64_t scale_columns() const;
  /// Of a gathered last dim: the columns of a's scale, and by blocks the rows of b's, that belong to a slice.
  [[nodiscard]] Shard scales_of(int source) const { return shard_of(scale_columns(), world, source); }
  [[nodiscard]] bool copies_a() const { return (copied & 1U) != 0; }
  [[nodiscard]] bool is_by_mm(int i) const { return (by_mm >> (i < 63 ? i : 63) & 1U) != 0; }
  /// Bytes of the largest rank's part of all that travels beside a.
  [[nodiscard]] std::int64_t also_gathered_bytes() const;
  /// "all_gather_matmul".
  [[nodiscard]] std::string_view op() const {
    return is_scaled ? "all_gather_scaled_matmul" : "all_gather_matmul";
  }

  friend bool operator==(const GatherProblem&, const GatherProblem&) = default;
};
[[nodiscard]] std::size_t hash_of(const GatherProblem& problem);
/// "bf16 [4096, 8192] dim 0 w4": what the ranks have in common, but the op and the algorithm.
[[nodiscard]] std::string to_string(const GatherProblem& problem);

/// Most tensors that travel in one gather: a, its scale, and what is beside.
inline constexpr int kMaxTravelling = kMaxAlsoGathered + 2;

/// A tensor that is gathered.
struct Travelling {
  std::string name;
  DType dtype = DType::kF32;
  /// Of all ranks' together, with the gathered dim in front; as it is if that is the last.
  Dims sizes;
  std::int64_t total = 0;  ///< units over all ranks
  bool by_slices = false;  ///< the last dim is gathered
  bool is_kept = false;    ///< the caller wants all of it
  bool is_copied = false;  ///< the shard's strides need one copy

  [[nodiscard]] std::int64_t unit_elements() const;
  /// Of the largest part.
  [[nodiscard]] std::int64_t part_bytes(int world) const {
    return shard_stride(total, world) * unit_elements() * size_bytes(dtype);
  }
  [[nodiscard]] Shard part_of(int world, int rank) const { return shard_of(total, world, rank); }
  /// Sizes of so many units.
  [[nodiscard]] Dims sizes_of(std::int64_t units) const;
};
/// a, then its scale if that is sharded, then what is beside.
[[nodiscard]] int num_travelling(const GatherProblem& problem);
[[nodiscard]] Travelling travelling(const GatherProblem& problem, int i);

}  // namespace tandem::fused
