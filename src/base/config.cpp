#include <charconv>
#include <cstdlib>
#include <tandem/base/config.hpp>
#include <tandem/base/fault.hpp>

#include "base/environment.hpp"
#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem {
namespace {

// The only place that reads the environment.
std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return std::string(value);
}

Result<void> read_count(const char* name, std::int64_t smallest, std::int64_t largest, auto&& store) {
  const auto text = variable(name);
  if (!text) return {};
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < smallest || value > largest) {
    return failf(ErrorCode::kInvalidArgument, "{}='{}': need a whole number from {} to {}", name, *text,
                 smallest, largest);
  }
  store(value);
  return {};
}

/// The variable may be set to nothing, which says that there is no folder.
std::string read_tune_folder() {
  if (const char* folder = std::getenv("TANDEM_TUNE_FOLDER")) return folder;
  if (const auto cache = variable("XDG_CACHE_HOME")) return *cache + "/tandem/tune";
  if (const auto home = variable("HOME")) return *home + "/.cache/tandem/tune";
  return "";
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  return variable(name.c_str());
}

Result<Config> Config::from_environment() {
  Config config;
  constexpr std::int64_t kLongestMs = 24LL * 3600 * 1000;
  if (const auto level = variable("TANDEM_LOG")) {
    constexpr std::string_view kNames[] = {"debug", "info", "warning", "error", "off"};
    bool known = false;
    for (int i = 0; i < 5; ++i) {
      if (kNames[i] != *level) continue;
      config.log_level = static_cast<LogLevel>(i);
      known = true;
    }
    if (!known) {
      return failf(ErrorCode::kInvalidArgument, "TANDEM_LOG='{}': need debug, info, warning, error or off",
                   *level);
    }
  }
  TANDEM_TRY(read_count("TANDEM_OP_TIMEOUT_MS", 1, kLongestMs,
                        [&](auto v) { config.op_timeout = std::chrono::milliseconds(v); }));
  TANDEM_TRY(read_count("TANDEM_RENDEZVOUS_TIMEOUT_MS", 1, kLongestMs,
                        [&](auto v) { config.rendezvous_timeout = std::chrono::milliseconds(v); }));
  TANDEM_TRY(read_count("TANDEM_SPIN_US", 0, 1'000'000,
                        [&](auto v) { config.spin = std::chrono::microseconds(v); }));
  TANDEM_TRY(read_count("TANDEM_LINK_DELAY_US", 0, 60'000'000,
                        [&](auto v) { config.link_delay = std::chrono::microseconds(v); }));
  if (auto isa = variable("TANDEM_ISA")) {
    if (*isa != "scalar" && *isa != "avx2" && *isa != "avx512" && *isa != "avx512_bf16") {
      return failf(ErrorCode::kInvalidArgument, "TANDEM_ISA='{}': need scalar, avx2, avx512 or avx512_bf16",
                   *isa);
    }
    config.isa = std::move(isa);
  }
  TANDEM_TRY(read_count("TANDEM_RECORD_AFTER", 0, 1'000'000,
                        [&](auto v) { config.record_after = static_cast<int>(v); }));
  TANDEM_TRY(
      read_count("TANDEM_MAX_PLANS", 1, 1'000'000, [&](auto v) { config.max_plans = static_cast<int>(v); }));
  config.native_kernel = variable("TANDEM_NATIVE_KERNEL").value_or("");
  TANDEM_TRY(
      read_count("TANDEM_NATIVE_PIECES", 0, 32, [&](auto v) { config.native_pieces = static_cast<int>(v); }));
  TANDEM_TRY(read_count("TANDEM_BATCH_INVARIANT", 0, 1, [&](auto v) { config.batch_invariant = v != 0; }));
  TANDEM_TRY(read_count("TANDEM_NAN_CHECK", 0, 1, [&](auto v) { config.nan_check = v != 0; }));
  config.cublaslt_library = variable("TANDEM_CUBLASLT_LIBRARY");
  config.nccl_library = variable("TANDEM_NCCL_LIBRARY");
  config.mpi_library = variable("TANDEM_MPI_LIBRARY");
  config.host = variable("TANDEM_HOST").value_or("");
  config.tune_folder = read_tune_folder();
  if (const auto rates = variable("TANDEM_RATES")) {
    auto parsed = parse_core_rates(*rates);
    if (!parsed) return failf(ErrorCode::kInvalidArgument, "TANDEM_RATES: {}", parsed.error().text());
    config.core_rates = *parsed;
  }
  TANDEM_TRY(read_count("TANDEM_MEASURE_GPUS", 0, 1, [&](auto v) { config.measure_gpus = v != 0; }));
  config.recorder_folder = variable("TANDEM_RECORDER_FOLDER").value_or("");
  if (auto fault = variable("TANDEM_FAULT")) {
    const auto plan = FaultPlan::parse(*fault);
    if (!plan) return failf(ErrorCode::kInvalidArgument, "TANDEM_FAULT: {}", plan.error().text());
    config.fault = std::move(*fault);
  }
  return config;
}

}  // namespace tandem
