#include <algorithm>
#include <optional>
#include <string_view>
#include <tandem/graph/passes.hpp>
#include <unordered_set>
#include <vector>

#include "base/try.hpp"
#include "graph/ir/groups.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/opaque_ops.hpp"
#include "graph/passes/products.hpp"
#include "graph/passes/row_local.hpp"
#include "graph/report/cost.hpp"

namespace tandem::graph {
namespace {

/// That a rank receives. Meetings of the ranks take as long as the transfer of less.
constexpr double kLeastBytes = 1 << 20;

/// What a collective, by PyTorch's name, is called where it runs beside products.
std::optional<std::string_view> op_beside(const Node& node) {
  if (node.is_call_of(op::kFunctionalAllGather)) return op::kLowContentionAllGather;
  if (node.is_call_of(op::kFunctionalReduceScatter)) return op::kLowContentionReduceScatter;
  return std::nullopt;
}

/// Whether ranks talk to each other there, or wait for it.
bool is_communication(const Node& node) {
  return op::is_fused(node.target()) || op::is_low_contention(node.target()) ||
         node.target().starts_with("_c10d_functional.");
}

bool can_sum(const Node& scatter) {
  constexpr std::string_view kOps[] = {"sum", "avg"};
  const auto* const name = std::get_if<std::string>(&scatter.arguments()[1].value);
  return name != nullptr && std::find(std::begin(kOps), std::end(kOps), *name) != std::end(kOps) &&
         is_product_type(type_of(scatter).dtype);
}

/// Whether low-contention ops take it: of the program's own ranks, and waited for once.
bool can_run_beside(const Node& node, const GraphHeader& header) {
  const std::string* const group = group_of(node);
  const auto world = node.arguments()[node.arguments().size() - 2].integer();
  const Node* const wait = only_user(node);
  if (group == nullptr || *group != header.group || world != header.world_size) return false;
  if (wait == nullptr || !wait->is_call_of(op::kWait) || wait->users().empty()) return false;
  return node.is_call_of(op::kFunctionalAllGather) ? element_bytes(node) > 0 : can_sum(node);
}

/// Stretches the time between a collective's start and its wait until the products in it take longer.
class Stretch {
 public:
  Stretch(Graph& graph, Node& collective)
      : graph_(graph),
        start_(collective),
        raised_{&collective},
        lowered_{only_user(collective)},
        is_lowered_{lowered_[0]} {}

  /// Whether there are enough products, and no other communication among them.
  [[nodiscard]] bool find() {
    const Transfer transfer = transfer_of(start_, graph_.header.world_size);
    if (transfer.bytes < kLeastBytes) return false;
    end_ = find_first_use();
    begin_ = end_;
    double products_us = 0;
    bool is_above_start = false;
    // An early start stays where it is, unless other communication is behind it.
    for (Node* node = graph_.before(*end_); node != nullptr; node = graph_.before(*node)) {
      if (node == &start_) {
        is_above_start = true;
        if (products_us >= transfer.beside_us) begin_ = node;
      } else if (!is_lowered(*node)) {
        if (!passes(*node)) break;
        begin_ = node;
        products_us += product_us_of(*node);
      }
      if (is_above_start && products_us >= transfer.beside_us) break;
    }
    return products_us >= transfer.beside_us;
  }

  /// The op of that name starts there, and what waits for it is before the first use.
  [[nodiscard]] Result<void> apply(std::string_view target) {
    for (auto one = raised_.rbegin(); one != raised_.rend(); ++one) graph_.move_before(**one, *begin_);
    for (Node* const one : lowered_) graph_.move_before(*one, *end_);
    Argument::List arguments = start_.arguments();
    arguments.erase(arguments.end() - 2);  // the number of ranks
    TANDEM_ASSIGN(Node* const beside,
                  graph_.insert_before(&start_, {.kind = NodeKind::kCall,
                                                 .name = graph_.free_name(short_name(target)),
                                                 .target = std::string(target),
                                                 .arguments = std::move(arguments),
                                                 .named_arguments = {},
                                                 .type = start_.type(),
                                                 .collectives = start_.collectives()}));
    graph_.replace_uses(start_, *beside);
    std::string name = start_.name();
    TANDEM_TRY(graph_.erase(start_));
    return graph_.rename(*beside, std::move(name));
  }

 private:
  /// Of what the collective makes, but for views.
  Node* find_first_use() {
    while (true) {
      const auto& users = lowered_.back()->users();
      Node* const first = *std::min_element(
          users.begin(), users.end(), [](const Node* a, const Node* b) { return Graph::is_before(*a, *b); });
      const bool is_view = is_view_op(*first) || first->is_call_of(op::kPermute);
      if (users.size() > 1 || !is_view || first->users().empty()) return first;
      lowered_.push_back(first);
      is_lowered_.insert(first);
    }
  }

  [[nodiscard]] bool is_lowered(const Node& node) const { return is_lowered_.contains(&node); }

  /// Whether the collective may start above it. What only prepares its input starts with it.
  [[nodiscard]] bool passes(Node& node) {
    const std::vector<Node*> inputs = raised_.back()->inputs();
    // An unknown op may talk to other ranks, or change the input.
    if (node.is_given() || is_communication(node) || OpaqueOps::contains(node)) return false;
    if (std::find(inputs.begin(), inputs.end(), &node) == inputs.end()) return true;
    if (inputs.size() != 1 || !is_used_once(node) || !(is_view_op(node) || is_cast_op(node))) return false;
    raised_.push_back(&node);
    return true;
  }

  Graph& graph_;
  Node& start_;
  std::vector<Node*> raised_;   ///< the collective and what prepares its input, from the last on
  std::vector<Node*> lowered_;  ///< its wait, and views of what that makes, from the first on
  std::unordered_set<const Node*> is_lowered_;
  Node* begin_ = nullptr;  ///< before which it starts
  Node* end_ = nullptr;    ///< before which it is waited for
};

}  // namespace

Result<void> run_beside_products(Graph& graph, const FuseOptions& options) {
  if (!options.low_contention) return {};
  std::vector<Node*> collectives;
  for (Node& node : graph.nodes()) {
    if (op_beside(node) && can_run_beside(node, graph.header)) collectives.push_back(&node);
  }
  for (Node* const collective : collectives) {
    Stretch stretch(graph, *collective);
    if (stretch.find()) TANDEM_TRY(stretch.apply(*op_beside(*collective)));
  }
  return {};
}

}  // namespace tandem::graph
