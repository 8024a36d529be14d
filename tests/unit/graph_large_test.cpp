// Programs of 200,000 nodes, each of a form that is quadratic where a pass looks through all users, items or
// gathers for each of them: such a pass takes many minutes, and the test its time limit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <tandem/graph/fuse.hpp>
#include <tandem/graph/json.hpp>
#include <tandem/graph/text.hpp>
#include <vector>

namespace tandem::graph {
namespace {

constexpr int kNodes = 200'000;
constexpr const char* kShard = "bfloat16[256, 64]";
constexpr const char* kWhole = "bfloat16[2048, 64]";

/// A program of text form, node by node.
class Program {
 public:
  explicit Program(int world = 8) : text_(fmt::format("graph world {} group \"0\" source \"\"\n", world)) {}

  void add(std::string_view name, std::string_view type, std::string_view what) {
    fmt::format_to(std::back_inserter(text_), "%{}: {} = {}\n", name, type, what);
  }
  void give(std::string_view name, std::string_view type) { add(name, type, "placeholder"); }
  /// A gather of `shard`, and its wait under this name.
  void gather(const std::string& name, const std::string& shard) {
    add("g_" + name, kWhole,
        fmt::format("_c10d_functional.all_gather_into_tensor.default(%{}, 8, \"0\")", shard));
    add(name, kWhole, fmt::format("_c10d_functional.wait_tensor.default(%g_{})", name));
  }
  std::string with_outputs(const std::vector<std::string>& names) {
    text_ += "%output: null = output([";
    for (std::size_t i = 0; i < names.size(); ++i) text_ += (i == 0 ? "%" : ", %") + names[i];
    return std::move(text_) + "])\n";
  }

