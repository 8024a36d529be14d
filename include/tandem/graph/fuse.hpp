#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/graph/graph.hpp>
#include <vector>

namespace tandem::graph {

/// Why a collective stays as it was. The first ones are about gathers, then about scatters, then about both.
enum class Reason : std::uint8_t {
  kNoProduct,          ///< no product takes what is gathered
  kRightOperand,       ///< only as right operands, whose gathered dim is the summed one or N
  kTransposedOperand,  ///< only transposed: the gathered dim is the summed one
  kBiasOperand,        ///< only as a bias
  kScaleOfWhole,       ///< the product's scale is computed from all of what is gathered
  kDependentOperand,   ///< the product's other operand, too, depends on what is gathered
  kNoProducer,         ///< no product makes what is scattered
  kReduction,          ///< it reduces with neither sum nor mean
  kProductTaken,       ///< another fused op computes its product: one that gathers, or scatters
  kProductUsed,        ///< one of several products is used elsewhere, and would be computed twice
  kMixedTypes,         ///< tensors of different types are summed
  kReshape,            ///< a reshape on the way mixes rows with columns
  kOpBetween,          ///< an op stands between the collective and the product
  kFactors,            ///< a bias with factors, or one that is no row
  kOtherGroup,         ///< not the group of the program
  kOpaqueBetween,      ///< an op that tandem does not know is in the way, and nothing moves across it
  kUnusualForm,        ///< not followed by one wait
  kUnsupportedType,    ///< tandem has no product of this type
  kAllReduce,          ///< an all-reduce: no fused op does its work
  kNotProfitable,      ///< the cost model expects no gain; only where it was asked
};
inline constexpr int kNumReasons = static_cast<int>(Reason::kNotProfitable) + 1;

/// "kRightOperand".
[[nodiscard]] std::string_view to_string(Reason reason);
/// A sentence for people.
[[nodiscard]] std::string_view describe(Reason reason);
/// Whether a fusion exists all the same, which tandem does not make.
[[nodiscard]] bool leaves_legal_pair(Reason reason);

struct FuseOptions {
  bool strict = false;  ///< a legal pair that is left, or no fusion at all, is an error
  bool cost = false;    ///< leave what the cost model expects to lose
  /// Scales that need the maximum of all that is gathered take the maximum of the shards', by an all-reduce
  /// of one number: exact, but a collective more, and another value where there are NaNs.
  bool share_maxima = false;
};

/// What became of one collective of the captured program.
struct CollectiveReport {
  enum class Kind : std::uint8_t { kAllGather, kReduceScatter, kAllReduce };

  std::string node;  ///< its name there
  Kind kind = Kind::kAllGather;
  std::optional<std::string> fused_into = {};  ///< a node of the rewritten program
  std::optional<Reason> reason = {};           ///< if it is not fused
  std::string detail = {};                     ///< names the node that is in the way, if one is
  std::int64_t bytes = 0;                      ///< that a rank receives
  double saved_us = 0.0;                       ///< expected on H200s with NVLink; 0 if it is not fused
};

/// "all_gather".
[[nodiscard]] std::string_view to_string(CollectiveReport::Kind kind);

struct FuseReport {
  std::vector<CollectiveReport> collectives;               ///< all, in the order of the captured program
  std::map<std::string, std::int64_t, std::less<>> fused;  ///< fused op -> how many collectives went into it
};

/// Runs all passes and tells what became of each collective. The graph is the rewritten program afterwards.
/// Errors: run_passes()'s; with `strict` kUnsupported with every reason when a legal pair is left or nothing
/// is fused; the graph is rewritten all the same.
[[nodiscard]] Result<FuseReport> fuse(Graph& graph, const FuseOptions& options = {});
/// What `strict` complains about: nothing, or a text.
[[nodiscard]] std::optional<std::string> complaint(const FuseReport& report);

/// {schema, collectives: [{node, kind, fused_into, reason, detail, bytes, saved_us}], fused: {op: count}}
[[nodiscard]] std::string to_json(const FuseReport& report);
/// A table for people; says loudly if nothing was fused.
[[nodiscard]] std::string to_table(const FuseReport& report);

}  // namespace tandem::graph
