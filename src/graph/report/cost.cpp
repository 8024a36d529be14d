#include "graph/report/cost.hpp"

#include "cost/products.hpp"
#include "cost/schedules.hpp"
#include "cost/transfers.hpp"
#include "graph/ir/ops.hpp"
#include "graph/ir/shards.hpp"
#include "graph/passes/gather_fusion.hpp"
#include "graph/passes/scatter_fusion.hpp"

namespace tandem::graph {
namespace {

void add_product(Work& work, double flops, std::int64_t operand_bytes) {
  work.product_us += cost::product_us(flops, operand_bytes);
}

double flops_of(std::int64_t numel, const Node& b) {
  return 2.0 * static_cast<double>(numel) * static_cast<double>(type_of(b).shape[1]);
}

}  // namespace

double received_bytes(const TensorType& type, int world, int count) {
  const double bytes = static_cast<double>(type.numel()) * static_cast<double>(element_bytes(type)) * count;
  return bytes * (world - 1) / world;
}

Work work_of(const GatherFusion& fusion, int world) {
  Work work{.bytes = received_bytes(type_of(*fusion.gather), world)};
  for (const Node* const beside : fusion.also_gather) work.bytes += received_bytes(type_of(*beside), world);
  for (const GatherUse& use : fusion.uses)
    add_product(work, use.product.flops(), element_bytes(*use.product.a));
  return work;
}

Work work_of(const ScatterFusion& fusion, int world) {
  const int ways = fusion.gives_all() ? 2 : 1;
  Work work{.bytes = received_bytes(type_of(*as_collective(*fusion.scatter).input), world, ways)};
  for (const Product& term : fusion.terms) add_product(work, term.flops(), element_bytes(*term.a));
  return work;
}

Work work_of(const Node& fused, int world) {
  Work work;
  const auto a = fused.arguments()[0].entries();
  const auto b = fused.arguments()[1].entries();
  if (fused.is_call_of(op::kFusedAllGatherMatmul) || fused.is_call_of(op::kFusedAllGatherScaledMatmul)) {
    TensorType whole = type_of(*a[0].node());
    const bool is_scaled = fused.is_call_of(op::kFusedAllGatherScaledMatmul);
    const std::size_t dim =
        dim_from_front(*fused.arguments()[is_scaled ? 4 : 2].integer(), whole.shape.size());
    whole.shape[dim] = gather_size_of(fused).value_or(whole.shape[dim] * world);
    work.bytes = received_bytes(whole, world);
    for (const Argument& one : b) {
      add_product(work, flops_of(whole.numel(), *one.node()), element_bytes(*one.node()));
    }
    if (const auto beside = fused.named_arguments().find("also_gather");
        beside != fused.named_arguments().end()) {
      for (const Argument& one : beside->second.entries()) {
        work.bytes += received_bytes(type_of(*one.node()), world, world);
      }
    }
    return work;
  }
  const bool gives_all =
      fused.is_call_of(op::kFusedMatmulAllReduce) || fused.is_call_of(op::kFusedScaledMatmulAllReduce);
  work.bytes = received_bytes(*fused.type().tensors[0], world, gives_all ? 2 : world);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Node& left = *a[i].node();
    add_product(work, flops_of(type_of(left).numel(), *b[i].node()), element_bytes(left));
  }
  return work;
}

Transfer transfer_of(const Node& collective, int world) {
  const bool gathers = collective.is_call_of(op::kFunctionalAllGather);
  const double bytes =
      received_bytes(gathers ? type_of(collective) : type_of(*collective.arguments()[0].node()), world);
  return {.bytes = bytes, .beside_us = cost::low_contention_us(bytes)};
}

double product_us_of(Node& node) {
  if (const auto product = as_product(node); product && product->computed_at == &node)
    return cost::product_us(product->flops(), element_bytes(*product->a));
  if (!node.is_call_of(op::kBmm)) return 0;
  const TensorType& a = type_of(*node.arguments()[0].node());
  const double flops = 2.0 * static_cast<double>(a.numel()) * static_cast<double>(type_of(node).shape[2]);
  return cost::product_us(flops, element_bytes(a));
}

double saved_us(const Work& work, int world) {
  return cost::overlap_saves_us(work.bytes, work.product_us, world);
}

}  // namespace tandem::graph
