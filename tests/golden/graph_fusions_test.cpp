#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/json.hpp>
#include <tandem/graph/text.hpp>
#include <tandem/graph/verify.hpp>
#include <vector>

// One file a pattern or refusal, in tests/golden/fusions: a program, the rewritten one, and what became of
// each collective, with a line "=>" between them.

namespace tandem::graph {
namespace {

struct GoldenFusion {
  std::string name;
  std::string before;
  std::string after;
  std::string report;
};

void PrintTo(const GoldenFusion& golden, std::ostream* out) {
  *out << golden.name;
}

GoldenFusion read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream whole;
  whole << file.rdbuf();
  const std::string text = whole.str();
  constexpr std::string_view kMark = "\n=>\n";
  const auto first = text.find(kMark);
  const auto second = text.find(kMark, first + kMark.size());
  return {path.stem(), text.substr(0, first + 1),
          text.substr(first + kMark.size(), second + 1 - first - kMark.size()),
          text.substr(second + kMark.size())};
}

std::vector<GoldenFusion> all_goldens() {
  std::vector<GoldenFusion> goldens;
  for (const auto& entry : std::filesystem::directory_iterator(TANDEM_GOLDEN_FUSIONS)) {
    goldens.push_back(read(entry.path()));
  }
  std::sort(goldens.begin(), goldens.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return goldens;
}

std::string in_short(const FuseReport& report) {
  std::string text;
  for (const CollectiveReport& one : report.collectives) {
    text += one.node + " -> ";
    text += one.fused_into ? *one.fused_into : std::string(to_string(*one.reason));
    text += "\n";
  }
  return text;
}

FuseOptions options_of(const GoldenFusion& golden) {
  FuseOptions options;
  options.cost = golden.name.find("kNotProfitable") != std::string::npos;
  options.share_maxima = golden.name.find("shared_maximum") != std::string::npos;
  return options;
}

class Fusions : public ::testing::TestWithParam<GoldenFusion> {};

TEST_P(Fusions, AreThose) {
  const GoldenFusion& golden = GetParam();
  auto graph = parse_text(golden.before);
  ASSERT_TRUE(graph) << graph.error().to_string();
  const FuseOptions options = options_of(golden);
  const auto report = fuse(*graph, options);
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_EQ(to_text(*graph), golden.after);
  EXPECT_EQ(in_short(*report), golden.report);

  // What was written is read again, and there is nothing more to fuse in it.
  auto again = import_json(export_json(*graph));
  ASSERT_TRUE(again) << again.error().to_string();
  ASSERT_TRUE(verify(*again));
  const std::string written = to_text(*again);
  EXPECT_EQ(written, golden.after);
  ASSERT_TRUE(fuse(*again, options));
  EXPECT_EQ(to_text(*again), written);
}

INSTANTIATE_TEST_SUITE_P(Graphs, Fusions, ::testing::ValuesIn(all_goldens()),
                         [](const auto& of) { return of.param.name; });

TEST(Reasons, EachHasAProgramThatIsRefusedForIt) {
  std::set<std::string> shown;
  for (const GoldenFusion& golden : all_goldens()) {
    std::istringstream lines(golden.report);
    for (std::string line; std::getline(lines, line);) shown.insert(line.substr(line.find("-> ") + 3));
  }
  for (int i = 0; i < kNumReasons; ++i) {
    const std::string name(to_string(static_cast<Reason>(i)));
    EXPECT_TRUE(shown.contains(name)) << name;
    EXPECT_FALSE(describe(static_cast<Reason>(i)).empty()) << name;
  }
}

}  // namespace
}  // namespace tandem::graph
