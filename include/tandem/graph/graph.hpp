#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>
#include <tandem/graph/users.hpp>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace tandem::graph {

// A captured graph: nodes in the order in which they run, each with the values that it takes and makes. Ops
// have PyTorch's names ("aten.mm.default"). Ops that tandem does not know are kept as they are.

class Node;

/// What PyTorch says of a tensor, without its data. `dtype` is PyTorch's name ("bfloat16"), so types that
/// tandem does not have are kept.
struct TensorType {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> stride;  ///< in elements
  std::string dtype;

  /// The product of the shape. It does not overflow: import_json() and parse_text() check that.
  [[nodiscard]] std::int64_t numel() const;
  /// Whether the strides are those of contiguous_stride().
  [[nodiscard]] bool is_contiguous() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

/// The strides of a row-major tensor without gaps.
[[nodiscard]] std::vector<std::int64_t> contiguous_stride(const std::vector<std::int64_t>& shape);

/// The DType of PyTorch's name ("bfloat16": kBF16), or nothing for a type that tandem does not have.
[[nodiscard]] std::optional<DType> dtype_of(std::string_view name);

/// A value for which the schema has no form: a dtype, a device, a layout, an op.
struct Repr {
  std::string text;
  friend bool operator==(const Repr&, const Repr&) = default;
};

/// A size, or another number, that the program does not know: PyTorch's expression, and its hint, which is
/// its value in the call that was captured.
struct Symbol {
  std::string text;
  std::variant<std::monostate, bool, std::int64_t, double> hint;
  friend bool operator==(const Symbol&, const Symbol&) = default;
};

/// One argument of a node: a constant, another node, or a list of arguments.
struct Argument {
  using List = std::vector<Argument>;
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Repr, Symbol, Node*, List> value;

  [[nodiscard]] Node* node() const;        ///< null if it is no node
  [[nodiscard]] const List* list() const;  ///< null if it is no list
  /// The elements of a list; any other argument counts as one element. Many ops take a tensor or a list of
  /// tensors.
  [[nodiscard]] std::span<const Argument> entries() const;
  /// A whole number, or a symbol's hint that is one.
  [[nodiscard]] std::optional<std::int64_t> integer() const;
  /// Whether it is a size that the program does not know: a symbol, or a node that makes no tensor.
  [[nodiscard]] bool is_symbolic() const;
  friend bool operator==(const Argument&, const Argument&) = default;
};

/// Arguments by name, in alphabetical order.
using NamedArguments = std::map<std::string, Argument, std::less<>>;

/// What a node makes: no tensor, one tensor, or a list of tensors.
struct NodeType {
  enum class Kind : std::uint8_t { kNone, kTensor, kList };
  Kind kind = Kind::kNone;
  std::vector<std::optional<TensorType>> tensors;  ///< one for kTensor

  [[nodiscard]] const TensorType* tensor() const;  ///< null unless the kind is kTensor
  friend bool operator==(const NodeType&, const NodeType&) = default;
};

/// A tensor with symbols among its sizes and strides, which are whole numbers otherwise.
struct SymbolicTensor {
  Argument::List shape;
  Argument::List stride;
  std::string dtype;
  friend bool operator==(const SymbolicTensor&, const SymbolicTensor&) = default;
};

/// What a node makes that has symbols: no tensor, a number, one tensor, or a list of these.
struct SymbolicType {
  using Item = std::variant<std::monostate, Symbol, SymbolicTensor>;
  bool is_list = false;
  std::vector<Item> items;  ///< one unless it is a list

  /// The same with hints in the place of symbols: nothing for a number, and for a tensor with a size that has
  /// no hint.
  /// Errors:  kParse for a size that is no whole number, and for a tensor that no type can state.
  [[nodiscard]] Result<NodeType> hinted() const;
  [[nodiscard]] bool has_symbols() const;
  friend bool operator==(const SymbolicType&, const SymbolicType&) = default;
};

class Graph;

/// The value of an attribute, as far as the file has it: nothing, a tensor's elements in row-major order, the
/// part of the program that an op runs, or another object.
struct Constant {
  std::variant<std::monostate, Argument::List, std::shared_ptr<const Graph>, Repr> value;

  [[nodiscard]] const Argument::List* elements() const { return std::get_if<Argument::List>(&value); }
};

enum class NodeKind : std::uint8_t {
  kPlaceholder,
  kAttribute,  ///< a tensor of the program's own, or a part of it that an op runs: its target is its name
  kCall,
  kOutput
};

/// A node of a Graph, which owns it and keeps the lists of users.
class Node {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  /// A number that no other node of its graph has or had, from 0 on.
  [[nodiscard]] std::size_t id() const { return id_; }
  [[nodiscard]] NodeKind kind() const { return kind_; }
  /// Whether it is there before anything runs.
  [[nodiscard]] bool is_given() const {
    return kind_ == NodeKind::kPlaceholder || kind_ == NodeKind::kAttribute;
  }
  /// The op of a call.
  [[nodiscard]] const std::string& target() const { return target_; }
  [[nodiscard]] bool is_call_of(std::string_view target) const {
    return kind_ == NodeKind::kCall && target_ == target;
  }
  [[nodiscard]] const Argument::List& arguments() const { return arguments_; }
  [[nodiscard]] const NamedArguments& named_arguments() const { return named_arguments_; }
  [[nodiscard]] const NodeType& type() const { return type_; }
  /// What it makes, with symbols, or null where there are none. Its sizes in type() are hints. Nodes that
  /// passes make have none.
  [[nodiscard]] const SymbolicType* symbolic() const { return symbolic_.get(); }
  /// The value of an attribute, or null if the file does not say it.
  [[nodiscard]] const Constant* constant() const { return constant_.get(); }
  /// The nodes with this one among their arguments.
  [[nodiscard]] const Users& users() const { return users_; }
  /// The nodes among the arguments, each once, in order of appearance.
  [[nodiscard]] std::vector<Node*> inputs() const;
  /// The collectives whose work this node does, by their names in the captured graph, in alphabetical order.
  /// Passes keep them. Files do not.
  [[nodiscard]] const std::set<std::string>& collectives() const { return collectives_; }

