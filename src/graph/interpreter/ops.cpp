#include "graph/interpreter/ops.hpp"

#include <algorithm>

namespace tandem::graph::interpreter {

const Op* find_op(std::string_view target) {
  for (const auto family :
       {elementwise_ops, comparison_ops, activation_ops, creation_ops, reduction_ops, normalisation_ops,
        shape_ops, size_ops, indexing_ops, product_ops, convolution_ops, attention_ops, collective_ops,
        fused_gather_ops, fused_scatter_ops}) {
    const auto ops = family();
    const auto found =
        std::find_if(ops.begin(), ops.end(), [&](const Op& op) { return op.target == target; });
    if (found != ops.end()) return &*found;
  }
  return nullptr;
}

}  // namespace tandem::graph::interpreter
