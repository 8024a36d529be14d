#pragma once

#include <map>
#include <string>
#include <tandem/base/dtype.hpp>
#include <tandem/base/shape.hpp>
#include <vector>

namespace tandem::testing {

/// A placeholder of a program, rounded once to its type.
struct ProgramInput {
  std::vector<double> values;
  Dims sizes;
  DType dtype;
};

/// The value of %out in a program of one rank: placeholders by name, and `lines` behind them. A test whose
/// program fails, fails.
[[nodiscard]] std::vector<double> run_program(const std::string& lines,
                                              const std::map<std::string, ProgramInput>& inputs);

}  // namespace tandem::testing