 private:
  friend class Graph;

  NodeKind kind_ = NodeKind::kCall;
  std::string name_;
  std::string target_;
  Argument::List arguments_;
  NamedArguments named_arguments_;
  NodeType type_;
  std::shared_ptr<const SymbolicType> symbolic_;
  std::shared_ptr<const Constant> constant_;
  Users users_;
  /// Where each input stands among the arguments, if they are many and an input has been replaced.
  std::unique_ptr<std::unordered_map<const Node*, std::vector<Argument*>>> places_;
  std::set<std::string> collectives_;
  std::list<Node>::iterator place_;
  std::uint64_t order_ = 0;  ///< ascending along the graph
  std::size_t id_ = 0;
};

/// A node as Graph::add() and Graph::insert_before() take it.
struct NodeSpec {
  NodeKind kind = NodeKind::kCall;
  std::string name;
  std::string target;
  Argument::List arguments = {};
  NamedArguments named_arguments = {};
  NodeType type = {};
  std::set<std::string> collectives = {};
  std::shared_ptr<const SymbolicType> symbolic = {};
  std::shared_ptr<const Constant> constant = {};
};

/// Ranks among which collectives of the captured program run.
struct ProcessGroup {
  std::int64_t num_ranks = 1;
  std::string description;                                       ///< "mesh_tp"
  std::map<std::string, std::int64_t, std::less<>> collectives;  ///< op -> how often all graphs have it
};

/// What a file holds besides its nodes.
struct GraphHeader {
  std::string source;
  int world_size = 1;
  std::string group;
  std::map<std::string, std::int64_t, std::less<>>
      pytorch_fuses;                                             ///< op -> how many PyTorch's own pass makes
  std::map<std::string, ProcessGroup, std::less<>> groups = {};  ///< by name, as far as the file lists them
};

/// A captured graph. A move keeps the addresses of the nodes.
class Graph {
 public:
  GraphHeader header;

  Graph() = default;
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  [[nodiscard]] const std::list<Node>& nodes() const { return nodes_; }
  [[nodiscard]] std::list<Node>& nodes() { return nodes_; }
  /// The node of this name, or null.
  [[nodiscard]] Node* find(std::string_view name);
  [[nodiscard]] const Node* find(std::string_view name) const;

  /// Adds a node at the end.
  /// Errors:  kInvalidArgument for a name that is taken.
  [[nodiscard]] Result<Node*> add(NodeSpec spec) { return insert_before(nullptr, std::move(spec)); }
  /// Adds a node before `place`, or at the end if that is null.
  /// Errors:  kInvalidArgument for a name that is taken.
  [[nodiscard]] Result<Node*> insert_before(Node* place, NodeSpec spec);
  /// Whether `a` runs before `b`.
  [[nodiscard]] static bool is_before(const Node& a, const Node& b) { return a.order_ < b.order_; }
  /// Whether sizes of the program are symbolic. Then those of types are the symbols' hints.
  [[nodiscard]] bool has_symbols() const { return has_symbols_; }
  /// The one that runs just before `node`, or null.
  [[nodiscard]] Node* before(Node& node);
  /// A number that grows with each change.
  [[nodiscard]] std::uint64_t num_changes() const { return num_changes_; }
  /// Returns "name", or the first of "name_1", "name_2", ... that is free.
  [[nodiscard]] std::string free_name(std::string_view name);

  /// Gives a node another name.
  /// Errors:  kInvalidArgument for a name that is taken.
  [[nodiscard]] Result<void> rename(Node& node, std::string name);
  /// Makes all users of `from` use `to` instead, except `to` itself.
  void replace_uses(Node& from, Node& to);
  /// Replaces the arguments of a node.
  void set_arguments(Node& node, Argument::List arguments, NamedArguments named_arguments);
  void add_collectives(Node& node, const std::set<std::string>& names);
  /// Moves a node to the position just before `place`.
  void move_before(Node& node, Node& place);
  /// Removes a node.
  /// Errors:  kInvalidArgument for a node that has users.
  [[nodiscard]] Result<void> erase(Node& node);

 private:
  static void put_in_place(Node& user, Node& from, Node& to);
  void add_uses(Node& node);
  void drop_uses(Node& node);
  void set_order(Node& node);

  bool has_symbols_ = false;
  std::size_t num_ids_ = 0;
  std::uint64_t num_changes_ = 0;
  std::list<Node> nodes_;
  std::map<std::string, Node*, std::less<>> by_name_;
  std::map<std::string, int, std::less<>> next_of_name_;  ///< those below were taken when free_name() looked
};

}  // namespace tandem::graph
