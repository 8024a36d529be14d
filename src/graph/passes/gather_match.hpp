#pragma once

#include <optional>
#include <string>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/graph.hpp>
#include <vector>

#include "graph/passes/opaque_ops.hpp"
#include "graph/passes/products.hpp"

namespace tandem::graph {

/// Why not, and which node is in the way.
struct Refusal {
  Reason reason = Reason::kNoProduct;
  const Node* node = nullptr;  ///< or null
  std::string says = {};       ///< what that does, if its op does not say it
  bool is_legal = false;       ///< a fusion exists all the same
};

enum class ScaleMode : std::uint8_t { kNone, kTensorwise, kRowwiseSharded, kRowwiseReplicated };
[[nodiscard]] std::string_view to_string(ScaleMode mode);

/// Whether two gathers can run in one schedule: along the same dim, of sizes that are the same but the last.
[[nodiscard]] bool run_together(const Node& a, const Node& b);

/// A product whose left operand is gathered.
struct GatherUse {
  Product product;
  ScaleMode mode = ScaleMode::kNone;
  Node* scale_gather = nullptr;    ///< where the scale comes from a gather of its own, or of the same shard
  bool is_operand_cast = false;    ///< the operand is cast after the gather, to a smaller type
  bool is_scale_computed = false;  ///< the scale is computed row by row after its gather
  [[nodiscard]] bool needs_narrowing() const { return is_operand_cast || is_scale_computed; }
};

/// All that the product of a gathered tensor reads, and what is gathered.
[[nodiscard]] OpaqueOps::Values values_of(const Product& product, const Node& gather);

/// The products that a fused op can compute while `gather` runs, in the order of the graph, or why there is
/// none.
struct GatherMatch {
  std::vector<GatherUse> uses;
  Refusal why_not;  ///< if there are none, and it was asked for
};
/// Whether to look for the reason, which takes longer than to look for products.
enum class Explains : std::uint8_t { kNo, kYes };
[[nodiscard]] GatherMatch match_gather(Node& gather, const GraphHeader& header, const OpaqueOps& opaque,
                                       Explains explains = Explains::kNo);

}  // namespace tandem::graph
