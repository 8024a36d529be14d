#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/graph/graph.hpp>
#include <vector>

namespace tandem::graph {

/// Why a collective is not fused. The first reasons are about gathers, the next about scatters and
/// all-reduces, the last about all.
enum class Reason : std::uint8_t {
  kNoProduct,          ///< no product takes what is gathered
  kBatchedProduct,     ///< products take it only as a batch of matrices
  kRightOperand,       ///< products take it only as right operand; the gathered dim is K or N
  kTransposedOperand,  ///< products take it only transposed; the gathered dim is K
  kBiasOperand,        ///< products take it only as a bias
  kScaleOfWhole,       ///< the product's scale is computed from all of what is gathered
  kDependentOperand,   ///< the product's other operand, too, depends on what is gathered
  kNoProducer,         ///< no product makes what is scattered or all-reduced
  kReduction,          ///< it reduces with neither sum nor mean
  kProductTaken,       ///< another fused op computes its product
  kProductUsed,        ///< one of several products is used elsewhere; it would be computed twice
  kMixedTypes,         ///< tensors of different types are summed
  kReshape,            ///< a reshape on the way mixes rows with columns
  kOpBetween,          ///< an op stands between the collective and the product
  kBlocks,             ///< blocks are cut out of it, or are put together another way than the ranks have them
  kFactors,            ///< the product adds neither row nor matrix, or it has factors in f16
  kOtherGroup,         ///< its group is not that of the program
  kOpaqueBetween,      ///< an unknown op is in the way, and nothing moves across it
  kSymbolicSizes,      ///< sizes that the program does not know have no name where the op would stand
  kUnusualForm,        ///< it is not followed by exactly one wait
  kUnsupportedType,    ///< tandem has no product of this type, or by such scales
  kNoFusedOp,          ///< no fused op has such a collective: an all-to-all, a broadcast
  kNotProfitable,      ///< the cost model expects no gain; only with FuseOptions::cost
};
inline constexpr int kNumReasons = static_cast<int>(Reason::kNotProfitable) + 1;

/// The name of the reason: "kRightOperand".
[[nodiscard]] std::string_view to_string(Reason reason);
/// The reason as a sentence for people.
[[nodiscard]] std::string_view describe(Reason reason);
/// Whether each collective with this reason could be fused all the same, although tandem does not do it.
/// Others can be: CollectiveReport::is_legal says it of one collective.
[[nodiscard]] bool leaves_legal_pair(Reason reason);

/// Which fusions fuse() makes, and what it takes for an error.
struct FuseOptions {
  bool strict = false;  ///< an unfused legal pair, or no fusion at all, is an error
  bool cost = false;    ///< do not fuse where the cost model expects no gain
  /// Compute scales that need the maximum of the gathered tensor from the shards' maxima, by an all-reduce of
  /// one number. The result is exact, except where there are NaNs. It takes one more collective.
  bool share_maxima = false;
  /// Start gathers and scatters that are not fused so early, and wait for them so late, that products beside
  /// them take longer than they do; and by ops that leave the multiprocessors to these products.
  bool low_contention = false;
};

/// What became of one collective of the captured graph.
struct CollectiveReport {
  enum class Kind : std::uint8_t { kAllGather, kReduceScatter, kAllReduce, kAllToAll, kBroadcast };

  std::string node;  ///< its name in the captured graph; "c[0]" for the first tensor of a coalesced one
  Kind kind = Kind::kAllGather;
  std::optional<std::string> fused_into = {};  ///< a node of the rewritten graph
  std::optional<Reason> reason = {};           ///< if it is not fused
  std::string detail = {};                     ///< the node that is in the way, or the other group
  /// A low-contention collective of the rewritten graph, if it is not fused and products hide it.
  std::optional<std::string> runs_beside = {};
  bool is_legal = false;          ///< not fused, although a fusion exists
  std::int64_t num_products = 0;  ///< products that fused ops compute of what it gathers or sums
  std::vector<std::string> products_left = {};  ///< others that read what is gathered, if it is fused
  std::int64_t bytes = 0;                       ///< bytes that a rank receives
  double saved_us = 0.0;                        ///< expected on H200s with NVLink; 0 if it is not fused
};

/// "all_gather".
[[nodiscard]] std::string_view to_string(CollectiveReport::Kind kind);

/// What became of all collectives.
struct FuseReport {
  std::vector<CollectiveReport> collectives;               ///< in the order of the captured graph
  std::map<std::string, std::int64_t, std::less<>> fused;  ///< fused op -> number of collectives in it
};

/// Rewrites the graph by all passes and reports what became of each collective.
/// Errors:  as run_passes(). With `strict`, kUnsupported with every reason if a legal pair is not fused or
///          nothing is fused; the graph is rewritten all the same.
[[nodiscard]] Result<FuseReport> fuse(Graph& graph, const FuseOptions& options = {});
/// The text of the error of `strict`, or nothing.
[[nodiscard]] std::optional<std::string> complaint(const FuseReport& report);

/// The report as JSON:
///
///   {schema, collectives: [{node, kind, fused_into, num_products, products_left, reason, detail,
///                           runs_beside, is_legal, bytes, saved_us}], fused: {op: count}}
[[nodiscard]] std::string to_json(const FuseReport& report);
/// The report as a table for people. It says first if nothing was fused.
[[nodiscard]] std::string to_table(const FuseReport& report);

}  // namespace tandem::graph
