#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
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

/// Runs the pass of this name over the text and compares; the graph is verified before and after.
inline void expect_rewritten(const Case& c, std::string_view name, const FuseOptions& options = {}) {
  auto graph = parse_text(kHead + c.before);
  ASSERT_TRUE(graph) << graph.error().to_string();
  const auto passes = all_passes();
  const auto pass =
      std::find_if(passes.begin(), passes.end(), [&](const Pass& one) { return one.name == name; });
  ASSERT_NE(pass, passes.end()) << name;
  const auto done = run_passes(*graph, {&*pass, 1}, {}, options);
  ASSERT_TRUE(done) << done.error().to_string();
  EXPECT_EQ(to_text(*graph), kHead + (c.after.empty() ? c.before : c.after));
}

}  // namespace tandem::graph::golden
