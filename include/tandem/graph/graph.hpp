#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>
#include <utility>
#include <variant>
#include <vector>

namespace tandem::graph {

// A captured program: nodes in the order in which they run, each with the values that it takes and makes.
// Ops are known by PyTorch's names ("aten.mm.default"); those that tandem does not know are carried along.

class Node;

/// What PyTorch says of a tensor, without its data. `dtype` is PyTorch's word ("bfloat16"), so that types
/// that tandem does not have survive.
struct TensorType {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> stride;  ///< in elements
  std::string dtype;

  /// Shapes multiply without overflow: import_json() and parse_text() have seen to it.
  [[nodiscard]] std::int64_t numel() const;
  /// Whether the strides are contiguous_stride()'s.
  [[nodiscard]] bool is_contiguous() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

/// Of a tensor that lies without gaps, the last dim innermost.
[[nodiscard]] std::vector<std::int64_t> contiguous_stride(const std::vector<std::int64_t>& shape);

/// "bfloat16" -> kBF16; nothing for a type that tandem does not have.
[[nodiscard]] std::optional<DType> dtype_of(std::string_view name);

/// A value that the schema has no form for: a dtype, a device, a layout, an op.
struct Repr {
  std::string text;
  friend bool operator==(const Repr&, const Repr&) = default;
};

/// One argument of a node: a constant, another node, or a list of arguments.
struct Argument {
  using List = std::vector<Argument>;
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Repr, Node*, List> value;

  [[nodiscard]] Node* node() const;        ///< or null
  [[nodiscard]] const List* list() const;  ///< or null
  /// Of a list; anything else is one by itself. Many ops take a tensor or a list of such.
  [[nodiscard]] std::span<const Argument> entries() const;
  [[nodiscard]] std::optional<std::int64_t> integer() const;
  friend bool operator==(const Argument&, const Argument&) = default;
};

/// Arguments by name, in alphabetical order.
using NamedArguments = std::map<std::string, Argument, std::less<>>;

/// What a node makes: nothing (or what is no tensor), one tensor, or a list of such.
struct NodeType {
  enum class Kind : std::uint8_t { kNone, kTensor, kList };
  Kind kind = Kind::kNone;
  std::vector<std::optional<TensorType>> tensors;  ///< one for kTensor

  [[nodiscard]] const TensorType* tensor() const;  ///< of kTensor, or null
  friend bool operator==(const NodeType&, const NodeType&) = default;
};

enum class NodeKind : std::uint8_t { kPlaceholder, kCall, kOutput };

/// Belongs to its Graph, which keeps the users.
class Node {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] NodeKind kind() const { return kind_; }
  /// Of a call: the op.
  [[nodiscard]] const std::string& target() const { return target_; }
  [[nodiscard]] bool is_call_of(std::string_view target) const {
    return kind_ == NodeKind::kCall && target_ == target;
  }
  [[nodiscard]] const Argument::List& arguments() const { return arguments_; }
  [[nodiscard]] const NamedArguments& named_arguments() const { return named_arguments_; }
  [[nodiscard]] const NodeType& type() const { return type_; }
  /// Nodes that have this one among their arguments, each once, in no order.
  [[nodiscard]] const std::vector<Node*>& users() const { return users_; }
  /// Nodes among the arguments, each once, in order of appearance.
  [[nodiscard]] std::vector<Node*> inputs() const;
  /// Names that collectives had in the captured program whose work this node does, in alphabetical order.
  /// Passes keep them; files do not.
  [[nodiscard]] const std::set<std::string>& collectives() const { return collectives_; }

 private:
  friend class Graph;

  NodeKind kind_ = NodeKind::kCall;
  std::string name_;
  std::string target_;
  Argument::List arguments_;
  NamedArguments named_arguments_;
  NodeType type_;
  std::vector<Node*> users_;
  std::set<std::string> collectives_;
  std::list<Node>::iterator place_;
  std::uint64_t order_ = 0;  ///< ascending along the graph
};

/// A node as add() and insert_before() take it.
struct NodeSpec {
  NodeKind kind = NodeKind::kCall;
  std::string name;
  std::string target;
  Argument::List arguments;
  NamedArguments named_arguments;
  NodeType type;
  std::set<std::string> collectives = {};
};

/// What a file says beside its nodes.
struct GraphHeader {
  std::string source;
  int world_size = 1;
  std::string group;
  std::map<std::string, std::int64_t, std::less<>>
      pytorch_fuses;  ///< op -> how often PyTorch's pass makes it
};

/// Moving keeps the nodes where they are.
class Graph {
 public:
  GraphHeader header;

  Graph() = default;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  [[nodiscard]] const std::list<Node>& nodes() const { return nodes_; }
  [[nodiscard]] std::list<Node>& nodes() { return nodes_; }
  /// Null if there is none.
  [[nodiscard]] Node* find(std::string_view name);
  [[nodiscard]] const Node* find(std::string_view name) const;

  /// At the end. Errors: kInvalidArgument for a name that is taken.
  [[nodiscard]] Result<Node*> add(NodeSpec spec) { return insert_before(nullptr, std::move(spec)); }
  /// Before `place`; null: at the end.
  [[nodiscard]] Result<Node*> insert_before(Node* place, NodeSpec spec);
  /// Whether `a` runs before `b`.
  [[nodiscard]] static bool is_before(const Node& a, const Node& b) { return a.order_ < b.order_; }
  /// "name", or the first of "name_1", "name_2", ... that is free.
  [[nodiscard]] std::string free_name(std::string_view name);

  /// Errors: kInvalidArgument for a name that is taken.
  [[nodiscard]] Result<void> rename(Node& node, std::string name);
  /// Everybody who uses `from` uses `to` instead, but `to` itself.
  void replace_uses(Node& from, Node& to);
  /// Gives a node other arguments.
  void set_arguments(Node& node, Argument::List arguments, NamedArguments named_arguments);
  void add_collectives(Node& node, const std::set<std::string>& names);
  /// Its place in the order becomes the one just before `place`.
  void move_before(Node& node, Node& place);
  /// Errors: kInvalidArgument for a node that has users.
  [[nodiscard]] Result<void> erase(Node& node);

 private:
  void add_uses(Node& node);
  void drop_uses(Node& node);
  void set_order(Node& node);

  std::list<Node> nodes_;
  std::map<std::string, Node*, std::less<>> by_name_;
  std::map<std::string, int, std::less<>> next_of_name_;  ///< those below were taken when free_name() looked
};

}  // namespace tandem::graph
