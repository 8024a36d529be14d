#include "support/interpreter_ranks.hpp"

#include <gtest/gtest.h>

#include <tandem/backend/backend.hpp>
#include <tandem/bootstrap/thread_ranks.hpp>
#include <tandem/graph/text.hpp>

namespace tandem::testing {

graph::Graph parsed(std::string_view text) {
  auto graph = graph::parse_text(text);
  if (!graph) {
    ADD_FAILURE() << graph.error().to_string();
    return {};
  }
  return *std::move(graph);
}

Result<void> on_cpu_ranks(int size, const std::function<Result<void>(Group& group, Stream& stream)>& work) {
  return run_thread_ranks(size, {}, [&](Group& group) -> Result<void> {
    const auto device = open_device({}, group.config());
    if (!device) return tl::unexpected(device.error());
    const auto stream = (*device)->create_stream();
    if (!stream) return tl::unexpected(stream.error());
    return work(group, **stream);
  });
}

Result<std::vector<graph::interpreter::ExecutionReport>> execute_on_ranks(
    std::string_view program, std::string_view rewritten, const graph::interpreter::ExecuteOptions& options) {
  const graph::Graph original = parsed(program);
  const graph::Graph other = parsed(rewritten);
  std::vector<graph::interpreter::ExecutionReport> reports(
      static_cast<std::size_t>(original.header.world_size));
  const auto done =
      on_cpu_ranks(original.header.world_size, [&](Group& group, Stream& stream) -> Result<void> {
        auto report = graph::interpreter::execute(original, other, options, group, stream);
        if (!report) return tl::unexpected(report.error());
        reports[static_cast<std::size_t>(group.rank())] = *std::move(report);
        return {};
      });
  if (!done) return tl::unexpected(done.error());
  return reports;
}

}  // namespace tandem::testing
