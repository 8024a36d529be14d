#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tandem/tune/table.hpp>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::tune {
namespace {

constexpr int kFormat = 1;

using nlohmann::json;

bool is_same_problem(const Key& x, const Key& y) {
  // Numbers first: tables are searched row by row.
  return x.n == y.n && x.k == y.k && x.world == y.world && x.dtype == y.dtype &&
         bucket_of(x.m) == bucket_of(y.m) && x.op == y.op && x.layout == y.layout && x.link == y.link;
}

json to_object(const Row& row) {
  return {{"op", row.key.op},       {"layout", row.key.layout}, {"dtype", to_string(row.key.dtype)},
          {"m", row.key.m},         {"n", row.key.n},           {"k", row.key.k},
          {"world", row.key.world}, {"link", row.key.link},     {"us", row.us},
          {"command", row.command}, {"commit", row.commit}};
}

Result<void> check(const Row& row) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const auto is_size = [](std::int64_t size) { return size >= 0 && size <= kMost; };
  if (!is_size(row.key.m) || !is_size(row.key.n) || !is_size(row.key.k) || row.key.world < 1)
    return failf(ErrorCode::kParse, "a row for {}", to_string(row.key));
  if (!row.us.contains("serial"))
    return failf(ErrorCode::kParse, "no time of serial for {}", to_string(row.key));
  for (const auto& [algorithm, us] : row.us) {
    if (!std::isfinite(us) || us <= 0)
      return failf(ErrorCode::kParse, "{} us of {} for {}", us, algorithm, to_string(row.key));
  }
  return {};
}

/// Throws json::exception for what is missing or of another type.
Result<Row> to_row(const json& object) {
  Row row;
  row.key.op = object.at("op");
  row.key.layout = object.at("layout");
  const std::string dtype = object.at("dtype");
  const auto known = parse_dtype(dtype);
  if (!known) return failf(ErrorCode::kParse, "an unknown dtype '{}'", dtype);
  row.key.dtype = *known;
  row.key.m = object.at("m");
  row.key.n = object.at("n");
  row.key.k = object.at("k");
  row.key.world = object.at("world");
  row.key.link = object.at("link");
  row.us = object.at("us").get<decltype(row.us)>();
  row.command = object.at("command");
  row.commit = object.at("commit");
  TANDEM_TRY(check(row));
  return row;
}

Result<Table> to_table(const json& file) {
  const int format = file.at("format");
  const std::string library = file.at("library");
  if (format != kFormat || library != TANDEM_VERSION) {
    return failf(ErrorCode::kParse, "format {} of tandem {}, need format {} of tandem {}", format, library,
                 kFormat, TANDEM_VERSION);
  }
  Table table;
  table.device = file.at("device");
  for (const json& object : file.at("rows")) {
    TANDEM_ASSIGN(Row row, to_row(object));
    table.put(std::move(row));
  }
  return table;
}

/// What `read` makes of a text that is JSON; what it throws for values that are not as they should be becomes
/// an Error.
template <class Read>
auto parse(std::string_view text, Read read) -> decltype(read(json())) {
  const json value = json::parse(text, nullptr, false);
  if (value.is_discarded()) return fail(ErrorCode::kParse, "no JSON");
  try {
    return read(value);
  } catch (const json::exception& error) {
    return fail(ErrorCode::kParse, error.what());
  }
}

}  // namespace

std::string to_string(const Key& key) {
  return fmt::format("{} {} {}x{}x{} {} w{}, {}", key.op, key.layout, key.m, key.n, key.k,
                     to_string(key.dtype), key.world, key.link);
}

std::int64_t bucket_of(std::int64_t m) {
  if (m <= 2) return m;
  const auto above = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(m)));
  return m <= above / 4 * 3 ? above / 4 * 3 : above;
}

const Row* Table::find(const Key& key) const {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return is_same_problem(row.key, key); });
  return found == rows.end() ? nullptr : &*found;
}

void Table::put(Row row) {
  const auto found = std::find_if(rows.begin(), rows.end(),
                                  [&](const Row& old) { return is_same_problem(old.key, row.key); });
  if (found == rows.end())
    rows.push_back(std::move(row));
  else
    *found = std::move(row);
}

std::string to_json(const Table& table) {
  // A line a row, so that people can read and compare files.
  std::string text = fmt::format("{{\"format\": {}, \"library\": \"{}\", \"device\": {},\n \"rows\": [",
                                 kFormat, TANDEM_VERSION, json(table.device).dump());
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    text += fmt::format("{}\n  {}", i == 0 ? "" : ",", to_object(table.rows[i]).dump());
  return text + "\n]}\n";
}

std::string to_json(const std::vector<Table>& tables) {
  std::vector<std::string> texts;
  texts.reserve(tables.size());
  for (const Table& table : tables) texts.push_back(to_json(table));
  return fmt::format("[{}]", fmt::join(texts, ","));
}

Result<Table> parse_table(std::string_view text) {
  return parse(text, to_table);
}

Result<std::vector<Table>> parse_tables(std::string_view text) {
  return parse(text, [](const json& list) -> Result<std::vector<Table>> {
    std::vector<Table> tables;
    for (const json& file : list) {
      TANDEM_ASSIGN(Table table, to_table(file));
      tables.push_back(std::move(table));
    }
    return tables;
  });
}

}  // namespace tandem::tune
