#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/graph/graph.hpp>
#include <tandem/trace/enqueue_trace.hpp>
#include <vector>

#include "graph/interpreter/host_tensor.hpp"

namespace tandem::graph::interpreter {

/// What a node makes: one value, or as many as its type says; none where PyTorch has null.
using Values = std::vector<std::optional<HostTensor>>;
/// By node, as long as a later node uses it.
using ValueTable = std::map<const graph::Node*, Values>;

class Call;

/// What a fused op of the library did for a node.
struct FusedRun {
  const Values& values;
  const OpReport& report;
  const trace::EnqueueTrace& trace;
};

/// Where a program runs: its rank, and the stream on which the library's ops run.
struct Ranks {
  Group& group;
  Stream& stream;
  std::string_view group_name;  ///< the name that the graph's collectives have for `group`
  /// The numbers of ranks of other groups. This rank has the values of each, and is the first of them.
  std::map<std::string, std::int64_t> other_groups = {};
  /// If set, hears of each fused op when it is done.
  std::function<Result<void>(const Call& call, const FusedRun& run)> watch = {};
};

/// A node as its op sees it: arguments with the values that nodes among them have made. Sizes that the
/// program does not know are numbers here: the hints of symbols, and the values of nodes that make no tensor.
/// Errors of all accessors: kInvalidArgument with the argument's place, for another kind.
class Call {
 public:
  Call(const graph::Node& node, const ValueTable& values, const Ranks& ranks);
  /// The call that this one wraps: its first argument is that op, the rest that op's arguments.
  [[nodiscard]] Call without_first() const {
    Call inner = *this;
    inner.arguments_ = arguments_.subspan(1);
    return inner;
  }

  [[nodiscard]] const graph::Node& node() const { return node_; }
  [[nodiscard]] const Ranks& ranks() const { return ranks_; }
  [[nodiscard]] std::size_t size() const { return arguments_.size(); }
  /// Null for one that is left out, or null.
  [[nodiscard]] const graph::Argument* argument(std::size_t idx) const;
  [[nodiscard]] const graph::Argument* named(std::string_view name) const;
  /// The one in this place, or else the one of this name.
  [[nodiscard]] const graph::Argument* argument(std::size_t idx, std::string_view name) const;

  [[nodiscard]] Result<HostTensor> tensor(std::size_t idx) const;
  [[nodiscard]] Result<std::optional<HostTensor>> optional_tensor(std::size_t idx) const;
  /// A list of tensors, or one tensor as a list of one.
  [[nodiscard]] Result<std::vector<HostTensor>> tensors(std::size_t idx) const {
    return tensors_in(argument(idx));
  }
  [[nodiscard]] Result<std::vector<HostTensor>> tensors_in(const graph::Argument* argument) const;
  /// The same with nulls in it, `count` of them if the argument is null or left out.
  [[nodiscard]] Result<Values> optional_tensors(std::size_t idx, std::size_t count) const {
    return optional_tensors_in(argument(idx), count);
  }
  [[nodiscard]] Result<Values> optional_tensors_in(const graph::Argument* argument, std::size_t count) const;
  /// All that the node in this place makes.
  [[nodiscard]] Result<Values> items(std::size_t idx) const;
  [[nodiscard]] Result<std::int64_t> integer(std::size_t idx) const;
  [[nodiscard]] Result<std::int64_t> integer_or(std::size_t idx, std::int64_t otherwise) const;
  /// A dim of `tensor`, counted from the end if negative.
  [[nodiscard]] Result<int> dim(std::size_t idx, const HostTensor& tensor, int otherwise = 0) const {
    return dim(argument(idx), tensor, otherwise);
  }
  [[nodiscard]] Result<int> dim(const graph::Argument* argument, const HostTensor& tensor,
                                int otherwise = 0) const;
  /// Which dims of `tensor` a list, or one number, names; all, if it names none.
  [[nodiscard]] Result<std::vector<bool>> dims_or_all(std::size_t idx, const HostTensor& tensor) const;
  [[nodiscard]] Result<std::vector<std::int64_t>> integers(std::size_t idx) const;
  [[nodiscard]] Result<double> number(std::size_t idx) const;
  [[nodiscard]] Result<double> number_or(const graph::Argument* argument, double otherwise) const;
  [[nodiscard]] Result<bool> flag_or(const graph::Argument* argument, bool otherwise) const;
  [[nodiscard]] Result<std::string_view> text(std::size_t idx) const;
  /// A dtype of PyTorch, or the one given for an argument that is not there.
  [[nodiscard]] Result<DType> dtype_or(const graph::Argument* argument, DType otherwise) const;
  /// Refuses a named number other than `need`: `alpha`, of which captured programs have none but 1.
  [[nodiscard]] Result<void> named_is(std::string_view name, double need) const;

 private:
  [[nodiscard]] Result<std::optional<HostTensor>> value_of(const graph::Argument* argument) const;

  const graph::Node& node_;
  const ValueTable& values_;
  const Ranks& ranks_;
  /// Those of the node, if it has sizes that the program does not know.
  struct Arguments {
    graph::Argument::List list;
    graph::NamedArguments named;
  };
  std::shared_ptr<const Arguments> known_;
  std::span<const graph::Argument> arguments_;
  const graph::NamedArguments* named_arguments_;
};

/// Whether an argument is a number, and which.
[[nodiscard]] std::optional<double> number_of(const graph::Argument& argument);

/// Dims of a shape from a file. Errors: kUnsupported beyond kMaxDims.
[[nodiscard]] Result<Dims> to_dims(std::span<const std::int64_t> shape);

/// The value of an op that makes one.
[[nodiscard]] inline Values one(HostTensor value) {
  return {std::move(value)};
}

}  // namespace tandem::graph::interpreter
