#pragma once

#include <tandem/coll/collectives.hpp>
#include <vector>

#include "program/call.hpp"
#include "program/products.hpp"

namespace tandem::program {

// The fused nodes that passes make, read once for the library's op and for its definition.

/// Products of a gathered tensor.
struct GatherNode {
  HostTensor a;
  std::vector<HostTensor> b;
  int dim = 0;
  Values bias;  ///< one a b, or null
  bool returns_gathered = false;
};

/// A scattered sum of products.
struct ScatterNode {
  std::vector<Product> products;
  coll::ReduceOp op = coll::ReduceOp::kSum;
  int dim = 0;
  DType dtype = DType::kF32;
  bool returns_product = false;
};

[[nodiscard]] Result<GatherNode> read_gather(const Call& call);
[[nodiscard]] Result<ScatterNode> read_scatter(const Call& call);

/// Whether fused_ops() has the op.
[[nodiscard]] bool is_fused(const graph::Node& node);

/// What a fused node means: the collective, serial, and the products by themselves, on the same operands and
/// with the same order of additions. Collective over the ranks, as the op is.
[[nodiscard]] Result<Values> define_fused(const Call& call);

}  // namespace tandem::program
