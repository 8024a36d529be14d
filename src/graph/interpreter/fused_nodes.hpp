#pragma once

#include <optional>
#include <tandem/coll/collectives.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>
#include <vector>

#include "graph/interpreter/call.hpp"
#include "graph/interpreter/products.hpp"

namespace tandem::graph::interpreter {

// The fused nodes that passes make, read once for the library's op and for its definition.

/// Products of a gathered tensor.
struct GatherNode {
  HostTensor a;
  std::vector<HostTensor> b;
  int dim = 0;
  std::optional<std::int64_t> size;  ///< of the dim over all ranks, where shards have padding
  Values bias;                       ///< one a b, or null
  bool returns_gathered = false;
};

/// Scaled products of a gathered f8 tensor.
struct ScaledGatherNode {
  GatherNode plain;
  ScaleMode mode = ScaleMode::kTensorwise;
  HostTensor a_scale;
  std::vector<HostTensor> b_scale;
  Values result_scale;        ///< one a b, or null
  std::vector<DType> dtypes;  ///< of the products
  bool allows_fast_sums = false;
  std::vector<HostTensor> also_gather;  ///< further shards, gathered as they are
};

/// A scattered or all-reduced sum of products.
struct ScatterNode {
  std::vector<Product> products;
  coll::ReduceOp op = coll::ReduceOp::kSum;
  int dim = 0;  ///< of a scatter
  DType dtype = DType::kF32;
  bool returns_product = false;
  bool allows_fast_sums = false;
};

[[nodiscard]] Result<GatherNode> read_gather(const Call& call);
[[nodiscard]] Result<ScaledGatherNode> read_scaled_gather(const Call& call);
[[nodiscard]] Result<ScatterNode> read_scatter(const Call& call);
[[nodiscard]] Result<ScatterNode> read_scaled_scatter(const Call& call);
[[nodiscard]] Result<ScatterNode> read_all_reduce(const Call& call);
[[nodiscard]] Result<ScatterNode> read_scaled_all_reduce(const Call& call);

/// What a node of fused_gather_ops() or fused_scatter_ops() means: the collective, serial, and the products
/// by themselves, on the same operands and with the same order of additions. Collective over the ranks, as
/// the op is.
[[nodiscard]] Result<Values> define_fused(const Call& call);

}  // namespace tandem::graph::interpreter
