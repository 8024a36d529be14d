#include <algorithm>
#include <tandem/graph/passes.hpp>

#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/ir/shards.hpp"
#include "graph/passes/coalesced.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/products.hpp"

namespace tandem::graph {
namespace {

/// Writes one collective as PyTorch does, before it.
class Restoring {
 public:
  Restoring(Graph& graph, Node& node) : graph_(graph), node_(node), collective_(as_collective(node)) {}

  Result<void> gather() {
    const TensorType& shard = type_of(*collective_.input);
    if (collective_.dim != 0 && shard.shape[0] == 0) return {};  // nothing can be split into pieces of 0
    TANDEM_ASSIGN(Node * whole,
                  waited(op::kFunctionalAllGather, "all_gather_into_tensor",
                         {{collective_.input}, {collective_.world}, collective_.group}, stacked(shard)));
    if (collective_.dim != 0) {
      TANDEM_ASSIGN(std::vector<Node*> parts, parts_of(*whole, shard.shape[0], 0));
      const bool is_erased = element_bytes(*collective_.input) == 1;  // PyTorch joins no 8-bit floats
      if (is_erased) TANDEM_TRY(view_all(parts, "uint8"));
      TANDEM_ASSIGN(whole, joined(parts, collective_.dim));
      if (is_erased) {
        TANDEM_ASSIGN(whole, viewed(*whole, shard.dtype));
      }
    }
    if (const auto size = gather_size_of(node_)) {
      TANDEM_ASSIGN(whole, trimmed(*whole, *size));
    }
    return finish(*whole);
  }

  Result<void> scatter() {
    TANDEM_ASSIGN(Node * input, padded());
    if (collective_.dim != 0) {
      const std::int64_t piece = type_of(node_).shape[collective_.dim];
      if (piece == 0) return {};
      TANDEM_ASSIGN(const std::vector<Node*> parts, parts_of(*input, piece, collective_.dim));
      TANDEM_ASSIGN(input, joined(parts, 0));
    }
    TensorType type = contiguous_type(type_of(node_).shape, type_of(node_).dtype);
    TANDEM_ASSIGN(
        Node* const part,
        waited(op::kFunctionalReduceScatter, "reduce_scatter_tensor",
               {{input}, node_.arguments()[1], {collective_.world}, collective_.group}, std::move(type)));
    return finish(*part);
  }

 private:
  /// The first rows of what was gathered, contiguous where a user may mind.
  Result<Node*> trimmed(Node& whole, std::int64_t size) {
    const auto dim = static_cast<std::int64_t>(collective_.dim);
    TensorType type = type_of(whole);
    type.shape[collective_.dim] = size;
    TANDEM_ASSIGN(Node* const slice,
                  insert(op::kSlice, "slice", {{&whole}, {dim}, {0}, {size}}, tensor(std::move(type))));
    const auto& users = node_.users();
    const bool takes_any = std::all_of(users.begin(), users.end(), [](const Node* user) {
      return user->is_call_of(op::kReshape) || user->is_call_of(op::kClone);
    });
    return takes_any ? slice : contiguous(graph_, node_, *slice);
  }

  /// What is scattered, with rows of zeros where ranks do not divide it.
  Result<Node*> padded() {
    TensorType type = contiguous_type(type_of(*collective_.input).shape, type_of(node_).dtype);
    std::int64_t& size = type.shape[collective_.dim];
    const std::int64_t rows = type_of(node_).shape[collective_.dim] * collective_.world - size;
    if (rows == 0) return collective_.input;
    size += rows;
    std::vector<std::int64_t> pads((type.shape.size() - collective_.dim) * 2);
    pads.back() = rows;
    return insert("aten.constant_pad_nd.default", "constant_pad_nd",
                  {{collective_.input}, {list_of(pads)}, {0.0}},
                  tensor(contiguous_type(type.shape, type.dtype)));
  }

