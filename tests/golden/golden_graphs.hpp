#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tandem/graph/passes.hpp>
#include <tandem/graph/text.hpp>

// Graph text in, graph text out: the harness of a pass's golden tests.

namespace tandem::graph::golden {

struct Case {
  const char* name;
  std::string before;
  std::string after;  ///< empty: the graph stays as it is
};

inline void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

inline std::string name_of(const ::testing::TestParamInfo<Case>& of) {
  return of.param.name;
}

inline constexpr const char* kHead = "graph world 2 group \"0\" source \"\"\n";

/// Runs one pass over the text and compares; the graph is verified before and after.
inline void expect_rewritten(const Case& c, Result<void> (*run)(Graph&)) {
  auto graph = parse_text(kHead + c.before);
  ASSERT_TRUE(graph) << graph.error().to_string();
  const Pass pass{"the pass", run};
  const auto done = run_passes(*graph, {&pass, 1});
  ASSERT_TRUE(done) << done.error().to_string();
  EXPECT_EQ(to_text(*graph), kHead + (c.after.empty() ? c.before : c.after));
}

}  // namespace tandem::graph::golden
