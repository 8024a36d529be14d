#include <algorithm>
#include <tandem/cost/folder.hpp>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "cost/device_file.hpp"
#include "io/folder.hpp"
#include "io/text_cursor.hpp"
#include "io/utf8.hpp"

namespace tandem::cost {
namespace {

namespace fs = std::filesystem;

// Some 1700 rows. Ranks hand tables on by the kilobyte, and search them row by row.
constexpr std::size_t kMostBytes = 512 << 10;

/// Errors: kDriver when it cannot be read (ENOENT: there is none), kParse when it is no table,
///         kInvalidArgument when it is another device's or another user's, or not a file.
Result<Table> read_file(const fs::path& path, std::string_view device) {
  TANDEM_ASSIGN(const std::string text, read_own_file(path, kMostBytes));
  TANDEM_ASSIGN(Table table, parse_table(text));
  if (table.device != device)
    return failf(ErrorCode::kInvalidArgument, "it is of the device '{}'", io::printable(table.device));
  return table;
}

Result<void> check_all(std::string_view device, const std::vector<Row>& rows) {
  if (io::find_invalid_utf8(device))
    return fail(ErrorCode::kInvalidArgument, "a device whose name is no UTF-8");
  for (const Row& row : rows) {
    if (const auto good = check(row); !good) return fail(ErrorCode::kInvalidArgument, good.error().text());
  }
  return {};
}

/// What the file holds before rows are added to it.
Result<Table> read_before(Written& written, std::string_view device) {
  auto before = read_file(written.file, device);
  if (before) return before;
  Table none{.device = std::string(device), .rows = {}};
  if (is_missing(before.error())) return none;
  // What no reader takes is replaced; what may be good is not.
  if (before.error().code() != ErrorCode::kParse) return at(written.file, before.error());
  written.warning = warning_of("table", written.file, before.error());
  return none;
}

}  // namespace

std::string file_name_of(std::string_view device) {
  constexpr std::size_t kLongest = 200;
  std::string name;
  for (const char c : device) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
    if (is_plain || (c >= 'A' && c <= 'Z'))
      name += is_plain ? c : static_cast<char>(c - 'A' + 'a');
    else if (!name.empty() && name.back() != '_')
      name += '_';
  }
  name.resize(std::min(name.size(), kLongest));
  while (!name.empty() && name.back() == '_') name.pop_back();
  return (name.empty() ? "device" : name) + ".json";
}

Found read_table(const fs::path& folder, std::string_view device) {
  Found found{.table = {.device = std::string(device), .rows = {}}, .warning = {}};
  if (folder.empty()) return found;
  const fs::path path = folder / file_name_of(device);
  auto table = read_file(path, device);
  if (table)
    found.table = *std::move(table);
  else if (!is_missing(table.error()))
    found.warning = warning_of("table", path, table.error());
  return found;
}

Result<void> check_folder(const fs::path& folder) {
  return io::check_folder(folder);
}

Result<Written> add_rows(const fs::path& folder, std::string_view device, const std::vector<Row>& rows) {
  TANDEM_TRY(check_all(device, rows));
  TANDEM_TRY(io::make_folder(folder));
  constexpr std::chrono::seconds kPatience{10};
  TANDEM_ASSIGN(const UniqueFd locked, lock(folder, kPatience));
  Written written{.file = folder / file_name_of(device), .warning = {}};
  TANDEM_ASSIGN(Table table, read_before(written, device));
  for (const Row& row : rows) table.put(row);
  const std::string text = to_json(table);
  if (text.size() > kMostBytes) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: {} rows are {} bytes, need at most {}: remove the file, or take another folder",
                 written.file.native(), table.rows.size(), text.size(), kMostBytes);
  }
  TANDEM_TRY(write_file(written.file, text));
  return written;
}

}  // namespace tandem::cost
