#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "unit/interpreter_programs.hpp"

namespace tandem::graph::interpreter {
namespace {

// tests/golden/op_values.txt: blocks of lines, an empty one between.
//   input NAME TYPE / VALUES
//   op TYPES = CALL / item IDX, if the call makes several / float32 VALUES / bfloat16 VALUES

struct Case {
  std::string types, call;
  std::size_t item = 0;
  std::map<std::string, std::vector<double>> want;  ///< by the name of $T
};

struct Values {
  std::map<std::string, testing::ProgramInput> inputs;  ///< floating ones as f32: of whatever type $T is
  std::vector<Case> cases;
};

std::vector<double> numbers_in(std::istream& words) {
  std::vector<double> numbers;
  for (double number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

/// "$T[2, 4]"
testing::ProgramInput input_of(const std::string& type) {
  const auto bracket = type.find('[');
  const std::string name = type.substr(0, bracket);
  testing::ProgramInput input{{},
                              {},
                              name == "int64"  ? DType::kI64
                              : name == "bool" ? DType::kBool
                                               : DType::kF32};
  std::istringstream sizes(type.substr(bracket + 1));
  for (std::int64_t size = 0; sizes >> size; sizes.ignore()) input.sizes.push_back(size);
  return input;
}

Values read_values() {
  std::ifstream file(TANDEM_OP_VALUES);
  EXPECT_TRUE(file) << TANDEM_OP_VALUES;
  Values values;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string kind;
    std::string name;
    words >> kind;
    if (kind == "input") {
      std::string type;
      words >> name;
      std::getline(words >> std::ws, type);
      testing::ProgramInput& input = values.inputs[name] = input_of(type);
      std::getline(file, line);
      std::istringstream numbers(line);
      input.values = numbers_in(numbers);
    } else if (kind == "op") {
      const auto equals = line.find(" = ");
      values.cases.push_back({line.substr(3, equals - 3), line.substr(equals + 3), 0, {}});
    } else if (kind == "item") {
      words >> values.cases.back().item;
    } else if (kind == "float32" || kind == "bfloat16") {
      values.cases.back().want[kind] = numbers_in(words);
    }
  }
  return values;
}

std::string with_type(std::string text, const std::string& type) {
  for (auto at = text.find("$T"); at != std::string::npos; at = text.find("$T")) text.replace(at, 2, type);
  return text;
}

/// The type of one item of "(float32[2], int64[2])".
std::string item_of(const std::string& types, std::size_t item) {
  std::size_t start = 1;
  for (std::size_t i = 0; i < item; ++i) start = types.find("], ", start) + 3;
  return types.substr(start, types.find(']', start) + 1 - start);
}

std::vector<double> run(const Values& values, const Case& one, const std::string& type) {
  auto inputs = values.inputs;
  for (auto input = inputs.begin(); input != inputs.end();) {
    const bool is_used = one.call.find("%" + input->first + ",") != std::string::npos ||
                         one.call.find("%" + input->first + ")") != std::string::npos ||
                         one.call.find("%" + input->first + "]") != std::string::npos;
    const bool is_saved_in_f32 = input->first == "lse";
    if (is_floating(input->second.dtype) && type == "bfloat16" && !is_saved_in_f32) {
      input->second.dtype = DType::kBF16;
    }
    input = is_used ? std::next(input) : inputs.erase(input);
  }
  const std::string types = with_type(one.types, type);
  const std::string call = with_type(one.call, type);
  if (types[0] != '(') return testing::run_program("%out: " + types + " = " + call + "\n", inputs);
  return testing::run_program("%all: " + types + " = " + call + "\n%out: " + item_of(types, one.item) +
                                  " = \"<built-in function getitem>\"(%all, " + std::to_string(one.item) +
                                  ")\n",
                              inputs);
}

TEST(OpValues, ArePyTorchs) {
  const Values values = read_values();
  EXPECT_GT(values.cases.size(), 200U);
  for (const Case& one : values.cases) {
    for (const std::string type : {"float32", "bfloat16"}) {
      const std::string name = one.call + " of " + type;
      const auto got = run(values, one, type);
      const auto& want = one.want.at(type);
      ASSERT_EQ(got.size(), want.size()) << name;
      // A bf16 is rounded once, which hides how the f32 before it was rounded.
      const std::string result = with_type(one.types, type);
      const bool is_f32 = (result[0] == '(' ? item_of(result, one.item) : result).starts_with("float32");
      const double bound = is_f32 ? 0x1p-20 : 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i], want[i], bound * std::max(1.0, std::abs(want[i]))) << name << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tandem::graph::interpreter
