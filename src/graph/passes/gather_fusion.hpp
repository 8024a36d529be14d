#pragma once

#include <string>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/graph.hpp>
#include <unordered_map>
#include <vector>

#include "graph/passes/gather_match.hpp"
#include "graph/passes/opaque_ops.hpp"

namespace tandem::graph {

/// A gather with the products that one fused op computes, and what the same op gathers beside it.
struct GatherFusion {
  Node* gather = nullptr;
  std::vector<GatherUse> uses;     ///< not empty; all take the same scale
  std::vector<Node*> also_gather;  ///< gathers
  Node* place = nullptr;           ///< the fused op comes before it
  std::vector<Node*> raised;       ///< what must be moved to before `place` first, in order

  [[nodiscard]] bool is_scaled() const { return uses[0].product.is_scaled(); }
  /// Who reads what a gather makes, also through views, but `uses`.
  [[nodiscard]] std::vector<Node*> other_readers(const Node& gather_or_view) const;
  /// Those of which `uses` take the scale, or null.
  [[nodiscard]] Node* scale_gather() const { return uses[0].scale_gather; }
};

/// Decides what to do about a gather, and changes nothing. Where a fusion is refused, why.
struct GatherPlan {
  std::optional<GatherFusion> fusion;
  Refusal why_not;
};
/// The gathers of a graph by name, in order. Some of them may be gone later.
class Gathers {
 public:
  Gathers() = default;
  explicit Gathers(const Graph& graph);
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
  /// Those that do work of the same captured collective as `gather`, and `other` unless it is null.
  [[nodiscard]] std::vector<std::string> related_to(const Node& gather, const Node* other) const;

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, std::size_t> idx_of_;                      ///< by name
  std::unordered_map<std::string, std::vector<std::size_t>> by_collective_;  ///< in order
};

/// `gathers`: those that may go into the same op.
[[nodiscard]] GatherPlan plan_gather(Graph& graph, Node& gather, const Gathers& gathers,
                                     const OpaqueOps& opaque, const FuseOptions& options,
                                     Explains explains = Explains::kNo);

}  // namespace tandem::graph
