#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>
#include <vector>

namespace tandem::cost {

/// What times were measured for: everything that decides which algorithm is best and that all ranks know.
struct Key {
  std::string op;      ///< "all_gather_matmul"
  std::string layout;  ///< "rows" or "columns" travel; for a scatter also the type of partials
  DType dtype = DType::kBF16;
  std::int64_t m = 0;  ///< m, n, k: the product that one rank computes
  std::int64_t n = 0;
  std::int64_t k = 0;
  int world = 1;
  std::string link;  ///< "shared memory", "shared memory + 200 us", "peer memory"
  friend bool operator==(const Key&, const Key&) = default;
};
/// "all_gather_matmul rows 4096x3584x8192 bf16 w4, shared memory".
[[nodiscard]] std::string to_string(const Key& key);

/// The times of one problem.
/// Units:   us; the median over rounds of the slowest rank.
struct Row {
  Key key;
  std::map<std::string, double, std::less<>> us = {};  ///< by the algorithm's name; one is "serial"
  std::string command = {};                            ///< the command that measured it
  std::string commit = {};
};
/// Checks whether a table can hold the row.
/// Errors:  kParse, as parse_table(): sizes or times out of bounds, no time of serial, text that is no UTF-8.
[[nodiscard]] Result<void> check(const Row& row);

/// The times that were measured on one kind of device. Device::description() names it.
struct Table {
  std::string device;
  std::vector<Row> rows;

  /// The row for this key, or for another m of the same bucket; null if there is none.
  [[nodiscard]] const Row* find(const Key& key) const;
  /// Adds a row. It replaces the row that find() finds for its key.
  void put(Row row);
};

/// The bucket of m. Values of m in one bucket share measured times. A bucket ends at 2^i or 3 * 2^i and
/// begins after the next smaller such number.
[[nodiscard]] std::int64_t bucket_of(std::int64_t m);

/// A table as JSON.
[[nodiscard]] std::string to_json(const Table& table);
/// Reads that JSON.
/// Errors:  kParse with what is wrong, also if another version of this library wrote it.
[[nodiscard]] Result<Table> parse_table(std::string_view json);
/// A table as ranks send it to each other: without commands and commits, which are for people. parse_table()
/// reads it.
[[nodiscard]] std::string to_message(Table table);

}  // namespace tandem::cost