 private:
  std::string text_;
};

std::string numbered(const char* name, int i) {
  return fmt::format("{}_{}", name, i);
}

std::string chain() {
  Program program;
  program.give("x_0", kShard);
  for (int i = 1; i < kNodes; ++i)
    program.add(numbered("x", i), kShard, fmt::format("aten.relu.default(%x_{})", i - 1));
  return program.with_outputs({numbered("x", kNodes - 1)});
}

/// Views that keep rows, between a gather and its product.
std::string views() {
  Program program;
  program.give("x", kShard);
  program.give("w", "bfloat16[64, 64]");
  program.gather("v_0", "x");
  for (int i = 1; i < kNodes; ++i)
    program.add(numbered("v", i), kWhole, fmt::format("aten.reshape.default(%v_{}, [2048, 64])", i - 1));
  program.add("y", kWhole, fmt::format("aten.mm.default(%v_{}, %w)", kNodes - 1));
  return program.with_outputs({"y"});
}

std::string users_of_one_value() {
  Program program;
  program.give("x", kShard);
  std::vector<std::string> outputs;
  for (int i = 0; i < kNodes; ++i) {
    program.add(outputs.emplace_back(numbered("y", i)), kShard, "my.op(%x)");
  }
  return program.with_outputs(outputs);
}

/// One gather for many products, whose right operands come behind it.
std::string products_of_one_gather() {
  Program program;
  program.give("x", kShard);
  program.give("w", "bfloat16[32, 64]");
  program.gather("whole", "x");
  std::vector<std::string> outputs;
  for (int i = 0; i < kNodes / 2; ++i) {
    program.add(numbered("t", i), "bfloat16[64, 32]{1, 64}", "aten.permute.default(%w, [1, 0])");
    program.add(outputs.emplace_back(numbered("y", i)), "bfloat16[2048, 32]",
                fmt::format("aten.mm.default(%whole, %t_{})", i));
  }
  return program.with_outputs(outputs);
}

std::string gathers_of_one_tensor() {
  Program program;
  program.give("x", kShard);
  program.give("w", "bfloat16[64, 32]");
  std::vector<std::string> outputs;
  for (int i = 0; i < kNodes / 3; ++i) {
    program.gather(numbered("a", i), "x");
    program.add(outputs.emplace_back(numbered("y", i)), "bfloat16[2048, 32]",
                fmt::format("aten.mm.default(%a_{}, %w)", i));
  }
  return program.with_outputs(outputs);
}

std::string collectives() {
  Program program;
  program.give("y_0", kShard);
  for (int i = 0; i < kNodes / 4; ++i) {
    program.gather(numbered("a", i), numbered("y", i));
    program.add(numbered("s", i), kShard,
                fmt::format("_c10d_functional.reduce_scatter_tensor.default(%a_{}, \"sum\", 8, \"0\")", i));
    program.add(numbered("y", i + 1), kShard, fmt::format("_c10d_functional.wait_tensor.default(%s_{})", i));
  }
  return program.with_outputs({numbered("y", kNodes / 4)});
}

/// A scatter of the sum of many products.
std::string sum_of_products() {
  Program program;
  program.give("x", kWhole);
  program.give("w", "bfloat16[64, 64]");
  program.add("sum_0", kWhole, "aten.mm.default(%x, %w)");
  for (int i = 1; i < kNodes / 2; ++i) {
    program.add(numbered("m", i), kWhole, "aten.mm.default(%x, %w)");
    program.add(numbered("sum", i), kWhole, fmt::format("aten.add.Tensor(%sum_{}, %m_{})", i - 1, i));
  }
  program.add("s", kShard,
              fmt::format("_c10d_functional.reduce_scatter_tensor.default(%sum_{}, \"sum\", 8, \"0\")",
                          kNodes / 2 - 1));
  program.add("y", kShard, "_c10d_functional.wait_tensor.default(%s)");
  return program.with_outputs({"y"});
}

std::string types(const std::string& one, int count) {
  std::string text = "(" + one;
  for (int i = 1; i < count; ++i) text += ", " + one;
  return text + ")";
}

std::string one_coalesced_gather() {
  constexpr int kTensors = kNodes / 3;
  Program program;
  program.give("x", kShard);
  std::string inputs = "%x";
  for (int i = 1; i < kTensors; ++i) inputs += ", %x";
  program.add(
      "all", types(kWhole, kTensors),
      fmt::format("_c10d_functional.all_gather_into_tensor_coalesced.default([{}], 8, \"0\")", inputs));
  std::vector<std::string> outputs;
  for (int i = 0; i < kTensors; ++i) {
    program.add(numbered("i", i), kWhole, fmt::format("\"<built-in function getitem>\"(%all, {})", i));
    program.add(outputs.emplace_back(numbered("y", i)), kWhole,
                fmt::format("_c10d_functional.wait_tensor.default(%i_{})", i));
  }
  return program.with_outputs(outputs);
}

/// A tensor that is gathered from very many ranks, cut into shards and joined along another dim.
std::string shards_of_many_ranks() {
  constexpr int kRanks = kNodes / 2;
  Program program(kRanks);
  program.give("x", "bfloat16[4, 2]");
  program.give("w", fmt::format("bfloat16[{}, 8]", 2 * kRanks));
  const std::string whole = fmt::format("bfloat16[{}, 2]", 4 * kRanks);
  program.add("g", whole,
              fmt::format("_c10d_functional.all_gather_into_tensor.default(%x, {}, \"0\")", kRanks));
  program.add("a", whole, "_c10d_functional.wait_tensor.default(%g)");
  program.add("shards", types("bfloat16[4, 2]", kRanks), "aten.split.Tensor(%a, 4)");
  std::string parts;
  for (int i = 0; i < kRanks; ++i) {
    program.add(numbered("i", i), "bfloat16[4, 2]",
                fmt::format("\"<built-in function getitem>\"(%shards, {})", i));
    parts += fmt::format("{}%i_{}", i == 0 ? "" : ", ", i);
  }
  program.add("joined", fmt::format("bfloat16[4, {}]", 2 * kRanks),
              fmt::format("aten.cat.default([{}], 1)", parts));
  program.add("y", "bfloat16[4, 8]", "aten.mm.default(%joined, %w)");
  return program.with_outputs({"y"});
}

struct Form {
  const char* name;
  std::string (*program)();
};

void PrintTo(const Form& form, std::ostream* out) {
  *out << form.name;
}

class LargeProgram : public ::testing::TestWithParam<Form> {};

TEST_P(LargeProgram, IsReadFusedAndWrittenBeforeTheTimeLimit) {
  auto program = parse_text(GetParam().program());
  ASSERT_TRUE(program) << program.error().to_string();
  EXPECT_GT(program->nodes().size(), std::size_t{kNodes} / 2);
  auto read = import_json(export_json(*program));
  ASSERT_TRUE(read) << read.error().to_string();
  const auto report = fuse(*read, {.low_contention = true});
  ASSERT_TRUE(report) << report.error().to_string();
  EXPECT_FALSE(to_json(*report).empty());
  EXPECT_FALSE(to_table(*report).empty());
  EXPECT_TRUE(parse_text(to_text(*read)));
}

INSTANTIATE_TEST_SUITE_P(Forms, LargeProgram,
                         ::testing::Values(Form{"chain", chain}, Form{"views", views},
                                           Form{"users_of_one_value", users_of_one_value},
                                           Form{"products_of_one_gather", products_of_one_gather},
                                           Form{"gathers_of_one_tensor", gathers_of_one_tensor},
                                           Form{"collectives", collectives},
                                           Form{"sum_of_products", sum_of_products},
                                           Form{"one_coalesced_gather", one_coalesced_gather},
                                           Form{"shards_of_many_ranks", shards_of_many_ranks}),
                         [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace tandem::graph
