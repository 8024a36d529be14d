#include <nlohmann/json.hpp>
#include <tandem/cost/folder.hpp>
#include <tandem/cost/gpu_times.hpp>

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
constexpr const char* kRowsKey = "times";
constexpr double kLeastUs = 1e-3;
constexpr double kMostUs = 1e7;

constexpr std::array<std::string_view, kNumGpuProbes> kNames = {"vendor, short",
                                                                "vendor, long",
                                                                "vendor, few rows",
                                                                "vendor, large",
                                                                "native bf16, short",
                                                                "native bf16, long",
                                                                "native bf16 row-major, short",
                                                                "native bf16 row-major, long",
                                                                "native f16, short",
                                                                "native f16, long",
                                                                "native f16 row-major, short",
                                                                "native f16 row-major, long",
                                                                "native f8, short",
                                                                "native f8, long",
                                                                "push, short",
                                                                "push, long",
                                                                "pull, short",
                                                                "pull, long",
                                                                "barrier",
                                                                "memory",
                                                                "mailboxes",
                                                                "gather, short",
                                                                "gather, long",
                                                                "sum, short",
                                                                "sum, long"};
static_assert(static_cast<std::size_t>(GpuProbe::kSumLong) + 1 == kNumGpuProbes);

/// Groups of another size have other links, and their collectives other steps.
std::string key_of(std::string_view device, int ranks) {
  return fmt::format("{}, {} ranks", device, ranks);
}

fs::path file_of(const fs::path& folder, const std::string& key) {
  return folder / "gpus" / file_name_of(key);
}

/// Throws json::exception for what is missing or of another type.
Result<void> read_row(const json& row, GpuTimes& times) {
  const std::string name = row.at("probe");
  const auto probe = parse_gpu_probe(name);
  if (!probe) return failf(ErrorCode::kParse, "an unknown probe '{}'", io::printable(name, 40));
  const json& value = row.at("us");
  const double us = value.is_number() ? value.get<double>() : 0;
  if (!(us >= kLeastUs && us <= kMostUs)) {
    return failf(ErrorCode::kParse, "'{}' takes {} us, need {} to {}", name, io::shown(value), kLeastUs,
                 kMostUs);
  }
  times.set(*probe, us);
  return {};
}

Result<GpuTimes> read_file(const fs::path& path, const std::string& key) {
  GpuTimes times;
  TANDEM_TRY(read_rows(path,
                       {.format = kFormat, .device = key, .rows_key = kRowsKey, .most_bytes = kMostBytes},
                       [&](const json& row) { return read_row(row, times); }));
  if (times.is_empty()) return fail(ErrorCode::kParse, "no times");
  return times;
}

std::string to_text(const std::string& key, const GpuTimes& times) {
  std::string text = file_head(kFormat, key, kRowsKey);
  const char* separator = "";
  for (std::size_t i = 0; i < kNumGpuProbes; ++i) {
    const auto probe = static_cast<GpuProbe>(i);
    if (!times.knows(probe)) continue;
    const json row = {{"probe", to_string(probe)}, {"us", times[probe]}};
    text += fmt::format("{}\n  {}", separator, row.dump());
    separator = ",";
  }
  return text + "\n]}\n";
}

}  // namespace

std::string_view to_string(GpuProbe probe) {
  return kNames[static_cast<std::size_t>(probe)];
}

std::optional<GpuProbe> parse_gpu_probe(std::string_view name) {
  for (std::size_t i = 0; i < kNumGpuProbes; ++i) {
    if (kNames[i] == name) return static_cast<GpuProbe>(i);
  }
  return std::nullopt;
}

FoundGpuTimes read_gpu_times(const fs::path& folder, std::string_view device, int ranks) {
  if (folder.empty()) return {};
  const std::string key = key_of(device, ranks);
  const fs::path path = file_of(folder, key);
  auto times = read_file(path, key);
  if (times) return {.times = *times, .warning = {}};
  if (is_missing(times.error())) return {};
  return {.times = {}, .warning = warning_of("file of GPU times", path, times.error())};
}

Result<void> write_gpu_times(const fs::path& folder, std::string_view device, int ranks,
                             const GpuTimes& times) {
  if (folder.empty()) return io::make_folder(folder);
  if (io::find_invalid_utf8(device))
    return fail(ErrorCode::kInvalidArgument, "a device whose name is no UTF-8");
  const std::string key = key_of(device, ranks);
  const fs::path path = file_of(folder, key);
  TANDEM_TRY(io::make_folder(path.parent_path()));
  // What may be good is not replaced.
  const auto before = read_file(path, key);
  if (!before && before.error().code() != ErrorCode::kParse && !is_missing(before.error()))
    return at(path, before.error());
  return write_file(path, to_text(key, times));
}

}  // namespace tandem::cost
