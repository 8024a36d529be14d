#include <tandem/graph/graph.hpp>

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/limits.hpp"
#include "graph/ir/visit.hpp"

namespace tandem::graph {
namespace {

/// More than one looks through for each of them: an output takes thousands.
constexpr std::size_t kManyArguments = 32;

/// Whole numbers, or nothing where one of them has no hint.
Result<std::optional<std::vector<std::int64_t>>> hints_of(const Argument::List& sizes) {
  std::optional<std::vector<std::int64_t>> hints(std::in_place);
  for (const Argument& size : sizes) {
    const auto* const symbol = std::get_if<Symbol>(&size.value);
    const bool has_no_hint = symbol != nullptr && std::holds_alternative<std::monostate>(symbol->hint);
    if (!has_no_hint && !size.integer()) return failf(ErrorCode::kParse, "a size is no whole number");
    if (has_no_hint) {
      hints.reset();
    } else if (hints) {
      hints->push_back(*size.integer());
    }
  }
  return hints;
}

bool has_symbol(const Argument::List& sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](const Argument& size) { return size.is_symbolic(); });
}

/// Whether arguments, with what is in their lists, are no more than `left`, which is reduced by them.
bool is_within(std::span<const Argument> arguments, std::size_t& left) {
  if (arguments.size() > left) return false;
  left -= arguments.size();
  return std::all_of(arguments.begin(), arguments.end(), [&](const Argument& one) {
    return one.list() == nullptr || is_within(*one.list(), left);
  });
}

Result<std::optional<TensorType>> hinted(const SymbolicType::Item& item) {
  const auto* const tensor = std::get_if<SymbolicTensor>(&item);
  if (tensor == nullptr) return std::nullopt;
  TANDEM_ASSIGN(auto shape, hints_of(tensor->shape));
  TANDEM_ASSIGN(auto stride, hints_of(tensor->stride));
  if (!shape || !stride) return std::nullopt;
  TensorType type{*std::move(shape), *std::move(stride), tensor->dtype};
  TANDEM_TRY(check_type(type));
  return type;
}

}  // namespace

std::int64_t TensorType::numel() const {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

bool TensorType::is_contiguous() const {
  return stride == contiguous_stride(shape);
}

std::vector<std::int64_t> contiguous_stride(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> stride(shape.size());
  std::int64_t next = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    stride[d] = next;
    next *= std::max<std::int64_t>(shape[d], 1);
  }
  return stride;
}

