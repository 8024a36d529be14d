#include "unit/interpreter_programs.hpp"

#include <gtest/gtest.h>

#include "graph/interpreter/interpreter.hpp"
#include "support/interpreter_ranks.hpp"

namespace tandem::testing {
namespace {

using graph::interpreter::HostTensor;

std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[] = {"float32",     "float16", "bfloat16", "float8_e4m3fn",
                                         "float8_e5m2", "uint8",   "uint32",   "int8",
                                         "int32",       "int64",   "float64",  "bool"};
  static_assert(std::size(kNames) == kNumDTypes);
  return kNames[static_cast<int>(dtype)];
}

}  // namespace

std::vector<double> run_program(const std::string& lines, const std::map<std::string, ProgramInput>& inputs) {
  std::string text = "graph world 1 group \"0\" source \"\"\n";
  graph::interpreter::Inputs values;
  for (const auto& [name, input] : inputs) {
    values.emplace(name, HostTensor::from(std::span<const double>(input.values), input.sizes, input.dtype));
    text +=
        "%" + name + ": " + std::string(name_of(input.dtype)) + to_string(input.sizes) + " = placeholder\n";
  }
  text += lines + "%output: null = output([%out])\n";
  const graph::Graph program = parsed(text);
  std::vector<double> result;
  const auto done = on_cpu_ranks(1, [&](Group& group, Stream& stream) -> Result<void> {
    const graph::Node* const out = program.find("out");
    const auto table = graph::interpreter::run_graph(program, values, {out}, {group, stream, "0"});
    if (!table) return tl::unexpected(table.error());
    result = graph::interpreter::elements<double>(table->at(out).front()->view());
    return {};
  });
  EXPECT_TRUE(done) << done.error().to_string();
  return result;
}

}  // namespace tandem::testing
