#include <algorithm>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <tandem/cost/table.hpp>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "cost/device_file.hpp"
#include "io/json_value.hpp"
#include "io/text_cursor.hpp"
#include "io/utf8.hpp"

namespace tandem::cost {
namespace {

constexpr int kFormat = 1;
// Of any row. A nanosecond and eleven days: times outside are no measurements.
constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
constexpr double kLeastUs = 1e-3;
constexpr double kMostUs = 1e12;

using nlohmann::json;

bool is_same_problem(const Key& x, const Key& y) {
  // Numbers first: tables are searched row by row.
  return x.n == y.n && x.k == y.k && x.world == y.world && x.dtype == y.dtype &&
         bucket_of(x.m) == bucket_of(y.m) && x.op == y.op && x.layout == y.layout && x.link == y.link;
}

/// People's own words, such as a file name in a command, may be no UTF-8, which JSON has to be.
std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json to_object(const Row& row) {
  json object = {{"op", row.key.op},       {"layout", row.key.layout}, {"dtype", to_string(row.key.dtype)},
                 {"m", row.key.m},         {"n", row.key.n},           {"k", row.key.k},
                 {"world", row.key.world}, {"link", row.key.link},     {"us", row.us}};
  if (!row.command.empty()) object["command"] = row.command;
  if (!row.commit.empty()) object["commit"] = row.commit;
  return object;
}

/// Errors: kParse for what is no whole number, or one outside [0, most]; json would truncate it. Throws
/// json::exception for what is missing.
Result<std::int64_t> whole_number(const json& object, const char* name, std::int64_t most) {
  const json& value = object.at(name);
  // What is parsed without a sign is unsigned.
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > static_cast<std::uint64_t>(most)) {
    return failf(ErrorCode::kParse, "{} is {}, need a whole number from 0 to {}", name, io::shown(value),
                 most);
  }
  return value.get<std::int64_t>();
}

/// For an error text: a file's words may be long, and of any characters.
std::string shown_key(const Key& key) {
  constexpr std::size_t kMostChars = 200;
  return io::printable(to_string(key), kMostChars);
}

/// Throws json::exception for what is missing or of another type.
Result<Key> to_key(const json& object) {
  Key key;
  key.op = object.at("op");
  key.layout = object.at("layout");
  const std::string dtype = object.at("dtype");
  const auto known = parse_dtype(dtype);
  if (!known) return failf(ErrorCode::kParse, "an unknown dtype '{}'", io::printable(dtype));
  key.dtype = *known;
  TANDEM_ASSIGN(key.m, whole_number(object, "m", kMostSize));
  TANDEM_ASSIGN(key.n, whole_number(object, "n", kMostSize));
  TANDEM_ASSIGN(key.k, whole_number(object, "k", kMostSize));
  TANDEM_ASSIGN(const std::int64_t world, whole_number(object, "world", std::numeric_limits<int>::max()));
  key.world = static_cast<int>(world);
  key.link = object.at("link");
  return key;
}

/// Throws json::exception for what is missing or of another type.
Result<Row> to_row(const json& object) {
  Row row;
  TANDEM_ASSIGN(row.key, to_key(object));
  for (const auto& [algorithm, us] : object.at("us").items()) {
    if (!us.is_number())
      return failf(ErrorCode::kParse, "{} us of {} for {}", io::shown(us), io::printable(algorithm),
                   shown_key(row.key));
    row.us[algorithm] = us.get<double>();
  }
  row.command = object.value("command", "");
  row.commit = object.value("commit", "");
  TANDEM_TRY(check(row));
  return row;
}

Result<Table> to_table(const json& file) {
  TANDEM_ASSIGN(const std::int64_t format, whole_number(file, "format", std::numeric_limits<int>::max()));
  TANDEM_ASSIGN(const std::string library, io::text_at(file, "library"));
  if (format != kFormat || library != TANDEM_VERSION) {
    return failf(ErrorCode::kParse, "format {} of tandem {}, need format {} of tandem {}", format,
                 io::printable(library), kFormat, TANDEM_VERSION);
  }
  Table table;
  TANDEM_ASSIGN(table.device, io::text_at(file, "device"));
  TANDEM_TRY(read_each_row(file.at("rows"), [&](const json& object) -> Result<void> {
    TANDEM_ASSIGN(Row row, to_row(object));
    table.put(std::move(row));
    return {};
  }));
  return table;
}

}  // namespace

Result<void> check(const Row& row) {
  const Key& key = row.key;
  const auto is_size = [](std::int64_t size) { return size >= 0 && size <= kMostSize; };
  if (!is_size(key.m) || !is_size(key.n) || !is_size(key.k) || key.world < 1)
    return failf(ErrorCode::kParse, "a row for {}", shown_key(key));
  for (const std::string* text : {&key.op, &key.layout, &key.link}) {
    if (io::find_invalid_utf8(*text))
      return fail(ErrorCode::kParse, "an op, layout or link that is no UTF-8");
  }
  if (!row.us.contains("serial")) return failf(ErrorCode::kParse, "no time of serial for {}", shown_key(key));
  for (const auto& [algorithm, us] : row.us) {
    if (io::find_invalid_utf8(algorithm))
      return fail(ErrorCode::kParse, "the name of an algorithm that is no UTF-8");
    // NaN is neither.
    if (!(us >= kLeastUs && us <= kMostUs))
      return failf(ErrorCode::kParse, "{} us of {} for {}, need {} to {}", us, io::printable(algorithm),
                   shown_key(key), kLeastUs, kMostUs);
  }
  return {};
}

std::string to_string(const Key& key) {
  return fmt::format("{} {} {}x{}x{} {} w{}, {}", key.op, key.layout, key.m, key.n, key.k,
                     to_string(key.dtype), key.world, key.link);
}

std::int64_t bucket_of(std::int64_t m) {
  if (m <= 2) return m;
  const std::uint64_t wanted = static_cast<std::uint64_t>(m);
  const std::uint64_t above = std::bit_ceil(wanted);
  const std::uint64_t bucket = wanted <= above / 4 * 3 ? above / 4 * 3 : above;
  // The last one would be 2^63.
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  return static_cast<std::int64_t>(std::min(bucket, kMost));
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
  std::string text = file_head(kFormat, table.device, "rows");
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    text += fmt::format("{}\n  {}", i == 0 ? "" : ",", text_of(to_object(table.rows[i])));
  return text + "\n]}\n";
}

std::string to_message(Table table) {
  for (Row& row : table.rows) row.command = row.commit = {};
  return to_json(table);
}

Result<Table> parse_table(std::string_view text) {
  TANDEM_ASSIGN(const json value, io::parse_json_object(text));
  try {
    return to_table(value);
  } catch (const json::exception& error) {
    return fail(ErrorCode::kParse, io::reason_of(error));
  }
}

}  // namespace tandem::cost
