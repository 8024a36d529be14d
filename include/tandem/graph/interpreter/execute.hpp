#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/graph/graph.hpp>
#include <vector>

namespace tandem::graph::interpreter {

/// How far one tensor is from what it should be.
struct Difference {
  /// Largest |got - want|; infinite if one of the two is not finite and they differ. Of integers and truth
  /// values, the share of elements that differ.
  double max_error = 0;
  double bound = 0;    ///< the largest allowed max_error
  double largest = 0;  ///< largest finite |want|, or what the bound is relative to
  [[nodiscard]] bool ok() const { return max_error <= bound; }
};

/// A fused op of the rewritten graph, as it ran on this rank.
struct FusedOpResult {
  std::string node;
  std::string target;
  std::string key;  ///< the library's name of the problem
  Algorithm algorithm = Algorithm::kAuto;
  std::string reason;  ///< why this algorithm
  std::string trace;   ///< what it enqueued
  /// The differences from the collective and the products, one after the other, on the same operands. It is
  /// empty if nothing is compared.
  std::vector<Difference> differences;
};

/// An output of the rewritten graph on this rank.
struct OutputResult {
  std::string node;
  std::string type;  ///< "bf16 [8, 64]"
  std::uint64_t checksum = 0;
  std::string fault;  ///< "is not finite"; empty: none
  /// "is 0.5 everywhere", in both programs: that they agree says nothing. Empty: it is compared.
  std::string not_compared;
  std::optional<Difference> difference;  ///< from the program as it was read, if it is compared
};

/// What execute() found on this rank.
struct ExecutionReport {
  std::vector<FusedOpResult> fused;
  std::vector<OutputResult> outputs;
};

/// How execute() runs.
struct ExecuteOptions {
  std::uint64_t seed = 0;
  bool compare = false;  ///< also run the program as it was read, and each fused op by its definition
};

/// Checks whether a program can be executed: every op is known, tandem has every type, dropout is 0.
/// Errors:  kUnsupported with the op and the node.
[[nodiscard]] Result<void> check_executable(const graph::Graph& program);

/// The process groups of collectives other than the program's, with their numbers of ranks: 0 where the file
/// does not say it, and the program cannot be executed. In a run each rank stands for all ranks of such a
/// group: they have its values, and it is the first of them.
[[nodiscard]] std::map<std::string, std::int64_t> other_groups(const graph::Graph& program);

/// Runs `rewritten`, which is `program` after passes, on the ranks of `group`, with fused ops `pipelined`.
/// This is a collective call. Inputs come from the seed, the rank and the placeholder's name:
/// - They are uniform in [-0.5, 0.5), and positive where the program wants a factor, a divisor or a root.
/// - Weights of products are smaller the more terms the product adds up, so that values keep their size.
/// - Indices are uniform below the size of what they index, and half of the truth values are true.
/// - An f8 tensor is uniform times a scale. Scales are 128, 256 or 512, or their inverse where a product
///   takes them. They are the same on every rank, unless the program gathers them.
/// - For the gradient of an attention, its output and log-sum-exp are computed from q, k and v.
///
/// Errors:  kInvalidArgument for another number of ranks than the program's; as check_executable(); an error
///          with a node's name if its values do not have the type that the graph says.
/// Source:  docs/design/graph.md, "Execution".
[[nodiscard]] Result<ExecutionReport> execute(const graph::Graph& program, const graph::Graph& rewritten,
                                              const ExecuteOptions& options, Group& group, Stream& stream);

}  // namespace tandem::graph::interpreter
