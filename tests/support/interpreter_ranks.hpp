#pragma once

#include <functional>
#include <string_view>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/graph/graph.hpp>
#include <tandem/graph/interpreter/execute.hpp>
#include <vector>

namespace tandem::testing {

/// A graph from its text form; a test that writes a wrong one ends.
[[nodiscard]] graph::Graph parsed(std::string_view text);

/// Runs `work` on ranks that are threads, each with a stream of the CPU.
[[nodiscard]] Result<void> on_cpu_ranks(
    int size, const std::function<Result<void>(Group& group, Stream& stream)>& work);

/// graph::interpreter::execute() on as many ranks as the program has: the reports in rank order.
[[nodiscard]] Result<std::vector<graph::interpreter::ExecutionReport>> execute_on_ranks(
    std::string_view program, std::string_view rewritten, const graph::interpreter::ExecuteOptions& options);

}  // namespace tandem::testing
