#include "program/fused_nodes.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "program/collectives.hpp"

namespace tandem::program {

// (shard, [b...], dim, group, bias=[...]?, return_A=flag)
Result<GatherNode> read_gather(const Call& call) {
  TANDEM_ASSIGN(HostTensor a, call.tensor(0));
  TANDEM_ASSIGN(auto b, call.tensors(1));
  TANDEM_ASSIGN(const int dim, call.dim(2, a));
  TANDEM_TRY(check_group(call, 3));
  TANDEM_ASSIGN(Values bias, call.optional_tensors(call.named("bias"), b.size()));
  TANDEM_ASSIGN(const bool returns_gathered, call.flag_or(call.named("return_A"), false));
  return GatherNode{std::move(a), std::move(b), dim, std::move(bias), returns_gathered};
}

// (a or [a...], b or [b...], op, dim, group, return_product=flag?)
Result<ScatterNode> read_scatter(const Call& call) {
  TANDEM_ASSIGN(const auto a, call.tensors(0));
  TANDEM_ASSIGN(const auto b, call.tensors(1));
  TANDEM_ASSIGN(const auto name, call.text(2));
  TANDEM_ASSIGN(const auto op, reduce_op_of(name));
  TANDEM_ASSIGN(const int dim, call.dim(3, a.front()));
  TANDEM_TRY(check_group(call, 4));
  TANDEM_ASSIGN(const bool returns_product, call.flag_or(call.named("return_product"), false));
  if (a.size() != b.size()) {
    return failf(ErrorCode::kInvalidArgument, "has {} left and {} right operands", a.size(), b.size());
  }
  ScatterNode node{{}, op, dim, a.front().dtype(), returns_product};
  for (std::size_t j = 0; j < a.size(); ++j) node.products.push_back({a[j], b[j]});
  return node;
}

}  // namespace tandem::program
