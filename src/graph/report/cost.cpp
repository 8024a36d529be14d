#include "graph/report/cost.hpp"

#include <algorithm>

#include "graph/ir/ops.hpp"
#include "graph/passes/gather_fusion.hpp"
#include "graph/passes/scatter_fusion.hpp"

namespace tandem::graph {
namespace {

// Of an H200 that is warm: what cuBLASLt and peer copies sustain on large operands, not what is on paper.
constexpr double kBytesPerUs = 3.6e5;
constexpr double kHalfFlopsPerUs = 6.5e8;
constexpr double kEighthFlopsPerUs = 1.2e9;
constexpr double kFullFlopsPerUs = 4.5e7;
/// Signals and launches that the serial road does without, for each piece.
constexpr double kPieceUs = 2.0;

double received(std::int64_t numel, std::int64_t bytes_each, int world) {
  return static_cast<double>(numel) * static_cast<double>(bytes_each) * (world - 1) / world;
}

void add_product(Work& work, double flops, std::int64_t operand_bytes) {
  (operand_bytes == 1 ? work.eighth_flops : operand_bytes == 2 ? work.half_flops : work.full_flops) += flops;
}

/// The tensors of an argument that is one or a list of them.
std::vector<Node*> tensors_of(const Argument& argument) {
  std::vector<Node*> found;
  if (argument.node() != nullptr) found.push_back(argument.node());
  if (argument.list() != nullptr) {
    for (const Argument& one : *argument.list()) {
      if (one.node() != nullptr) found.push_back(one.node());
    }
  }
  return found;
}

double flops_of(std::int64_t numel, const Node& b) {
  return 2.0 * static_cast<double>(numel) * static_cast<double>(type_of(b).shape[1]);
}

}  // namespace

Work work_of(const GatherFusion& fusion, int world) {
  Work work{.bytes = received_bytes(*fusion.gather, world)};
  for (const Node* const beside : fusion.beside) work.bytes += received_bytes(*beside, world);
  for (const GatherUse& use : fusion.uses)
    add_product(work, use.product.flops(), element_bytes(*use.product.a));
  return work;
}

Work work_of(const ScatterFusion& fusion, int world) {
  const Node& whole = *as_collective(*fusion.scatter).input;
  Work work{.bytes = received(type_of(whole).numel(), element_bytes(whole), world)};
  for (const Product& term : fusion.terms) add_product(work, term.flops(), element_bytes(*term.a));
  return work;
}

Work work_of(const Node& fused, int world) {
  Work work;
  const std::vector<Node*> a = tensors_of(fused.arguments()[0]);
  const std::vector<Node*> b = tensors_of(fused.arguments()[1]);
  if (fused.is_call_of(op::kFusedAllGatherMatmul) || fused.is_call_of(op::kFusedAllGatherScaledMatmul)) {
    const std::int64_t numel = type_of(*a[0]).numel() * world;
    work.bytes = received(numel, element_bytes(*a[0]), world);
    for (const Node* const one : b) add_product(work, flops_of(numel, *one), element_bytes(*one));
    if (const auto beside = fused.named_arguments().find("beside"); beside != fused.named_arguments().end()) {
      for (const Node* const shard : tensors_of(beside->second)) {
        work.bytes += received(type_of(*shard).numel() * world, element_bytes(*shard), world);
      }
    }
    return work;
  }
  const auto& scattered = fused.type().tensors[0];
  work.bytes = static_cast<double>(scattered->numel()) * (world - 1);
  work.bytes *= static_cast<double>(size_bytes(dtype_of(scattered->dtype).value_or(DType::kF32)));
  for (std::size_t i = 0; i < a.size(); ++i) {
    add_product(work, flops_of(type_of(*a[i]).numel(), *b[i]), element_bytes(*a[i]));
  }
  return work;
}

double saved_us(const Work& work, int world) {
  const double moving = work.bytes / kBytesPerUs;
  const double multiplying = work.half_flops / kHalfFlopsPerUs + work.eighth_flops / kEighthFlopsPerUs +
                             work.full_flops / kFullFlopsPerUs;
  return std::min(moving, multiplying) * (world - 1) / world - kPieceUs * world;
}

}  // namespace tandem::graph
