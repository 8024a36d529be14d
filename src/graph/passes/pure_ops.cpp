#include "graph/passes/pure_ops.hpp"

#include <algorithm>
#include <iterator>

namespace tandem::graph {
namespace {

constexpr std::string_view kComputes = "only computes";
constexpr std::string_view kSends = "sends copies, and makes new tensors of what comes";
constexpr std::string_view kDraws = "draws from the generator of random numbers, which nothing else reads";
constexpr std::string_view kCounts = "computes whole numbers";

struct PureOp {
  std::string_view target;
  std::string_view why;
};

/// By op and overload. Those that write into what they take, or wait for more than their own result, are not
/// here. The names of Python's own functions are as PyTorch prints them: they compute sizes.
constexpr PureOp kPureOps[] = {
    {"<built-in function add>", kCounts},
    {"<built-in function and_>", kCounts},
    {"<built-in function eq>", kCounts},
    {"<built-in function floordiv>", kCounts},
    {"<built-in function ge>", kCounts},
    {"<built-in function gt>", kCounts},
    {"<built-in function le>", kCounts},
    {"<built-in function lt>", kCounts},
    {"<built-in function mod>", kCounts},
    {"<built-in function mul>", kCounts},
    {"<built-in function ne>", kCounts},
    {"<built-in function neg>", kCounts},
    {"<built-in function pow>", kCounts},
    {"<built-in function sub>", kCounts},
    {"<built-in function truediv>", kCounts},
    {"_c10d_functional.all_gather_into_tensor_coalesced.default", kSends},
    {"_c10d_functional.all_reduce_coalesced.default", kSends},
    {"_c10d_functional.all_to_all_single.default", kSends},
    {"_c10d_functional.broadcast.default", kSends},
    {"_c10d_functional.reduce_scatter_tensor_coalesced.default", kSends},
    {"prims.broadcast_in_dim.default", kComputes},
    {"prims.device_put.default", kComputes},
    {"prims.fma.default", kComputes},
    {"prims.inductor_lookup_seed.default", kComputes},
    {"prims.inductor_randint.default", kComputes},
    {"prims.inductor_random.default", kComputes},
    {"prims.inductor_seed.default", kDraws},
    {"prims.inductor_seeds.default", kDraws},
    {"prims.iota.default", kComputes},
};
static_assert(std::is_sorted(std::begin(kPureOps), std::end(kPureOps),
                             [](const PureOp& a, const PureOp& b) { return a.target < b.target; }));

/// Whether PyTorch's conventions say so: "aten.gelu.default" computes, "aten.gelu_.default" changes its
/// input, and "aten.gelu.out" what is given by name. Normalisations that keep statistics break the
/// convention.
bool is_functional(const Node& node) {
  const std::string_view target = node.target();
  if (!target.starts_with("aten.") || target.find("batch_norm") != std::string_view::npos ||
      target.find("with_noise") != std::string_view::npos) {
    return false;
  }
  const std::string_view name = target.substr(5, target.find('.', 5) - 5);
  const auto& named = node.named_arguments();
  return !name.ends_with('_') && !target.ends_with("out") &&
         std::none_of(named.begin(), named.end(),
                      [](const auto& one) { return one.second.node() != nullptr; });
}

}  // namespace

std::string_view why_pure(const Node& node) {
  if (is_functional(node)) return kComputes;
  const auto* const found =
      std::lower_bound(std::begin(kPureOps), std::end(kPureOps), std::string_view(node.target()),
                       [](const PureOp& one, std::string_view target) { return one.target < target; });
  return found != std::end(kPureOps) && found->target == node.target() ? found->why : std::string_view();
}

}  // namespace tandem::graph