  Result<Node*> insert(std::string_view target, std::string_view name, Argument::List arguments,
                       NodeType type) {
    return graph_.insert_before(&node_, {.kind = NodeKind::kCall,
                                         .name = graph_.free_name(name),
                                         .target = std::string(target),
                                         .arguments = std::move(arguments),
                                         .named_arguments = {},
                                         .type = std::move(type)});
  }

  static NodeType tensor(TensorType type) { return {NodeType::Kind::kTensor, {std::move(type)}}; }

  [[nodiscard]] TensorType stacked(const TensorType& shard) const {
    std::vector<std::int64_t> shape = shard.shape;
    shape[0] *= collective_.world;
    return contiguous_type(std::move(shape), shard.dtype);
  }

  Result<Node*> waited(std::string_view target, std::string_view name, Argument::List arguments,
                       TensorType type) {
    TANDEM_ASSIGN(started_, insert(target, name, std::move(arguments), tensor(type)));
    graph_.add_collectives(*started_, node_.collectives());
    return insert(op::kWait, "wait_tensor", {{started_}}, tensor(std::move(type)));
  }

  Result<std::vector<Node*>> parts_of(Node& whole, std::int64_t piece, std::size_t dim) {
    const auto symbolic = node_.named_arguments().find(kPiece);
    const Argument size = symbolic == node_.named_arguments().end() ? Argument{piece} : symbolic->second;
    TensorType type = type_of(whole);
    type.shape[dim] = piece;
    NodeType types{NodeType::Kind::kList, {}};
    types.tensors.assign(static_cast<std::size_t>(collective_.world), type);
    TANDEM_ASSIGN(
        Node* const split,
        insert(op::kSplit, "split", {{&whole}, size, {static_cast<std::int64_t>(dim)}}, std::move(types)));
    std::vector<Node*> parts;
    for (std::int64_t i = 0; i < collective_.world; ++i) {
      TANDEM_ASSIGN(Node* const part, item_of(graph_, node_, *split, i));
      parts.push_back(part);
    }
    return parts;
  }

  Result<Node*> viewed(Node& node, std::string_view dtype) {
    TensorType type = type_of(node);
    type.dtype = dtype;
    return insert(op::kViewDType, "view", {{&node}, {Repr{"torch." + std::string(dtype)}}},
                  tensor(std::move(type)));
  }

  Result<void> view_all(std::vector<Node*>& parts, std::string_view dtype) {
    for (Node*& part : parts) {
      TANDEM_ASSIGN(part, viewed(*part, dtype));
    }
    return {};
  }

  Result<Node*> joined(const std::vector<Node*>& parts, std::size_t dim) {
    Argument::List list;
    std::vector<std::int64_t> shape = type_of(*parts[0]).shape;
    shape[dim] *= collective_.world;
    for (Node* const part : parts) list.push_back({part});
    return insert(op::kCat, "cat", {{std::move(list)}, {static_cast<std::int64_t>(dim)}},
                  tensor(contiguous_type(std::move(shape), type_of(*parts[0]).dtype)));
  }

  /// The collective has its captured name again, where that is free.
  Result<void> finish(Node& instead) {
    const auto names = node_.collectives();
    graph_.replace_uses(node_, instead);
    TANDEM_TRY(graph_.erase(node_));
    const bool has_one_name =
        names.size() == 1 && !name_of_coalesced(*names.begin()) && graph_.find(*names.begin()) == nullptr;
    return has_one_name ? graph_.rename(*started_, *names.begin()) : Result<void>();
  }

  Graph& graph_;
  Node& node_;
  Collective collective_;
  Node* started_ = nullptr;
};

}  // namespace

Result<void> restore_collectives(Graph& graph) {
  for (auto place = graph.nodes().begin(); place != graph.nodes().end();) {
    Node& node = *place++;
    if (node.is_call_of(op::kAllGather)) {
      TANDEM_TRY(Restoring(graph, node).gather());
    } else if (node.is_call_of(op::kReduceScatter)) {
      TANDEM_TRY(Restoring(graph, node).scatter());
    }
  }
  return {};
}

}  // namespace tandem::graph
