#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
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
group "0" ranks 2 "mesh_tp" "_c10d_functional.all_gather_into_tensor.default" 1
group "1" ranks 4 ""
%a: bfloat16[8, 64] = placeholder
%b: bfloat16[16, 64] = placeholder
%rng: null = placeholder "state"
%weight: float32[4] = get_attr "_frozen_param0"
%mask: float32[3] = get_attr "a.mask" value [1.0, -infinity, nan]
%large: float32[4] = get_attr value null
%module: null = get_attr "a.b" value <Scale()>
%score: null = get_attr value {
%a: float32[] = placeholder
%bias: complex64[1] = get_attr value [<(1+2j)>]
%output: (float32[]) = output([%a])
}
%length: {"s77" 12} = placeholder
%scale: {"zuf0" 0.5} = placeholder
%rows: bfloat16[2, {"s77" 12}, 16]{{"16*s77" 192}, 16, 1} = placeholder
%both: ({"u0" null}, {"s77 < 3" false}, null, bfloat16[{"u0" null}]{1}, bfloat16[2]{1}) = my.op(%length)
%ag: bfloat16[16, 64] = _c10d_functional.all_gather_into_tensor.default(%a, 2, "0")
%wait: bfloat16[16, 64] = _c10d_functional.wait_tensor.default(%ag)
%t: bfloat16[64, 16]{1, 64} = aten.permute.default(%b, [1, 0])
%c: bfloat16[64, 16] = aten.clone.default(%t, memory_format=<torch.contiguous_format>)
%mm: bfloat16[16, 16] = aten.mm.default(%wait, %c)
%split: (bfloat16[8, 16], bfloat16[8, 16]) = aten.split.Tensor(%mm, 8)
%"get item": bfloat16[8, 16] = "<built-in function getitem>"(%split, 0)
%odd: complex64[1, 0, 3]{7, 3, 1} = my.op(null, true, -1.5, 2.0, 1e-12, [], [[%mm], "\n%"], <"a>b">, "a b"=-3)
%size: null = "<built-in function mul>"(2, {"s77" 12})
%any: bfloat16[24, 2, 5] = aten.expand.default(%mm, [%size, {"s77" 2}, {"u0" null}])
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

// As tandem.torch.capture_graphs() writes it: every key and every form of a value.
constexpr std::string_view kJson = R"json({"schema": 1, "source": "torch 2.15", "world_size": 2, "group": "1",
  "pytorch_fuses": {"symm_mem.fused_all_gather_matmul.default": 1},
  "groups": {"0": {"ranks": 8, "description": "default_pg", "collectives": {}},
             "1": {"ranks": 2, "description": "mesh_tp",
                   "collectives": {"_c10d_functional.all_reduce.default": 2}}},
  "nodes": [
    {"name": "s", "op": "placeholder", "target": "s", "args": [], "kwargs": {}, "out": null,
     "symbolic": {"sym": "s77", "hint": 12}},
    {"name": "r", "op": "placeholder", "target": "r", "args": [], "kwargs": {}, "out": null,
     "symbolic": {"sym": "zuf0", "hint": {"float": "inf"}}},
    {"name": "x", "op": "placeholder", "target": "x", "args": [], "kwargs": {},
     "out": {"shape": [24, 16], "stride": [16, 1], "dtype": "bfloat16"},
     "symbolic": {"shape": [{"sym": "2*s77", "hint": 24}, 16], "stride": [16, 1], "dtype": "bfloat16"}},
    {"name": "u", "op": "call_function", "target": "my.op", "kwargs": {"k": {"sym": "u0", "hint": null}},
     "args": [{"node": "x"}, {"sym": "s77 > 3", "hint": true}, {"sym": "s77/2.0", "hint": 6.5}, null, 1.5,
              {"float": "nan"}, "text", {"repr": "torch.bfloat16"}, ["slice", null, {"node": "s"}, 1]],
     "out": [null, null, {"shape": [2], "stride": [1], "dtype": "float32"}],
     "symbolic": [{"shape": [{"sym": "u0", "hint": null}], "stride": [1], "dtype": "int64"},
                  {"sym": "u0", "hint": null}, {"shape": [2], "stride": [1], "dtype": "float32"}]},
    {"name": "m", "op": "get_attr", "target": "mask", "args": [], "kwargs": {},
     "out": {"shape": [4], "stride": [1], "dtype": "float32"},
     "constant": {"elements": [0.5, {"float": "-inf"}, {"float": "nan"}, 3]}},
    {"name": "w", "op": "get_attr", "target": "w", "args": [], "kwargs": {},
     "out": {"shape": [70000], "stride": [1], "dtype": "float32"}, "constant": {"elements": null}},
    {"name": "z", "op": "get_attr", "target": "z", "args": [], "kwargs": {}, "out": null,
     "constant": {"repr": "ScriptObject"}},
    {"name": "score", "op": "get_attr", "target": "score0", "args": [], "kwargs": {}, "out": null,
     "constant": {"nodes": [
       {"name": "x", "op": "placeholder", "target": "x", "args": [], "kwargs": {},
        "out": {"shape": [], "stride": [], "dtype": "float32"}},
       {"name": "c", "op": "get_attr", "target": "c", "args": [], "kwargs": {},
        "out": {"shape": [1], "stride": [1], "dtype": "complex64"},
        "constant": {"elements": [{"repr": "(1+2j)"}]}},
       {"name": "output", "op": "output", "target": "output", "args": [{"node": "x"}], "kwargs": {},
        "out": null}]}},
    {"name": "output", "op": "output", "target": "output", "args": [[{"node": "x"}]], "kwargs": {},
     "out": [{"shape": [24, 16], "stride": [16, 1], "dtype": "bfloat16"}],
     "symbolic": [{"shape": [{"sym": "2*s77", "hint": 24}, 16], "stride": [16, 1],
                   "dtype": "bfloat16"}]}]})json";

TEST(GraphJson, IsTheSameDocumentAfterBothForms) {
  const auto graph = import_json(kJson);
  ASSERT_TRUE(graph) << graph.error().to_string();
  EXPECT_TRUE(verify(*graph));
  const auto document = nlohmann::json::parse(kJson);
  EXPECT_EQ(nlohmann::json::parse(export_json(*graph)), document);
  const auto from_text = parse_text(to_text(*graph));
  ASSERT_TRUE(from_text) << from_text.error().to_string() << to_text(*graph);
  EXPECT_EQ(nlohmann::json::parse(export_json(*from_text)), document);
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
