#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/base/dtype.hpp>
#include <tandem/base/shape.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/fused/report.hpp>
#include <vector>

namespace tandem::harness {

enum class Op : std::uint8_t { kAllGatherMatmul, kMatmulReduceScatter, kMatmulAllReduce };
inline constexpr Op kOps[] = {Op::kAllGatherMatmul, Op::kMatmulReduceScatter, Op::kMatmulAllReduce};
[[nodiscard]] std::string_view to_string(Op op);
/// Whether it sums products over ranks, which have parts of k.
[[nodiscard]] inline bool reduces(Op op) {
  return op != Op::kAllGatherMatmul;
}
/// "all_gather_matmul, matmul_reduce_scatter or matmul_all_reduce".
[[nodiscard]] std::string names_of_ops();
/// Throws exit 2 for an unknown name, exit 4 for an op that is not built yet.
[[nodiscard]] Op parse_op(const std::string& name);

/// How the elements of f8 operands are scaled.
enum class Scales : std::uint8_t {
  kNone,
  kTensor,  ///< one number for a, and one for each b
  kRow,     ///< one for each row of a, and each column of b
  kBlock,   ///< one for each row of a, or column of b, and each gemm::kScaleBlock of k
};
/// "none", "tensor", "row", "block".
[[nodiscard]] std::string_view to_string(Scales scales);

/// One sharded product, described by its global tensors: what `run`, `check` and `bench` have in common.
struct Problem {
  Op op = Op::kAllGatherMatmul;
  Dims a;                         ///< [..., k]
  std::vector<std::int64_t> n;    ///< columns of each b; one where products are summed over ranks
  DType dtype = DType::kF32;      ///< of a and b
  Scales scales = Scales::kNone;  ///< f8 has some, and nothing else has
  std::optional<DType> out = {};  ///< of results and biases; only where a is f8, and then bf16 if not told
  int dim = 0;                    ///< gather or scatter dim; 0 for matmul_all_reduce
  int ranks = 1;
  Algorithm algorithm = Algorithm::kAuto;
  coll::ReduceOp reduce = coll::ReduceOp::kSum;
  bool bias = false;
  bool gathered = false;  ///< also keep the gathered a
  bool b_is_column_major = false;
  bool fast_accum = false;  ///< of scaled products: see gemm::ScaledMmArgs
  /// Tensor cores multiply f8: what results are compared with allows for the bits that they keep of a sum.
  bool by_tensor_cores = false;
  std::uint64_t seed = 1;

  [[nodiscard]] std::int64_t k() const { return a.back(); }
  [[nodiscard]] bool is_scaled() const { return scales != Scales::kNone; }
  [[nodiscard]] DType out_dtype() const { return out.value_or(is_scaled() ? DType::kBF16 : dtype); }
  [[nodiscard]] bool dim_is_last() const { return dim == a.size() - 1; }
  /// Sizes of the whole result for b[i].
  [[nodiscard]] Dims result_sizes(int i) const;
};

/// One dimension cut down to one rank's part.
struct Window {
  int dim = 0;
  Shard shard;
};

// Which part of a global tensor belongs to `rank`.
[[nodiscard]] Window window_of_a(const Problem& problem, int rank);
[[nodiscard]] Window window_of_b(const Problem& problem, int i, int rank);
[[nodiscard]] Window window_of_bias(const Problem& problem, int i, int rank);
[[nodiscard]] Window window_of_a_scale(const Problem& problem, int rank);
[[nodiscard]] Window window_of_b_scale(const Problem& problem, int i, int rank);
[[nodiscard]] Window window_of_result(const Problem& problem, int i, int rank);

// Sizes of the global scales; kb is the number of gemm::kScaleBlock in k.
[[nodiscard]] Dims a_scale_sizes(const Problem& problem);         ///< [1], [..., 1] or [..., kb]
[[nodiscard]] Dims b_scale_sizes(const Problem& problem, int i);  ///< [1], [1, n] or [kb, n]

/// m, n and k of a product.
struct ProductSizes {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};
/// The product that one rank computes (gather: whole m, local n; scatter: whole m, local k); where shards
/// differ, rank 0's, the largest.
[[nodiscard]] ProductSizes product_of_a_rank(const Problem& problem);

/// Throws exit 2 naming what does not fit; `run`, `check` and `bench` all go through it.
void check_problem(const Problem& problem);

/// "all_gather_matmul,a=3x7x5,n=9,dtype=bf16,dim=1,ranks=3,algorithm=pipelined,seed=7": the value of
/// --problem.
[[nodiscard]] std::string to_line(const Problem& problem);
/// The inverse; throws exit 2.
[[nodiscard]] Problem parse_problem(const std::string& line);

// Values of flags; throw exit 2 with what is allowed.
[[nodiscard]] Algorithm parse_algorithm_flag(const std::string& text);
/// Types that factors can have.
[[nodiscard]] DType parse_product_dtype(const std::string& text);
/// Types that results of f8 factors can have here.
[[nodiscard]] DType parse_out_dtype(const std::string& text);
[[nodiscard]] Scales parse_scales(const std::string& text);
[[nodiscard]] coll::ReduceOp parse_reduce(const std::string& text);
/// Whether b is column-major.
[[nodiscard]] bool parse_b_order(const std::string& text);
/// `what` is the flag's name.
void check_ranks(int ranks, const std::string& what);

}  // namespace tandem::harness
