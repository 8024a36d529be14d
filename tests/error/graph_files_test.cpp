#include <gtest/gtest.h>

#include <string>
#include <tandem/graph/json.hpp>
#include <tandem/graph/text.hpp>
#include <tandem/graph/verify.hpp>

namespace tandem::graph {
namespace {

std::string with_nodes(const std::string& nodes) {
  return R"({"schema": 1, "source": "", "world_size": 2, "group": "0", "nodes": [)" + nodes + "]}";
}

std::string call(const std::string& arguments, const std::string& out = "null") {
  return R"({"name": "n", "op": "call_function", "target": "my.op", "kwargs": {}, "args": )" + arguments +
         R"(, "out": )" + out + "}";
}

std::string attribute(const std::string& constant) {
  return R"({"name": "n", "op": "get_attr", "target": "n", "args": [], "kwargs": {}, "out": null)"
         R"(, "constant": )" +
         constant + "}";
}

/// Parts of programs in each other.
std::string parts(int depth) {
  return attribute(R"({"nodes": [)" + (depth == 0 ? "" : parts(depth - 1)) + "]}");
}

struct Case {
  const char* name;
  std::string text;
  std::string error;
};

std::string name_of(const ::testing::TestParamInfo<Case>& of) {
  return of.param.name;
}

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class GraphJsonError : public ::testing::TestWithParam<Case> {};

TEST_P(GraphJsonError, NamesTheNodeAndWhatIsWrong) {
  const auto graph = import_json(GetParam().text);
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().code(), ErrorCode::kParse);
  EXPECT_NE(graph.error().text().find(GetParam().error), std::string::npos) << graph.error().text();
}

INSTANTIATE_TEST_SUITE_P(
    Files, GraphJsonError,
    ::testing::Values(
        Case{"empty", "", "graph: "},
        Case{"no_json", "{\"schema\": 1,", "graph: byte 13: no JSON, found the end of the text"},
        Case{"no_utf8", "{\"schema\": \"\xff\"}", "graph: byte 12: no JSON, found '\\xff\"}'"},
        Case{"nan_and_no_json", "[NaN", "each NaN counts as"},
        Case{"list", "[]", "graph: is array, need an object"},
        Case{"schema_2", R"({"schema": 2})", "graph: schema is 2, need 1"},
        Case{"no_ranks", R"({"schema": 1, "source": "", "group": "0", "world_size": 0, "nodes": []})",
             "graph: world_size is 0, need 1 to 1048576"},
        Case{"nodes_is_object", R"({"schema": 1, "source": "", "group": "0", "world_size": 1, "nodes": {}})",
             "graph: nodes is object, need array"},
        Case{"node_is_number", with_nodes("7"), "graph: node 0 is number, need an object"},
        Case{"no_name", with_nodes("{}"), "graph: node 0 name is missing"},
        Case{
            "unknown_kind",
            with_nodes(
                R"({"name": "n", "op": "call_module", "target": "", "args": [], "kwargs": {}, "out": null})"),
            "'n': op is 'call_module', need placeholder, get_attr, call_function or output"},
        Case{"later_node", with_nodes(call(R"([{"node": "n"}])")),
             "'n': an argument is 'n', which no earlier node is named"},
        Case{"odd_argument", with_nodes(call(R"([{"node": "a", "repr": "b"}])")),
             "'n': an argument is an object of 2 keys"},
        Case{"float_that_is_finite", with_nodes(call(R"([{"float": "1.5"}])")),
             "'n': float is \"1.5\", need \"inf\", \"-inf\" or \"nan\""},
        Case{"huge_number", with_nodes(call("[18446744073709551615]")),
             "'n': an argument is 18446744073709551615, need a whole number of 64 bits"},
        Case{"huge_shape",
             with_nodes(call("[]",
                             R"({"shape": [4294967296, 4294967296], "stride": [1, 1], "dtype": "bool"})")),
             "'n': more than 2^62 elements in [4294967296, 4294967296]"},
        Case{"negative_size", with_nodes(call("[]", R"({"shape": [-1], "stride": [1], "dtype": "bool"})")),
             "'n': size -1 in dim 0"},
        Case{"fewer_strides", with_nodes(call("[]", R"({"shape": [2, 2], "stride": [1], "dtype": "bool"})")),
             "'n': 2 sizes and 1 strides"},
        Case{"fractional_size", with_nodes(call("[]", R"({"shape": [1.5], "stride": [1], "dtype": "bool"})")),
             "'n': shape is 1.5, need a whole number of 64 bits"},
        Case{"out_without_hints",
             with_nodes(R"({"name": "n", "op": "placeholder", "target": "n", "args": [], "kwargs": {},
               "out": {"shape": [3], "stride": [1], "dtype": "bool"},
               "symbolic": {"shape": [{"sym": "s0", "hint": 2}], "stride": [1], "dtype": "bool"}})"),
             "'n': out is not symbolic with its hints"},
        Case{"fractional_hint",
             with_nodes(
                 R"({"name": "n", "op": "placeholder", "target": "n", "args": [], "kwargs": {},
               "out": null,
               "symbolic": {"shape": [{"sym": "s0", "hint": 0.5}], "stride": [1], "dtype": "bool"}})"),
             "'n': a size is no whole number"},
        Case{"node_in_a_constant", with_nodes(attribute(R"({"elements": ["text"]})")),
             "'n': an element is neither a number, a truth value nor a repr"},
        Case{"unknown_constant", with_nodes(attribute(R"({"bytes": ""})")),
             "'n': constant is not an object of"},
        Case{"deep_parts", with_nodes(parts(9)), "'n': parts nested deeper than 8"},
        Case{"group_without_ranks",
             R"({"schema": 1, "source": "", "group": "0", "world_size": 1, "nodes": [],
                 "groups": {"0": {"ranks": 0, "description": ""}}})",
             "group '0': ranks is 0, need 1 to 1048576"},
        Case{"deep_arguments", with_nodes(call(std::string(40, '[') + std::string(40, ']'))),
             "'n': lists nested deeper than 32"},
        Case{"deep_file", std::string(1'000'000, '['), "nested deeper than 32 lists"},
        Case{"twice", with_nodes(call("[]") + "," + call("[]")),
             "node 1 'n': graph: there is a node 'n' already"}),
    name_of);

