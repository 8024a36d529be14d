#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/graph/graph.hpp>
#include <vector>

namespace tandem::graph::interpreter {

/// One tensor against what it should be.
struct Difference {
  double max_error = 0;  ///< largest |got - want|; infinite where one of the two is not finite
  double bound = 0;      ///< what max_error may be
  double largest = 0;    ///< largest |want|, or what the bound is relative to
  [[nodiscard]] bool ok() const { return max_error <= bound; }
};

/// A fused op of the rewritten program, as it ran on this rank.
struct FusedOpResult {
  std::string node;
  std::string target;
  std::string key;  ///< the library's name of the problem
  Algorithm algorithm = Algorithm::kAuto;
  std::string reason;  ///< for the algorithm
  std::string trace;   ///< what it enqueued
  /// Its results against the collective and the products one after the other, on the same operands; empty
  /// where nothing is compared.
  std::vector<Difference> differences;
};

/// An output of the rewritten program on this rank.
struct OutputResult {
  std::string node;
  std::string type;  ///< "bf16 [8, 64]"
  std::uint64_t checksum = 0;
  std::string fault;                     ///< "is not finite", "is 0.5 everywhere"; empty: none
  std::optional<Difference> difference;  ///< against the program as it was read
};

struct ExecutionReport {
  std::vector<FusedOpResult> fused;
  std::vector<OutputResult> outputs;
};

struct ExecuteOptions {
  std::uint64_t seed = 0;
  bool compare = false;  ///< also run the program as it was read, and each fused op by its definition
};

/// Whether a program can be executed: every op is known, every type is one of tandem's, dropout is 0.
/// Errors:  kUnsupported naming the op and the node.
[[nodiscard]] Result<void> check_executable(const graph::Graph& program);

/// Runs `rewritten`, which is `program` after passes, on the ranks of `group`, fused ops `pipelined`.
/// Collective. Inputs are made from the seed, the rank and the placeholder's name:
///   - uniform in [-0.5, 0.5), and positive where the program wants a factor of rows or columns;
///   - an f8 tensor is such a uniform one times a scale; scales are 128, 256 or 512, or the inverse of that
///     where a product takes them, and the same on every rank unless the program gathers them;
///   - output and log-sum-exp of an attention whose gradient the program computes follow from its q, k and v.
/// Source:  docs/design/graph.md, "Execution".
/// Errors:  kInvalidArgument for another number of ranks than the program's; those of check_executable(); of
///          a node, with its name: values that are not of the type that the graph says.
[[nodiscard]] Result<ExecutionReport> execute(const graph::Graph& program, const graph::Graph& rewritten,
                                              const ExecuteOptions& options, Group& group, Stream& stream);

}  // namespace tandem::graph::interpreter
