#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tandem/base/shard.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/fused/report.hpp>

#include "gemm/product.hpp"

namespace tandem::fused {

/// A checked call of a scatter op as what it comes down to. The scattered dim counts in units: a
/// unit is what one index of that dim of the product holds, so that partials travel as [total, unit] whatever
/// their shape.
///
/// An all-reduce is a scatter of rows whose owners give what they have summed to all ranks. Its dims but the
/// last are one, so that ranks share the rows whatever the shape.
struct ScatterProblem {
  // Equal on all ranks.
  DType dtype = DType::kF32;  ///< of out
  DType partials = DType::kF32;
  Dims sizes;  ///< of the product before the scatter: [..., n]
  int dim = 0;
  coll::ReduceOp reduce_op = coll::ReduceOp::kSum;
  int world = 1;
  int num_hosts = 1;  ///< on which ranks are, as many on each
  Algorithm asked = Algorithm::kAuto;
  bool gives_all = false;  ///< every rank gets the whole sum: an all-reduce
  bool is_scaled = false;  ///< by one of the ops of scaled products
  /// By rows where one product's a is scaled by rows, else as a whole where one is scaled as a whole.
  gemm::Scale a_scale = gemm::Scale::kNone;
  std::int64_t plan_k = 0;  ///< as the caller says; 0: not told
  /// Config::batch_invariant of the device: partials are what one rounding makes of a rank's products, the
  /// own ones too, and are added in rank order.
  bool batch_invariant = false;
  /// Of `pipelined`: peers push their partials in up to so many chunks a part, and own products or sums add
  /// them; see pushed.hpp. 0: not decided yet, or ranks get partials behind barriers.
  int push_chunks = 0;
  /// Ranks tell each other one by one of the partials that they have made: see told.hpp. Of `native` on CPUs,
  /// and of `pipelined` there unless each of its two lanes has a core.
  bool tells = false;
  bool has_core_a_lane = false;
  bool has_link = false;  ///< of those: what is told of still has to cross a link
  /// Of an all-reduce that is `pipelined`, or tells, and does not push: chunks in which parts are multiplied,
  /// summed and given to all, so that one travels beside the products of the next.
  int rounds = 1;
  // This rank's.
  DeviceId device;
  bool checks_nan = false;  ///< Group::nan_check()
  int num_products = 0;
  std::int64_t sum_k = 0;         ///< of all products
  int num_copied = 0;             ///< a's whose strides need one copy
  std::int64_t copied_bytes = 0;  ///< of those a's
  std::uint64_t copied = 0;       ///< bit min(j, 63): a_j is copied
  bool has_bias = false;          ///< one that is added to the sum over ranks
  bool keeps_product = false;
  bool fast_accum = false;  ///< of scaled products
  /// Of `native`: one kernel makes the product and gives its rows to their owners; else a kernel gives what
  /// other products have made.
  bool gives_while_multiplying = false;

  [[nodiscard]] int ranks_per_host() const { return world / num_hosts; }
  /// Whether `pipelined` is of that form.
  [[nodiscard]] bool pipelined_tells() const { return tells && !has_core_a_lane && push_chunks == 0; }
  [[nodiscard]] bool scatters_last() const { return dim == sizes.size() - 1; }
  [[nodiscard]] std::int64_t total() const { return sizes[dim]; }
  [[nodiscard]] std::int64_t n() const { return sizes.back(); }
  /// k of a rank's products together, as all ranks count it: a square b where nobody tells.
  [[nodiscard]] std::int64_t planned_k() const { return plan_k > 0 ? plan_k : n(); }
  /// Rows of the product, and those of one unit (0 if a unit is a column).
  [[nodiscard]] std::int64_t rows() const;
  [[nodiscard]] std::int64_t unit_rows() const;
  [[nodiscard]] std::int64_t unit_elements() const;
  [[nodiscard]] Shard part_of(int rank) const { return shard_of(total(), world, rank); }
  /// Units of a chunk, where the largest part is cut in so many.
  [[nodiscard]] std::int64_t chunk_units(int chunks) const;
  /// Chunk `idx` of so many of a rank's part; late ones may be short or empty.
  [[nodiscard]] Shard chunk_of(int rank, int idx, int chunks) const;
  /// Scaled ops multiply f8, whatever they give out.
  [[nodiscard]] DType factor() const { return is_scaled ? DType::kF8E4M3 : dtype; }
  /// Whether products are first summed in f32 scratch and then rounded to `partials`.
  [[nodiscard]] bool sums_in_scratch() const { return num_products > 1 && partials != DType::kF32; }

  /// Whether a part of out is a matrix, as products write them: no dim stands before the scattered one.
  [[nodiscard]] bool out_is_matrix() const;

  [[nodiscard]] bool is_copied(int j) const { return (copied >> (j < 63 ? j : 63) & 1U) != 0; }
  /// "matmul_reduce_scatter".
  [[nodiscard]] std::string_view op() const {
    if (gives_all) return is_scaled ? "scaled_matmul_all_reduce" : "matmul_all_reduce";
    return is_scaled ? "scaled_matmul_reduce_scatter" : "matmul_reduce_scatter";
  }
  /// Of so many units of the product, the scattered dim in front unless that is the last.
  [[nodiscard]] Dims sizes_of(std::int64_t units) const;

  friend bool operator==(const ScatterProblem&, const ScatterProblem&) = default;
};
[[nodiscard]] std::size_t hash_of(const ScatterProblem& problem);
/// ", scaled by rows", or nothing where no product is scaled.
[[nodiscard]] std::string scale_in_words(const ScatterProblem& problem);
/// " dim 0", or nothing of an all-reduce.
[[nodiscard]] std::string dim_in_words(const ScatterProblem& problem);
/// "bf16 [4096, 8192] dim 0 sum w4 partials bf16, scaled by rows": what the ranks have in common, but the op
/// and the algorithm.
[[nodiscard]] std::string to_string(const ScatterProblem& problem);

/// Whether ranks can push each other their partials of rows, as they are, beside their products. The same on
/// every rank.
[[nodiscard]] Support can_send_rows(const ScatterProblem& problem);

/// a with the scattered dim in front of its other rows (in place if the last is scattered): its rows in the
/// order in which they are scattered.
[[nodiscard]] TensorView front_of(const TensorView& a, int scatter_dim);

}  // namespace tandem::fused
