#pragma once

#include <span>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <vector>

namespace tandem::cost {

// A machine file says what one GPU of a node takes: every rate that predictions count with, each with its
// source. A program that has no GPU predicts from it what one that has would.

/// One rate of a GPU.
struct MachineRate {
  std::string name;    ///< one of machine_rate_names()
  double value = 0;    ///< in the unit that the name ends in: us, or bytes or operations per us
  std::string source;  ///< where the value comes from: a data sheet, or the files of rows it was fitted to
};

/// A GPU as predictions know it.
struct Machine {
  std::string gpu;   ///< as its driver names it: "NVIDIA H200"
  std::string note;  ///< for people; may be empty
  std::vector<MachineRate> rates;

  /// The rate of this name; null for an unknown one.
  [[nodiscard]] const MachineRate* find(std::string_view name) const;
  [[nodiscard]] MachineRate* find(std::string_view name);
};

/// The names of all rates, in the order of a file: "multiprocessors", "tile_us", ...
[[nodiscard]] std::span<const std::string_view> machine_rate_names();

/// The machine that `auto` predicts with where nothing was measured: an H200. Each rate's source is the
/// library's own table.
[[nodiscard]] Machine reference_machine();

/// Reads the text of a machine file.
/// Errors:  kParse for what is no such file: no JSON, another format, a key that no file has, a rate that is
///          missing, unknown, without a source, or not from 1e-6 to 1e12.
[[nodiscard]] Result<Machine> parse_machine(std::string_view text);
/// The inverse. Rates are in the order of their names.
[[nodiscard]] std::string to_text(const Machine& machine);

/// The names of the machines that come with the library: "h100", "h200".
[[nodiscard]] std::vector<std::string> machine_names();
/// One of them.
/// Errors:  kInvalidArgument for an unknown name, with those that there are.
[[nodiscard]] Result<Machine> find_machine(std::string_view name);

}  // namespace tandem::cost
