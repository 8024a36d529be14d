#include <gtest/gtest.h>

#include <string>
#include <tandem/graph/passes.hpp>
#include <tandem/graph/text.hpp>

namespace tandem::graph {
namespace {

constexpr std::string_view kText = R"(graph world 2 group "0" source ""
%a: bfloat16[4, 6] = placeholder
%g: bfloat16[8, 6] = _c10d_functional.all_gather_into_tensor.default(%a, 2, "0")
%wait_tensor: bfloat16[8, 6] = _c10d_functional.wait_tensor.default(%g)
%output: (bfloat16[8, 6]) = output([%wait_tensor])
)";

TEST(RunPasses, VerifiesBeforeAndAfterAndShowsEach) {
  auto graph = parse_text(kText);
  ASSERT_TRUE(graph) << graph.error().to_string();
  std::string seen;
  const auto see = [&](const Pass& pass, const Graph& now) {
    seen += std::string(pass.name) + " " + std::to_string(now.nodes().size()) + ";";
  };
  ASSERT_TRUE(run_passes(*graph, all_passes(), see));
  EXPECT_EQ(seen,
            "split-coalesced 4;merge-collectives 3;merge-equal-gathers 3;plain-products 3;fold-views 3;"
            "uneven-shards 3;move-blocks 3;move-factors 3;share-maxima 3;narrow-gathers 3;fuse-gathers 3;"
            "fuse-scatters 3;clean-up 3;restore-collectives 4;run-beside-products 4;"
            "join-coalesced 4;");
  EXPECT_EQ(to_text(*graph), kText) << "nothing to fuse";

  const Pass breaks{"breaks", [](Graph& broken, const FuseOptions&) -> Result<void> {
                      broken.move_before(broken.nodes().back(), broken.nodes().front());
                      return {};
                    }};
  const auto broken = run_passes(*graph, {&breaks, 1});
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code(), ErrorCode::kInternal);
  EXPECT_NE(broken.error().text().find("after pass breaks: graph: node 0 'output'"), std::string::npos)
      << broken.error().text();
  EXPECT_EQ(run_passes(*graph, all_passes()).error().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::graph