class GraphTextError : public ::testing::TestWithParam<Case> {};

TEST_P(GraphTextError, NamesTheLineAndWhatIsWrong) {
  const auto graph =
      parse_text("graph world 2 group \"0\" source \"\"\n%a: float32[4] = placeholder\n" + GetParam().text);
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().code(), ErrorCode::kParse);
  EXPECT_EQ(graph.error().text(), "graph text: " + GetParam().error);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, GraphTextError,
    ::testing::Values(Case{"no_type", "%b = f()", "line 3: expected :, found '='"},
                      Case{"open_list", "%b: null = f([1", "line 3: expected ], found the end"},
                      Case{"unknown_node", "%b: null = f(%c)", "line 3: no earlier node is named 'c'"},
                      Case{"twice", "%a: null = f()", "line 3: graph: there is a node 'a' already"},
                      Case{"positional_last", "%b: null = f(x=1,\n2)",
                           "line 4: expected an argument with a name, found '2'"},
                      Case{"number", "%b: null = f(99999999999999999999)",
                           "line 3: expected a whole number of 64 bits, found '9'"},
                      Case{"infinite", "%b: null = f(inf)",
                           "line 3: expected a whole number of 64 bits, found 'i'"},
                      Case{"too_large", "%b: null = f(1e999)", "line 3: expected a value, found '1'"},
                      Case{"no_end", "%b: null = f(\"x", "line 3: a quote has no end"},
                      Case{"big", "%b: int8[4611686018427387904, 2] = f()",
                           "line 3: more than 2^62 elements in [4611686018427387904, 2]"}),
    name_of);

TEST(GraphVerifyErrors, ANodeThatTakesALaterOneIsNamed) {
  auto graph = parse_text(
      "graph world 2 group \"0\" source \"\"\n%a: float32[4] = placeholder\n"
      "%b: float32[4] = aten.relu.default(%a)\n%c: float32[4] = aten.relu.default(%b)\n"
      "%output: null = output([%c])\n");
  ASSERT_TRUE(graph) << graph.error().to_string();
  ASSERT_TRUE(verify(*graph));
  graph->move_before(*graph->find("c"), *graph->find("b"));
  const auto ok = verify(*graph);
  ASSERT_FALSE(ok);
  EXPECT_NE(ok.error().text().find("'c' (aten.relu.default): takes 'b', which is not before it"),
            std::string::npos)
      << ok.error().text();
}

