#pragma once

#include <tandem/graph/fuse.hpp>
#include <tandem/graph/graph.hpp>
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
/// `gathers`: the names of those that may go into the same op; some may be gone.
[[nodiscard]] GatherPlan plan_gather(Graph& graph, Node& gather, const std::vector<std::string>& gathers,
                                     const OpaqueOps& opaque, const FuseOptions& options,
                                     Explains explains = Explains::kNo);

[[nodiscard]] std::vector<std::string> names_of_gathers(const Graph& graph);

}  // namespace tandem::graph
