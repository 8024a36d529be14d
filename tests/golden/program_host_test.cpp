#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <tandem/program/host/lower.hpp>

#include "support/host_fusions.hpp"

// Printed host programs, one a file in tests/golden/host_programs.

namespace tandem::program::host {
namespace {

using testing::stated_linear;
using testing::stated_matmul;
using testing::stated_scatter;
using testing::StatedFusion;

std::string golden(const std::string& name) {
  std::ifstream file(std::string(TANDEM_HOST_PROGRAMS) + "/" + name + ".txt");
  std::ostringstream whole;
  whole << file.rdbuf();
  return whole.str();
}

std::string lowered(const Fusion& fusion, const LowerOptions& options = {}) {
  const auto program = lower(fusion, options);
  return program ? program->to_string() : program.error().to_string();
}

/// The text with the numbers of values in the order in which they come: those of tensors, axes, symbols,
/// communications and stream objects each on their own. Everything else stays.
std::string renumbered(const std::string& text) {
  const std::regex number(R"((\bT)(\d+)(?=_)|([irb](?:S|Stream|deviceIdx\.x))(\d+)(?=\{)|(\bi)(\d+)\b)"
                          R"(|(Communication )(\d+)|(\bStream )(\d+))");
  std::map<std::string, std::map<std::string, int>> seen;
  std::string result;
  auto from = text.cbegin();
  for (std::sregex_iterator match(text.begin(), text.end(), number), end; match != end; ++match) {
    std::size_t group = 1;
    while (!(*match)[group].matched) group += 2;
    const std::string prefix = (*match)[group].str();
    auto& numbers = seen[group == 3 ? "axis" : prefix];
    const auto place = numbers.emplace((*match)[group + 1].str(), static_cast<int>(numbers.size())).first;
    result.append(from, (*match)[0].first);
    result += prefix + std::to_string(place->second);
    from = (*match)[0].second;
  }
  return result.append(from, text.cend());
}

// The file holds the program as it was first published, numbers included. It selects the shard of a twice and
// has the slice among its outputs.
TEST(PrintedHostProgram, IsThePublishedOneUpToTheNumbersOfValues) {
  const StatedFusion stated = stated_matmul(8);
  const std::string published = golden("gather_first_generation");
  ASSERT_NE(published.find("FOR i104 in iS0{i0}:\n"), std::string::npos);
  EXPECT_EQ(renumbered(lowered(stated.fusion)), renumbered(published));
}

TEST(PrintedHostProgram, RenumberingKeepsValuesApart) {
  EXPECT_EQ(renumbered("T7_g[iS9{i4}, rS3{i4}] T8_g[iS9{i5}] Communication 46 Stream 3"),
            "T0_g[iS0{i0}, rS1{i0}] T1_g[iS0{i1}] Communication 0 Stream 0");
}

struct Golden {
  const char* file;
  StatedFusion (*state)();
  LowerOptions options;
};
void PrintTo(const Golden& one, std::ostream* out) {
  *out << one.file;
}

StatedFusion streamed_matmul() {
  StatedFusion stated = stated_matmul(2);
  stated.out->axis(0).parallelize(ParallelType::kStream);
  return stated;
}
StatedFusion matmul_of_2() {
  return stated_matmul(2);
}
StatedFusion linear_of_2() {
  return stated_linear(2, DType::kBF16);
}
StatedFusion linear_without_bias() {
  return stated_linear(2, DType::kF16, false);
}
StatedFusion scatter_of_2() {
  return stated_scatter(2);
}

std::string file_of(const ::testing::TestParamInfo<Golden>& golden_info) {
  return golden_info.param.file;
}

class PrintedForm : public ::testing::TestWithParam<Golden> {};

TEST_P(PrintedForm, IsTheGoldenOne) {
  const StatedFusion stated = GetParam().state();
  EXPECT_EQ(lowered(stated.fusion, GetParam().options), golden(GetParam().file));
}

INSTANTIATE_TEST_SUITE_P(
    All, PrintedForm,
    ::testing::Values(
        Golden{"gather_stream_axis", streamed_matmul, {.single_select = true}},
        Golden{"gather_workers_wait", matmul_of_2, {.workers_wait = true, .single_select = true}},
        Golden{"gather_joining_loop",
               matmul_of_2,
               {.workers_wait = true, .joining_loop = true, .single_select = true}},
        Golden{"ring", matmul_of_2, {.workers_wait = true, .single_select = true, .point_to_point = true}},
        Golden{"ring_offset_by_rank",
               matmul_of_2,
               {.workers_wait = true, .single_select = true, .point_to_point = true, .offset_by_rank = true}},
        Golden{"scatter", scatter_of_2, {.workers_wait = true, .single_select = true}},
        Golden{"linear", linear_of_2, {.workers_wait = true, .single_select = true}},
        Golden{"linear_without_bias", linear_without_bias, {.workers_wait = true, .single_select = true}}),
    file_of);

TEST(Dump, IsWrittenByDevice0Alone) {
  const StatedFusion stated = stated_matmul(2);
  std::string dumped;
  const auto dump = [&](std::string_view text) { dumped += text; };
  ASSERT_TRUE(lower(stated.fusion, {.dump = dump, .device = 1}));
  EXPECT_EQ(dumped, "");
  const auto program = lower(stated.fusion, {.dump = dump, .device = 0});
  ASSERT_TRUE(program);
  EXPECT_EQ(dumped, program->to_string());
}

}  // namespace
}  // namespace tandem::program::host