class GraphVerifyError : public ::testing::TestWithParam<Case> {};

TEST_P(GraphVerifyError, NamesTheNodeTheOpAndTheValues) {
  const auto graph = parse_text(
      "graph world 2 group \"0\" source \"\"\n%a: float32[4, 8] = placeholder\n%b: float32[8, 2] = "
      "placeholder\n" +
      GetParam().text + "\n%output: null = output()\n");
  ASSERT_TRUE(graph) << graph.error().to_string();
  const auto ok = verify(*graph);
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(ok.error().text().find(GetParam().error), std::string::npos) << ok.error().text();
}

INSTANTIATE_TEST_SUITE_P(
    Nodes, GraphVerifyError,
    ::testing::Values(
        Case{"product", "%x: float32[4, 2] = aten.mm.default(%b, %a)",
             "graph: node 2 'x' (aten.mm.default): multiplies [8, 2] by [4, 8]"},
        Case{"product_shape", "%x: float32[2, 4] = aten.mm.default(%a, %b)", "makes [2, 4], need [4, 2]"},
        Case{"no_argument", "%x: float32[4, 2] = aten.mm.default(%a)",
             "argument 1 is missing, need a tensor"},
        Case{"kind", "%x: float32[4, 2] = aten.mm.default(%a, 8)", "argument 1 is 8, need a tensor"},
        Case{"too_many", "%x: float32[4, 2] = aten.mm.default(%a, %b, %b)",
             "has 3 arguments, need at most 2"},
        Case{"name", "%x: float32[4, 2] = aten.mm.default(%a, %b, alpha=2)",
             "has an argument 'alpha', which aten.mm.default does not take"},
        Case{"gather", "%x: float32[4, 8] = _c10d_functional.all_gather_into_tensor.default(%a, 2, \"0\")",
             "makes [4, 8], need [8, 8]"},
        Case{"no_tensor", "%x: null = aten.view.dtype(%a, <torch.uint8>)", "makes no tensor, need one"},
        Case{"gather_of_too_much",
             "%h: int8[4611686018427387904] = my.op()\n"
             "%x: int8[4] = _c10d_functional.all_gather_into_tensor.default(%h, 2, \"0\")",
             "gathers [4611686018427387904] from 2 ranks: more than 2^62"},
        Case{"cat_of_too_much",
             "%h: int8[4611686018427387904] = my.op()\n%x: int8[4] = aten.cat.default([%h, %h])",
             "joins more than 2^62 along dim 0"},
        Case{"split_by_too_much", "%x: null = aten.split.Tensor(%a, 9223372036854775807)",
             "makes 0 tensors, need 1"},
        Case{"gather_ranks",
             "%x: float32[12, 8] = _c10d_functional.all_gather_into_tensor.default(%a, 3, \"0\")",
             "is of 3 ranks, need 1 to 2, the graph's"},
        Case{"scatter",
             "%x: float32[2, 8] = _c10d_functional.reduce_scatter_tensor.default(%a, \"sum\", 0, \"0\")",
             "is of 0 ranks"},
        Case{"split", "%x: (float32[4, 8]) = aten.split.Tensor(%a, 2)", "makes 1 tensors, need 2"},
        Case{"item",
             "%x: (float32[2, 8], float32[2, 8]) = aten.split.Tensor(%a, 2)\n"
             "%y: float32[2, 8] = \"<built-in function getitem>\"(%x, 2)",
             "takes item 2 of 2"},
        Case{"reshape", "%x: float32[3, 8] = aten.reshape.default(%a, [3, 8])", "makes [3, 8] of [4, 8]"},
        Case{"permute", "%x: float32[4, 4] = aten.permute.default(%a, [0, 0])",
             "order [0, 0] has dim 0 twice"},
        Case{"two_outputs", "%x: null = output()", "need one output, as the last node"}),
    name_of);

}  // namespace
}  // namespace tandem::graph
