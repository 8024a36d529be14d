#include <cmath>
#include <tandem/cost/folder.hpp>
#include <tandem/cost/gpu_times.hpp>
#include <tandem/cost/rates.hpp>

#include "fuzz/check.hpp"
#include "fuzz/parsers.hpp"
#include "fuzz/scratch_folder.hpp"

namespace tandem::fuzz {
namespace {

constexpr const char* kDevice = "d";
constexpr int kRanks = 2;
constexpr int kBusyCores = 2;

void check_warning(const std::string& warning) {
  check_refusal(warning, {"byte ", "row ", "format", "library", "device", "rates", "times"});
}

bool are_near(const CoreRates& x, const CoreRates& y, double rounding) {
  for (std::size_t i = 0; i < kNumCoreRates; ++i) {
    const auto rate = static_cast<CoreRate>(i);
    if (std::abs(x[rate] - y[rate]) > rounding * x[rate]) return false;
  }
  return true;
}

bool try_core_rates(std::string_view bytes, const std::filesystem::path& written_to) {
  static const ScratchFolder folder;
  folder.put(std::filesystem::path("rates") / cost::file_name_of(kDevice), bytes);
  const cost::FoundRates found = cost::read_rates(folder.path(), kDevice, kBusyCores);
  if (!found.warning.empty()) {
    check(found.rates == CoreRates(), "speeds of a file that is refused");
    check_warning(found.warning);
    return false;
  }
  const auto added = cost::add_rates(written_to, kDevice, kBusyCores, found.rates);
  check(added.has_value(), "what was read is not written");
  const cost::FoundRates again = cost::read_rates(written_to, kDevice, kBusyCores);
  // Files hold them per second, models count by microseconds: the last bit may change.
  check(again.warning.empty() && are_near(found.rates, again.rates, 1e-15),
        "written and read as other speeds");
  if (found.rates == CoreRates()) return true;  // a file of other numbers of cores; no variable says nothing
  const std::string text = to_string(found.rates);
  const auto parsed = parse_core_rates(text);
  // A variable has four digits.
  check(parsed && are_near(found.rates, *parsed, 1e-3), "other speeds in the form of a variable: " + text);
  return true;
}

bool try_gpu_times(std::string_view bytes, const std::filesystem::path& written_to) {
  static const ScratchFolder folder;
  static const std::string name = [] {
    const auto done = cost::write_gpu_times(folder.path(), kDevice, kRanks, {});
    check(done.has_value(), "no times are not written");
    return std::filesystem::directory_iterator(folder.path() / "gpus")->path().filename().native();
  }();
  folder.put(std::filesystem::path("gpus") / name, bytes);
  const cost::FoundGpuTimes found = cost::read_gpu_times(folder.path(), kDevice, kRanks);
  if (!found.warning.empty()) {
    check(found.times.is_empty(), "times of a file that is refused");
    check_warning(found.warning);
    return false;
  }
  static_cast<void>(cost::describe_gpu_rates(found.times));
  const auto written = cost::write_gpu_times(written_to, kDevice, kRanks, found.times);
  check(written.has_value(), "what was read is not written");
  const cost::FoundGpuTimes again = cost::read_gpu_times(written_to, kDevice, kRanks);
  check(again.warning.empty() && again.times == found.times, "written and read as other times");
  return true;
}

}  // namespace

bool try_device_rates(std::string_view bytes) {
  const ScratchFolder written_to;
  const bool are_rates = try_core_rates(bytes, written_to.path());
  const bool are_times = try_gpu_times(bytes, written_to.path());
  return are_rates || are_times;
}

}  // namespace tandem::fuzz
