#include <gtest/gtest.h>

#include <string>
#include <tandem/graph/dot.hpp>
#include <tandem/graph/json.hpp>
#include <tandem/graph/text.hpp>
#include <tandem/graph/verify.hpp>

namespace tandem::graph {
namespace {

/// A graph with one of everything that the forms have.
constexpr std::string_view kText = R"(graph world 2 group "0" source "torch \"2.11\""
fuses "symm_mem.fused_all_gather_matmul.default" 1
%a: bfloat16[8, 64] = placeholder
%b: bfloat16[16, 64] = placeholder
%rng: null = placeholder "state"
%weight: float32[4] = get_attr "_frozen_param0"
%score: null = get_attr
%ag: bfloat16[16, 64] = _c10d_functional.all_gather_into_tensor.default(%a, 2, "0")
%wait: bfloat16[16, 64] = _c10d_functional.wait_tensor.default(%ag)
%t: bfloat16[64, 16]{1, 64} = aten.permute.default(%b, [1, 0])
%c: bfloat16[64, 16] = aten.clone.default(%t, memory_format=<torch.contiguous_format>)
%mm: bfloat16[16, 16] = aten.mm.default(%wait, %c)
%split: (bfloat16[8, 16], bfloat16[8, 16]) = aten.split.Tensor(%mm, 8)
%"get item": bfloat16[8, 16] = "<built-in function getitem>"(%split, 0)
%odd: complex64[1, 0, 3]{7, 3, 1} = my.op(null, true, -1.5, 2.0, 1e-12, [], [[%mm], "\n%"], <"a>b">, "a b"=-3)
%far: float32[1] = "get_attr"(infinity, -infinity, nan, "-Infinity", least=-infinity)
%output: (bfloat16[8, 16], null) = output([%"get item", null])
)";

TEST(GraphText, IsReadBackAsItWasWritten) {
  const auto graph = parse_text(kText);
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(to_text(*graph), kText);
  const auto ok = verify(*graph);
  EXPECT_TRUE(ok) << ok.error().to_string();
}

TEST(GraphJson, HoldsAllThatTheTextHolds) {
  const auto graph = parse_text(kText);
  ASSERT_TRUE(graph) << graph.error().to_string();
  const auto read = import_json(export_json(*graph));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(to_text(*read), kText);
}

// As Python's own module writes them, which is not JSON; text that looks the same stays.
TEST(GraphJson, ReadsPythonsWordsForNumbersThatAreNotFinite) {
  const auto graph = import_json(R"({"schema": 1, "source": "s", "world_size": 4, "group": "g", "nodes": [
      {"name": "x", "op": "call_function", "target": "f", "out": null,
       "args": [-Infinity, [Infinity], NaN, "NaN, \"-Infinity", {"float": "inf"}], "kwargs": {"k": NaN}},
      {"name": "output", "op": "output", "target": "output", "args": [[]], "kwargs": {}, "out": []}]})");
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(to_text(*graph->find("x")),
            R"(%x: null = f(-infinity, [infinity], nan, "NaN, \"-Infinity", infinity, k=nan))");
}

TEST(GraphJson, IgnoresKeysThatItDoesNotKnowAndMayLackTheCounts) {
  const auto graph = import_json(R"({"schema": 1, "source": "s", "world_size": 4, "group": "g", "more": [1],
      "nodes": [{"name": "output", "op": "output", "target": "output", "args": [[]], "kwargs": {},
                 "out": []}]})");
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_EQ(graph->header.world_size, 4);
  EXPECT_TRUE(graph->header.pytorch_fuses.empty());
  EXPECT_TRUE(verify(*graph));
}

TEST(GraphDot, NamesNodesAndColoursCollectives) {
  const auto graph = parse_text(kText);
  ASSERT_TRUE(graph) << graph.error().to_string();
  const std::string dot = to_dot(*graph);
  EXPECT_NE(
      dot.find(
          R"("ag" [label="ag\n_c10d_functional.all_gather_into_tensor.default", fillcolor=lightsalmon])"),
      std::string::npos)
      << dot;
  EXPECT_NE(dot.find(R"("wait" -> "mm" [label="bfloat16[16, 64]"])"), std::string::npos) << dot;
}

TEST(GraphTypes, KnowsTheTypesThatTandemHas) {
  EXPECT_EQ(dtype_of("float8_e4m3fn"), DType::kF8E4M3);
  EXPECT_EQ(dtype_of("complex64"), std::nullopt);
  EXPECT_EQ(contiguous_stride({2, 0, 3}), (std::vector<std::int64_t>{3, 3, 1}));
  EXPECT_EQ((TensorType{{2, 3}, {3, 1}, "float32"}.numel()), 6);
  EXPECT_FALSE((TensorType{{2, 3}, {1, 2}, "float32"}.is_contiguous()));
}

}  // namespace
}  // namespace tandem::graph
