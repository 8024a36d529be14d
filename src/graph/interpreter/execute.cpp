#include <tandem/graph/interpreter/execute.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/fused_nodes.hpp"
#include "graph/interpreter/inputs.hpp"
#include "graph/interpreter/memory_errors.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/interpreter/outputs.hpp"
#include "graph/interpreter/sizes.hpp"
#include "graph/ir/groups.hpp"

namespace tandem::graph::interpreter {
namespace {

Result<void> check_types(const graph::Node& node) {
  for (const auto& type : node.type().tensors) {
    if (!type) continue;
    if (!graph::dtype_of(type->dtype)) {
      return failf(ErrorCode::kUnsupported, "node '{}': tandem has no type {}", node.name(), type->dtype);
    }
    if (type->shape.size() > kMaxDims) {
      return failf(ErrorCode::kUnsupported, "node '{}': {} dims, at most {} can be executed", node.name(),
                   type->shape.size(), kMaxDims);
    }
  }
  return {};
}

Result<void> check_node(const graph::Node& node) {
  TANDEM_TRY(check_types(node));
  if (node.kind() != graph::NodeKind::kCall) return {};
  if (hint_of(node)) return {};
  const Op* const op = find_op(node.target());
  if (op == nullptr) {
    return failf(ErrorCode::kUnsupported, "node '{}': {} cannot be executed", node.name(), node.target());
  }
  if (op->check == nullptr) return {};
  const auto checked = op->check(node.arguments());
  if (checked) return {};
  return failf(checked.error().code(), "node '{}': {}", node.name(), checked.error().text());
}

/// Results of a fused op against those of its definition: of the same bits where they are only moved, and a
/// step of the type at the largest value apart where they are computed.
std::vector<Difference> compare_fused(const Values& got, const Values& want) {
  std::vector<Difference> differences;
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (want[i]) differences.push_back(compare(*got[i], *want[i], step_of(want[i]->dtype())));
  }
  return differences;
}

}  // namespace

std::map<std::string, std::int64_t> other_groups(const graph::Graph& program) {
  return graph::other_groups_of(program);
}

Result<void> check_executable(const graph::Graph& program) {
  for (const graph::Node& node : program.nodes()) TANDEM_TRY(check_node(node));
  return {};
}

Result<ExecutionReport> execute(const graph::Graph& program, const graph::Graph& rewritten,
                                const ExecuteOptions& options, Group& group, Stream& stream) {
  if (group.size() != program.header.world_size) {
    return failf(ErrorCode::kInvalidArgument, "the program is of {} ranks, got {}", program.header.world_size,
                 group.size());
  }
  for (const graph::Graph* each : {&program, &rewritten}) TANDEM_TRY(check_executable(*each));
  Ranks ranks{group, stream, program.header.group, graph::other_groups_of(program)};
  TANDEM_ASSIGN(const Inputs inputs,
                with_memory_errors([&] { return make_inputs(program, options.seed, ranks); }));
  ValueTable want;
  if (options.compare) {
    TANDEM_ASSIGN(want, run_graph(program, inputs, wanted_of(program), ranks));
  }

  ExecutionReport report;
  ranks.watch = [&](const Call& call, const FusedRun& run) -> Result<void> {
    FusedOpResult result{.node = call.node().name(),
                         .target = call.node().target(),
                         .key = std::string(run.report.key),
                         .algorithm = run.report.algorithm,
                         .reason = std::string(run.report.reason),
                         .trace = run.trace.to_string(),
                         .differences = {}};
    if (options.compare) {
      TANDEM_ASSIGN(const Values defined, define_fused(call));
      result.differences = compare_fused(run.values, defined);
    }
    report.fused.push_back(std::move(result));
    return {};
  };
  TANDEM_ASSIGN(const ValueTable got, run_graph(rewritten, inputs, wanted_of(rewritten), ranks));
  report.outputs = describe_outputs(rewritten, got);
  if (options.compare) compare_outputs(program, want, rewritten, got, report.outputs);
  return report;
}

}  // namespace tandem::graph::interpreter
