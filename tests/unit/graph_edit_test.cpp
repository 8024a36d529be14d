#include <gtest/gtest.h>

#include <tandem/graph/text.hpp>
#include <tandem/graph/verify.hpp>

namespace tandem::graph {
namespace {

constexpr std::string_view kText = R"(graph world 2 group "0" source ""
%a: float32[4, 4] = placeholder
%b: float32[4, 4] = placeholder
%x: float32[4, 4] = aten.mm.default(%a, %a)
%y: float32[4, 4] = aten.mm.default(%x, %b)
%cat: float32[8, 4] = aten.cat.default([%x, %x])
%output: (float32[4, 4], float32[8, 4]) = output([%y, %cat])
)";

Graph make() {
  return parse_text(kText).value();
}

template <class Nodes>
std::vector<std::string> names(const Nodes& nodes) {
  std::vector<std::string> found;
  for (const Node* node : nodes) found.push_back(node->name());
  return found;
}

TEST(GraphEdit, UsersAreEachOnceWhateverTheyTake) {
  Graph graph = make();
  EXPECT_EQ(names(graph.find("a")->users()), (std::vector<std::string>{"x"}));
  EXPECT_EQ(names(graph.find("x")->users()), (std::vector<std::string>{"y", "cat"}));
  EXPECT_EQ(names(graph.find("cat")->inputs()), (std::vector<std::string>{"x"}));
}

TEST(GraphEdit, AReplacedNodeHasNoUsersLeftAndCanGo) {
  Graph graph = make();
  Node& x = *graph.find("x");
  const auto relu = graph.insert_before(graph.find("y"), {.kind = NodeKind::kCall,
                                                          .name = graph.free_name("x"),
                                                          .target = "aten.relu.default",
                                                          .arguments = {{&x}},
                                                          .named_arguments = {},
                                                          .type = x.type()});
  ASSERT_TRUE(relu) << relu.error().to_string();
  EXPECT_EQ((*relu)->name(), "x_1");
  graph.replace_uses(x, **relu);
  EXPECT_EQ(names(x.users()), (std::vector<std::string>{"x_1"}));
  EXPECT_TRUE(verify(graph));
  EXPECT_EQ(to_text(*graph.find("cat")), "%cat: float32[8, 4] = aten.cat.default([%x_1, %x_1])");

  const auto kept = graph.erase(x);
  ASSERT_FALSE(kept);
  EXPECT_EQ(kept.error().text(), "graph: 'x' has users, 'x_1' first");
  graph.set_arguments(**relu, {{graph.find("a")}}, {});
  EXPECT_TRUE(graph.erase(x));
  EXPECT_EQ(graph.find("x"), nullptr);
  EXPECT_TRUE(verify(graph)) << verify(graph).error().to_string();
}

TEST(GraphEdit, OneOfManyArgumentsIsReplacedEverywhereAndAgain) {
  Graph graph;
  Argument::List many;
  for (int i = 0; i < 60; ++i) {
    const auto made =
        graph.add({.kind = NodeKind::kPlaceholder, .name = "a" + std::to_string(i % 50), .target = ""});
    EXPECT_EQ(made.has_value(), i < 50);
    many.push_back({graph.find("a" + std::to_string(i % 50))});
  }
  Node& output = **graph.add({.kind = NodeKind::kOutput,
                              .name = "output",
                              .target = "output",
                              .arguments = {{std::move(many)}},
                              .named_arguments = {{"k", {graph.find("a3")}}}});
  Node& a3 = *graph.find("a3");
  Node& a7 = *graph.find("a7");
  graph.replace_uses(a3, a7);  // both stand there twice, and a3 by name too
  graph.replace_uses(a7, *graph.find("a20"));
  EXPECT_TRUE(a3.users().empty());
  EXPECT_TRUE(a7.users().empty());
  EXPECT_EQ(names(graph.find("a20")->users()), (std::vector<std::string>{"output"}));
  const auto entries = output.arguments()[0].entries();
  for (const std::size_t place : {3U, 7U, 20U, 53U, 57U})
    EXPECT_EQ(entries[place].node()->name(), "a20") << place;
  EXPECT_EQ(entries[54].node()->name(), "a4");
  EXPECT_EQ(output.named_arguments().at("k").node()->name(), "a20");
  EXPECT_EQ(output.inputs().size(), 48U);
  EXPECT_TRUE(verify(graph));

  graph.set_arguments(output, {{Argument::List(40, {&a3})}}, {});
  graph.replace_uses(a3, a7);
  EXPECT_EQ(output.arguments()[0].entries()[39].node()->name(), "a7");
  EXPECT_TRUE(verify(graph));
}

TEST(GraphEdit, OrderCountsWhenANodeMoves) {
  Graph graph = make();
  graph.move_before(*graph.find("cat"), *graph.find("y"));
  EXPECT_TRUE(verify(graph));
  graph.move_before(*graph.find("cat"), *graph.find("x"));
  const auto ok = verify(graph);
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().text(), "graph: node 2 'cat' (aten.cat.default): takes 'x', which is not before it");
}

TEST(GraphEdit, OrderStaysWhereverManyNodesAreInserted) {
  Graph graph;
  const auto add = [&](Node* place) {
    NodeSpec spec;
    spec.kind = NodeKind::kPlaceholder;
    spec.name = graph.free_name("x");
    return *graph.insert_before(place, std::move(spec));
  };
  Node* const middle = add(nullptr);
  Node* const last = add(nullptr);
  Node* front = add(middle);
  for (int i = 0; i < 3000; ++i) {
    front = add(front);  // ever farther in front
    add(middle);         // in one place
    add(last);
    if (i % 3 == 0) add(nullptr);
    if (i % 7 == 0) graph.move_before(*front, *last);
    if (i % 7 == 0) front = &graph.nodes().front();
  }
  const Node* before = nullptr;
  for (const Node& node : graph.nodes()) {
    if (before != nullptr) {
      ASSERT_TRUE(Graph::is_before(*before, node)) << before->name() << " and " << node.name();
    }
    before = &node;
  }
}

TEST(GraphEdit, ANameIsTakenOnce) {
  Graph graph = make();
  const auto added = graph.add({.kind = NodeKind::kCall,
                                .name = "a",
                                .target = "my.op",
                                .arguments = {},
                                .named_arguments = {},
                                .type = {}});
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().text(), "graph: there is a node 'a' already");
}

TEST(GraphEdit, AMovedGraphKeepsItsNodes) {
  Graph graph = make();
  const Node* const x = graph.find("x");
  const Graph moved = std::move(graph);
  EXPECT_EQ(moved.find("x"), x);
  EXPECT_TRUE(verify(moved));
}

}  // namespace
}  // namespace tandem::graph
