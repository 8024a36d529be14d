#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>
#include <vector>

namespace tandem::cost {

/// What times were measured for: all that decides which algorithm is best, and that all ranks know alike.
struct Key {
  std::string op;      ///< "all_gather_matmul"
  std::string layout;  ///< "rows" or "columns": which of them travel; for a scatter also the type of partials
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

/// The times of one problem. Units: us, the median over rounds of the slowest rank.
struct Row {
  Key key;
  std::map<std::string, double, std::less<>> us = {};  ///< by the algorithm's name; "serial" is among them
  std::string command = {};                            ///< that measured it
  std::string commit = {};
};
/// Whether a table can hold the row. Errors: kParse, as its reader's: sizes and times out of all bounds, no
/// time of serial, text that is no UTF-8.
[[nodiscard]] Result<void> check(const Row& row);

/// What was measured on one kind of device. Which one it is, description() of the Device says.
struct Table {
  std::string device;
  std::vector<Row> rows;

  /// The row for this key, or for another m of its bucket; null if there is none.
  [[nodiscard]] const Row* find(const Key& key) const;
  /// Takes the place of a row that find() would find.
  void put(Row row);
};

/// m's of one bucket count as one: those up to 2^i or 3 * 2^i, from the next smaller such number on.
[[nodiscard]] std::int64_t bucket_of(std::int64_t m);

/// A table as JSON. Errors of the reader: kParse saying what is wrong, which may be that another version of
/// this library wrote it.
[[nodiscard]] std::string to_json(const Table& table);
[[nodiscard]] Result<Table> parse_table(std::string_view json);
/// What of a table goes from rank to rank: all but commands and commits, which are for people. The same
/// reader.
[[nodiscard]] std::string to_message(Table table);

}  // namespace tandem::cost
