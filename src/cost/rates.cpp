#include <map>
#include <nlohmann/json.hpp>
#include <tandem/cost/folder.hpp>
#include <tandem/cost/rates.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "cost/device_file.hpp"
#include "io/folder.hpp"
#include "io/json_value.hpp"
#include "io/text_cursor.hpp"
#include "io/utf8.hpp"

namespace tandem::cost {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
constexpr std::size_t kMostBytes = 64 << 10;
constexpr int kMostCores = 1 << 16;
/// Files hold G a second, models count by microseconds.
constexpr double kPerUs = 1e3;
constexpr const char* kRowsKey = "rates";
constexpr const char* kBusyCores = "busy_cores";

/// By busy cores.
using Rows = std::map<int, CoreRates>;

fs::path file_of(const fs::path& folder, std::string_view device) {
  return folder / "rates" / file_name_of(device);
}

/// Throws json::exception for what is missing or of another type.
Result<void> read_row(const json& object, Rows& rows) {
  const json& cores = object.at(kBusyCores);
  if (!cores.is_number_unsigned() || cores < 1 || cores > kMostCores)
    return failf(ErrorCode::kParse, "{} is {}, need 1 to {}", kBusyCores, io::shown(cores), kMostCores);
  CoreRates& rates = rows[cores.get<int>()];
  for (const auto& [name, value] : object.items()) {
    if (name == kBusyCores) continue;
    const auto rate = parse_core_rate(name);
    if (!rate) return failf(ErrorCode::kParse, "an unknown speed '{}'", io::printable(name, 40));
    const double speed = value.is_number() ? value.get<double>() : 0;
    if (!(speed >= kLeastCoreRate && speed <= kMostCoreRate)) {
      return failf(ErrorCode::kParse, "{} is {}, need {} to {}", name, io::shown(value), kLeastCoreRate,
                   kMostCoreRate);
    }
    rates.set(*rate, speed * kPerUs);
  }
  return {};
}

Result<Rows> read_file(const fs::path& path, std::string_view device) {
  Rows rows;
  TANDEM_TRY(read_rows(path,
                       {.format = kFormat, .device = device, .rows_key = kRowsKey, .most_bytes = kMostBytes},
                       [&](const json& row) { return read_row(row, rows); }));
  return rows;
}

std::string to_text(std::string_view device, const Rows& rows) {
  std::string text = file_head(kFormat, device, kRowsKey);
  bool is_first = true;
  for (const auto& [busy_cores, rates] : rows) {
    json row = {{kBusyCores, busy_cores}};
    for (std::size_t i = 0; i < kNumCoreRates; ++i) {
      const auto rate = static_cast<CoreRate>(i);
      if (rates.knows(rate)) row[std::string(to_string(rate))] = rates[rate] / kPerUs;
    }
    text += fmt::format("{}\n  {}", is_first ? "" : ",", row.dump());
    is_first = false;
  }
  return text + "\n]}\n";
}

}  // namespace

FoundRates read_rates(const fs::path& folder, std::string_view device, int busy_cores) {
  if (folder.empty()) return {};
  const fs::path path = file_of(folder, device);
  auto rows = read_file(path, device);
  if (rows) return {.rates = (*rows)[busy_cores], .warning = {}};
  if (is_missing(rows.error())) return {};
  return {.rates = {}, .warning = warning_of("file of speeds", path, rows.error())};
}

Result<void> add_rates(const fs::path& folder, std::string_view device, int busy_cores,
                       const CoreRates& rates) {
  if (folder.empty()) return io::make_folder(folder);
  if (io::find_invalid_utf8(device))
    return fail(ErrorCode::kInvalidArgument, "a device whose name is no UTF-8");
  const fs::path path = file_of(folder, device);
  TANDEM_TRY(io::make_folder(path.parent_path()));
  // Ops wait for this.
  constexpr std::chrono::milliseconds kPatience{200};
  TANDEM_ASSIGN(const UniqueFd locked, lock(path.parent_path(), kPatience));
  auto rows = read_file(path, device);
  // What no reader takes is replaced; what may be good is not.
  if (!rows && rows.error().code() != ErrorCode::kParse && !is_missing(rows.error()))
    return at(path, rows.error());
  if (!rows) rows = Rows();
  CoreRates all = rates;
  all.fill_from((*rows)[busy_cores]);
  (*rows)[busy_cores] = all;
  // Not flushed: ops wait for this, and what is damaged is measured again.
  return write_file(path, to_text(device, *rows), false);
}

}  // namespace tandem::cost
