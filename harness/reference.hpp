#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/operands.hpp"
#include "harness/problem.hpp"

namespace tandem::harness {

/// Largest relative error of one rounding to `dtype`.
[[nodiscard]] double unit_roundoff(DType dtype);
/// Most that one rounding to `dtype` changes a value, or one that is 1 % off it.
[[nodiscard]] double rounding_error(DType dtype, double value);

/// Largest error of a sum of f8 products that tensor cores keep in some 14 bits, relative to the sum of the
/// products' sizes.
inline constexpr double kTensorCoreRoundoff = 0x1p-12;

/// One element of a sum or of a result in f64, and how far the op may be from it.
struct Expected {
  double value = 0;
  double tolerance = 0;
};

/// An f32 sum that is rounded once to `dtype`; f8 saturates.
[[nodiscard]] Expected rounded(const Expected& sum, DType dtype);
/// The sum of `parts`, added one after the other in f32.
[[nodiscard]] Expected sum_in_f32(std::span<const Expected> parts);
/// The same, where each sum but the last is rounded to `dtype` before the next part is added. A part may be
/// rounded before it is added too, as by cuBLASLt.
[[nodiscard]] Expected sum_in_steps(std::span<const Expected> parts, DType dtype);
/// The sum or mean of the ranks' partials, each rounded to `dtype` for its way, and a bias.
[[nodiscard]] Expected sum_over_ranks(std::span<const Expected> partials, DType dtype, coll::ReduceOp reduce,
                                      double bias = 0);

/// An element of a result: f32 sums, the rounding of each rank's partial (matmul_reduce_scatter) and one
/// rounding of the result. Row of a (all of k), column of b (all of k), bias element.
[[nodiscard]] Expected expect(const Problem& problem, std::span<const double> row,
                              std::span<const double> column, double bias);

/// Whether `got` is what `expected` allows; NaN never is.
[[nodiscard]] bool is_right(double got, const Expected& expected);

/// What a comparison found.
struct Wrong {
  std::int64_t count = 0;
  std::string first;  ///< "out[3, 4] on rank 1: got 0.5, need 0.25 +- 0.001"
  void add(std::string where) {
    if (count++ == 0) first = std::move(where);
  }
};

/// What `window` cuts out of a tensor of sizes `whole`.
struct Part {
  Dims whole;
  Window window;
  TensorView elements;
};
/// Adds the elements that are not what `need` says; leading dims count as one.
void compare_elements(const Part& part, const std::string& name,
                      const std::function<Expected(std::int64_t row, std::int64_t column)>& need,
                      Wrong& wrong);

/// Adds the elements of `got` that are not those of `need`, which has the same sizes.
void compare_equal(const TensorView& got, const TensorView& need, const std::string& name, Wrong& wrong);

/// Compares `num_samples` elements, spread evenly, of a part of a generated problem's result for b[i].
void compare_samples(const Problem& problem, int i, const Window& window, const TensorView& part,
                     std::int64_t num_samples, Wrong& wrong);

/// A result of two runs that should agree, in host memory; `first` has the bytes of `second`, in memory
/// order.
struct TwoRuns {
  std::span<const std::byte> first;
  TensorView second;
  std::int64_t k = 0;  ///< products in one element
  bool same_bits = true;
  double slack = 0;  ///< if not: what an element may be off besides its own rounding and that of f32 sums
};
/// Adds what differs: any bit; or, where the sums may have been taken in another order, more than that
/// explains.
void compare_runs(const TwoRuns& runs, const std::string& what, Wrong& wrong);
/// The same of a problem's result for b[i], a serial run's bytes and another's.
void compare_with_serial(const Problem& problem, int i, const TwoRuns& runs, Wrong& wrong);

/// The tensors of one product in memory of the host or of a CPU:
/// (sum over k of a * b * a_scale * b_scale + bias) * result_scale + addend.
struct ProductTensors {
  TensorView a;                                 ///< [..., k]
  TensorView b;                                 ///< [k, n]
  std::optional<TensorView> a_scale = {};       ///< one element, or [..., s]: for each of s parts of k
  std::optional<TensorView> b_scale = {};       ///< one element, [1 or s, n], or [s, n by scale_block]
  std::optional<TensorView> bias = {};          ///< [n]
  std::optional<TensorView> result_scale = {};  ///< one element
  std::optional<TensorView> addend = {};        ///< [..., n]
  bool by_tensor_cores = false;                 ///< of f8: see kTensorCoreRoundoff
  std::int64_t scale_block = 0;                 ///< of elements a part of k has; 0: the parts are shards of k
};

/// One product in f64. It keeps nothing of the tensors' memory.
class ProductReference {
 public:
  explicit ProductReference(const ProductTensors& tensors);
  /// Before it is rounded to the result's type; leading dims count as one.
  [[nodiscard]] Expected sum_at(std::int64_t row, std::int64_t column) const;
  /// Compares the whole result.
  void compare(const TensorView& result, const std::string& name, Wrong& wrong) const;

 private:
  [[nodiscard]] Shard part_of_k(int part) const;
  [[nodiscard]] double a_scale_at(std::int64_t row, int part) const;
  [[nodiscard]] double b_scale_at(int part, std::int64_t column) const;

  std::int64_t n_ = 0;
  std::int64_t k_ = 0;
  std::int64_t scale_block_ = 0;
  double sum_roundoff_ = 0;  // of magnitudes, besides roundings in f32
  int num_parts_ = 1;
  int num_roundings_ = 2;  // besides those of the sum over k
  std::vector<double> a_;  // row-major
  std::vector<double> b_;  // column-major
  // Empty where there is none.
  std::vector<double> a_scale_;
  std::vector<double> b_scale_;
  std::int64_t a_scale_parts_ = 1;
  Dims b_scale_sizes_ = {1, 1};
  std::vector<double> bias_;
  std::vector<double> result_scale_;
  std::vector<double> addend_;
};

/// A problem's operands as a whole, in f64, for checking every element of small results.
class Reference {
 public:
  Reference(const Problem& problem, const OperandSource& source);
  /// The f32 sum for an element of the result for b[i] over the rank's part of k; leading dims count as one.
  [[nodiscard]] Expected partial_sum(int rank, int i, std::int64_t row, std::int64_t column) const;
  /// 0 without bias.
  [[nodiscard]] double bias_at(int i, std::int64_t column) const;
  /// Compares a part of the result for b[i]: `part` is what `window` cuts out.
  void compare(int i, const Window& window, const TensorView& part, Wrong& wrong) const;
  /// Compares a gathered a, bit by bit after conversion; the problem keeps it.
  void compare_gathered(const TensorView& gathered, Wrong& wrong) const;

 private:
  [[nodiscard]] std::span<const double> row_of_a(std::int64_t row) const;
  [[nodiscard]] std::span<const double> column_of_b(int i, std::int64_t column) const;
  Problem problem_;
  std::vector<double> gathered_;        // a without scales, if the problem keeps it
  std::vector<double> a_;               // row-major, times its scales
  std::vector<std::vector<double>> b_;  // column-major, the same
  std::vector<std::vector<double>> bias_;
};

}  // namespace tandem::harness
