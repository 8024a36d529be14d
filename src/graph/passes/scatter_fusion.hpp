#pragma once

#include <optional>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/graph.hpp>
#include <vector>

#include "graph/passes/gather_match.hpp"
#include "graph/passes/opaque_ops.hpp"
#include "graph/passes/products.hpp"

namespace tandem::graph {

/// A scatter or an all-reduce with the products whose sum it takes.
///
///   %p = aten.mm.default(%a, %b)                               terms: p, q
///   %q = aten.mm.default(%c, %d)
///   %s = aten.add.Tensor(%p, %q)                               sum: s
///   %v = aten.reshape.default(%s, [2, 32, 128])
///   %r = tandem.reduce_scatter.default(%v, "sum", 1, 4, "0")
struct ScatterFusion {
  Node* scatter = nullptr;
  Node* result = nullptr;        ///< what the fused op gives: the scatter, or the wait for an all-reduce
  std::vector<Product> terms;    ///< not empty
  Node* sum = nullptr;           ///< the top-most add, or the one product
  bool returns_product = false;  ///< the sum is used elsewhere too

  [[nodiscard]] bool is_scaled() const;
  [[nodiscard]] bool gives_all() const;
};

/// Decides what to do about a scatter or an all-reduce, and changes nothing. Where a fusion is refused, why.
struct ScatterPlan {
  std::optional<ScatterFusion> fusion;
  Refusal why_not;
};
[[nodiscard]] ScatterPlan plan_scatter(const Graph& graph, Node& scatter, const OpaqueOps& opaque,
                                       const FuseOptions& options);

}  // namespace tandem::graph