std::optional<DType> dtype_of(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, DType>, kNumDTypes> kNames = {{
      {"float32", DType::kF32},
      {"float16", DType::kF16},
      {"bfloat16", DType::kBF16},
      {"float8_e4m3fn", DType::kF8E4M3},
      {"float8_e5m2", DType::kF8E5M2},
      {"uint8", DType::kU8},
      {"uint32", DType::kU32},
      {"int8", DType::kI8},
      {"int32", DType::kI32},
      {"int64", DType::kI64},
      {"float64", DType::kF64},
      {"bool", DType::kBool},
  }};
  for (const auto& [known, dtype] : kNames) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

Node* Argument::node() const {
  Node* const* found = std::get_if<Node*>(&value);
  return found == nullptr ? nullptr : *found;
}

const Argument::List* Argument::list() const {
  return std::get_if<List>(&value);
}

std::span<const Argument> Argument::entries() const {
  return list() == nullptr ? std::span(this, 1) : std::span(*list());
}

std::optional<std::int64_t> Argument::integer() const {
  const auto* const symbol = std::get_if<Symbol>(&value);
  const auto* const integer =
      symbol != nullptr ? std::get_if<std::int64_t>(&symbol->hint) : std::get_if<std::int64_t>(&value);
  return integer == nullptr ? std::nullopt : std::optional(*integer);
}

bool Argument::is_symbolic() const {
  const Node* const made_by = node();
  return std::holds_alternative<Symbol>(value) ||
         (made_by != nullptr && made_by->type().kind == NodeType::Kind::kNone);
}

const TensorType* NodeType::tensor() const {
  return kind == Kind::kTensor && tensors[0] ? &*tensors[0] : nullptr;
}

Result<NodeType> SymbolicType::hinted() const {
  NodeType type;
  for (const Item& item : items) {
    TANDEM_ASSIGN(type.tensors.emplace_back(), graph::hinted(item));
  }
  type.kind = is_list ? NodeType::Kind::kList : NodeType::Kind::kTensor;
  if (is_list || type.tensors[0]) return type;
  return NodeType();
}

bool SymbolicType::has_symbols() const {
  return std::any_of(items.begin(), items.end(), [](const Item& item) {
    const auto* const tensor = std::get_if<SymbolicTensor>(&item);
    return std::holds_alternative<Symbol>(item) ||
           (tensor != nullptr && (has_symbol(tensor->shape) || has_symbol(tensor->stride)));
  });
}

std::vector<Node*> Node::inputs() const {
  std::vector<Node*> found;
  found.reserve(4);  // most have fewer
  std::unordered_set<const Node*> seen;
  const auto note = [&](const Argument& argument) {
    Node* const node = argument.node();
    if (found.size() < kManyArguments) {
      if (std::find(found.begin(), found.end(), node) == found.end()) found.push_back(node);
      return;
    }
    if (seen.empty()) seen.insert(found.begin(), found.end());
    if (seen.insert(node).second) found.push_back(node);
  };
  for (const Argument& argument : arguments_) for_each_node(argument, note);
  for (const auto& [name, argument] : named_arguments_) for_each_node(argument, note);
  return found;
}

const Node* Graph::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

Node* Graph::find(std::string_view name) {
  return const_cast<Node*>(std::as_const(*this).find(name));
}

std::string Graph::free_name(std::string_view name) {
  if (find(name) == nullptr) return std::string(name);
  for (int& next = next_of_name_.try_emplace(std::string(name), 1).first->second;; ++next) {
    std::string candidate = fmt::format("{}_{}", name, next);
    if (find(candidate) == nullptr) return candidate;
  }
}

Result<Node*> Graph::insert_before(Node* place, NodeSpec spec) {
  if (find(spec.name) != nullptr) {
    return failf(ErrorCode::kInvalidArgument, "graph: there is a node '{}' already", spec.name);
  }
  Node& node = *nodes_.emplace(place == nullptr ? nodes_.end() : place->place_);
  node.place_ = place == nullptr ? std::prev(nodes_.end()) : std::prev(place->place_);
  ++num_changes_;
  node.id_ = num_ids_++;
  node.kind_ = spec.kind;
  node.name_ = std::move(spec.name);
  node.target_ = std::move(spec.target);
  node.arguments_ = std::move(spec.arguments);
  node.named_arguments_ = std::move(spec.named_arguments);
  node.type_ = std::move(spec.type);
  node.collectives_ = std::move(spec.collectives);
  node.symbolic_ = std::move(spec.symbolic);
  node.constant_ = std::move(spec.constant);
  set_order(node);
  by_name_.emplace(node.name_, &node);
  add_uses(node);
  return &node;
}

Result<void> Graph::rename(Node& node, std::string name) {
  if (find(name) != nullptr) {
    return failf(ErrorCode::kInvalidArgument, "graph: there is a node '{}' already", name);
  }
  ++num_changes_;
  auto entry = by_name_.extract(node.name_);
  node.name_ = std::move(name);
  entry.key() = node.name_;
  by_name_.insert(std::move(entry));
  return {};
}

/// Between its neighbours'. Where no number is left there, nodes around it get others: as many as it takes
/// until they are far enough apart again, which is seldom many.
void Graph::set_order(Node& node) {
  constexpr std::uint64_t kGap = std::uint64_t{1} << 32;
  constexpr std::uint64_t kEnough = std::uint64_t{1} << 16;
  const auto before = [&](std::list<Node>::iterator at) {
    return at == nodes_.begin() ? 0 : std::prev(at)->order_;
  };
  std::uint64_t low = before(node.place_);
  auto end = std::next(node.place_);
  std::uint64_t high = end == nodes_.end() ? low + 2 * kGap : end->order_;
  node.order_ = low + (high - low) / 2;
  if (node.order_ > low) return;
  auto begin = node.place_;
  std::uint64_t count = 1;
  for (std::uint64_t more = 1; (high - low) / (count + 1) < kEnough; more *= 2) {
    for (std::uint64_t i = 0; i < more && begin != nodes_.begin(); ++i, ++count) --begin;
    for (std::uint64_t i = 0; i < more && end != nodes_.end(); ++i, ++count) ++end;
    low = before(begin);
    high = end == nodes_.end() ? low + (count + 1) * kGap : end->order_;
  }
  const std::uint64_t step = (high - low) / (count + 1);
  for (auto each = begin; each != end; ++each) each->order_ = low += step;
}

void Graph::add_uses(Node& node) {
  for (const Argument& argument : node.arguments_) {
    const auto* const sizes = argument.list();
    has_symbols_ = has_symbols_ || (sizes != nullptr && node.kind_ == NodeKind::kCall && has_symbol(*sizes));
  }
  for (Node* const input : node.inputs()) input->users_.insert(&node);
}

void Graph::drop_uses(Node& node) {
  for (Node* const input : node.inputs()) input->users_.erase(&node);
}

void Graph::put_in_place(Node& user, Node& from, Node& to) {
  const auto for_each = [&](const auto& visit) {
    for (Argument& argument : user.arguments_) for_each_node(argument, visit);
    for (auto& [name, argument] : user.named_arguments_) for_each_node(argument, visit);
  };
  std::size_t left = kManyArguments;
  const bool has_few =
      is_within(user.arguments_, left) &&
      std::all_of(user.named_arguments_.begin(), user.named_arguments_.end(),
                  [&](const auto& one) { return is_within(std::span(&one.second, 1), left); });
  if (has_few) {
    for_each([&](Argument& argument) {
      if (argument.node() == &from) argument.value = &to;
    });
    return;
  }
  if (user.places_ == nullptr) {
    user.places_ = std::make_unique<std::unordered_map<const Node*, std::vector<Argument*>>>();
    for_each([&](Argument& argument) { (*user.places_)[argument.node()].push_back(&argument); });
  }
  const auto moved = user.places_->extract(&from);
  if (moved.empty()) return;
  auto& places = (*user.places_)[&to];
  for (Argument* const argument : moved.mapped()) {
    argument->value = &to;
    places.push_back(argument);
  }
}

void Graph::replace_uses(Node& from, Node& to) {
  ++num_changes_;
  const bool is_used_by_to = from.users_.erase(&to);
  for (Node* const user : std::exchange(from.users_, {})) {
    put_in_place(*user, from, to);
    to.users_.insert(user);
  }
  if (is_used_by_to) from.users_.insert(&to);
}

void Graph::set_arguments(Node& node, Argument::List arguments, NamedArguments named_arguments) {
  ++num_changes_;
  drop_uses(node);
  node.places_.reset();
  node.arguments_ = std::move(arguments);
  node.named_arguments_ = std::move(named_arguments);
  add_uses(node);
}

void Graph::add_collectives(Node& node, const std::set<std::string>& names) {
  node.collectives_.insert(names.begin(), names.end());
}

Node* Graph::before(Node& node) {
  return node.place_ == nodes_.begin() ? nullptr : &*std::prev(node.place_);
}

void Graph::move_before(Node& node, Node& place) {
  if (&node == &place) return;
  ++num_changes_;
  nodes_.splice(place.place_, nodes_, node.place_);
  set_order(node);
}

Result<void> Graph::erase(Node& node) {
  if (!node.users_.empty()) {
    return failf(ErrorCode::kInvalidArgument, "graph: '{}' has users, '{}' first", node.name_,
                 node.users_.front()->name());
  }
  ++num_changes_;
  drop_uses(node);
  by_name_.erase(node.name_);
  nodes_.erase(node.place_);
  return {};
}

}  // namespace tandem::graph
