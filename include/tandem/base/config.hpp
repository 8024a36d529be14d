#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tandem/base/core_rates.hpp>
#include <tandem/base/error.hpp>

namespace tandem {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };

/// Everything tandem takes from the environment, read once. No other code reads a variable. Pass it on; there
/// is no global. All timeouts are finite and positive.
struct Config {
  /// TANDEM_LOG = debug | info | warning | error | off.
  LogLevel log_level = LogLevel::kWarning;
  /// TANDEM_OP_TIMEOUT_MS: longest a wait inside an op may take.
  std::chrono::milliseconds op_timeout{30'000};
  /// TANDEM_RENDEZVOUS_TIMEOUT_MS: longest a host-side exchange may take.
  std::chrono::milliseconds rendezvous_timeout{60'000};
  /// TANDEM_SPIN_US: spin before sleeping. Unset: by ranks against usable cores.
  std::optional<std::chrono::microseconds> spin;
  /// TANDEM_LINK_DELAY_US: time a copy from a peer takes before its first byte, without using the processor.
  std::chrono::microseconds link_delay{0};
  /// TANDEM_ISA = scalar | avx2 | avx512: forces the CPU kernels' instruction set.
  std::optional<std::string> isa;
  /// TANDEM_RECORD_AFTER = 0 to 1000000: when an op has been called so often with the same tensors, its steps
  /// are recorded, where that is of use, and launched as one graph from then on. 0: never, so that profilers
  /// see the steps one by one.
  int record_after = 3;
  /// TANDEM_MAX_PLANS = 1 to 1000000: so many problems (op, sizes, types) a group remembers, of each fused op
  /// and of all its ops together; a device as many of its own. Where there is no room for another, the one
  /// goes that was used longest ago; one that comes again is planned anew. Rank 0's counts for the whole
  /// group.
  int max_plans = 4096;
  /// TANDEM_NATIVE_KERNEL: the one native kernel that may run, by its name in `tandem doctor`; empty: the one
  /// that is predicted to be fastest. For measurements.
  std::string native_kernel;
  /// TANDEM_NATIVE_PATCHES = 0 to 32: to how many ranks, of those there are, the shards of a native
  /// all-gather travel in patches from inside the products, where that is possible; the same on every rank.
  /// Unset: by a model. For measurements.
  std::optional<int> native_patches;
  /// TANDEM_CUBLASLT_LIBRARY, TANDEM_NCCL_LIBRARY: the file to load, and no other. Unset: by soname, then
  /// from the usual folders. A product or a collective that cannot load its library goes another way.
  std::optional<std::string> cublaslt_library;
  std::optional<std::string> nccl_library;
  /// TANDEM_TUNE_FOLDER: where `tandem tune` keeps what it measured, and `auto` looks it up; see
  /// cost/folder.hpp. Empty: nowhere. Unset: tandem/tune under $XDG_CACHE_HOME, else under ~/.cache.
  std::string tune_folder;
  /// TANDEM_RATES: speeds of a core that `auto` predicts with on CPUs, as parse_core_rates() reads them;
  /// those of rank 0 count for a group. What is not named is measured, at the first op that asks `auto`.
  CoreRates core_rates;
  /// TANDEM_FAULT: faults to inject, see fault.hpp.
  std::string fault;

  /// Errors: kInvalidArgument naming the variable, its value and what is allowed.
  [[nodiscard]] static Result<Config> from_environment();
};

}  // namespace tandem
