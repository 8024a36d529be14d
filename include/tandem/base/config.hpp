#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <tandem/base/core_rates.hpp>
#include <tandem/base/error.hpp>

namespace tandem {

/// How much is written to stderr.
enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };

/// The settings that tandem takes from the environment. from_environment() reads them once, and no other code
/// reads a variable. There is no global: pass the settings on. All timeouts are finite and positive.
struct Config {
  /// TANDEM_LOG = debug | info | warning | error | off.
  LogLevel log_level = LogLevel::kWarning;
  /// TANDEM_OP_TIMEOUT_MS: the longest time of a wait inside an op.
  std::chrono::milliseconds op_timeout{30'000};
  /// TANDEM_RENDEZVOUS_TIMEOUT_MS: the longest time of an exchange between hosts.
  std::chrono::milliseconds rendezvous_timeout{60'000};
  /// TANDEM_SPIN_US: how long a wait spins before it sleeps. Unset: it depends on ranks and usable cores.
  std::optional<std::chrono::microseconds> spin;
  /// TANDEM_LINK_DELAY_US: simulates a link. A copy from a peer waits this long before its first byte,
  /// without using the processor. On CPUs native ops take a part of what a peer has behind its part of that.
  std::chrono::microseconds link_delay{0};
  /// TANDEM_ISA = scalar | avx2 | avx512 | avx512_bf16: the instruction set of the CPU kernels. The last is
  /// avx512 with VDPBF16PS for products of bf16, however fast it is.
  std::optional<std::string> isa;
  /// TANDEM_RECORD_AFTER = 0 to 1000000: an op that was called this often with the same tensors is recorded
  /// where that is of use. Later calls launch the recording as one graph. With 0 nothing is recorded, so that
  /// profilers see each step.
  int record_after = 3;
  /// TANDEM_MAX_PLANS = 1 to 1000000: the number of problems (op, sizes, types) that a group remembers, of
  /// each fused op and of all ops together. A device remembers as many of its own. The problem that was used
  /// longest ago is dropped first, and planned again when it comes back. Rank 0's value holds for the group.
  int max_plans = 4096;
  /// TANDEM_NATIVE_KERNEL: the only native kernel that may run, by its name in `tandem doctor`. Empty: the
  /// one that is predicted to be fastest. For measurements.
  std::string native_kernel;
  /// TANDEM_NATIVE_PIECES = 0 to 32: the number of ranks to which the products of a native all-gather send
  /// the shard themselves, in pieces, where that is possible. It must be the same on every rank. Unset: a
  /// model decides. For measurements.
  std::optional<int> native_pieces;
  /// TANDEM_BATCH_INVARIANT = 0 or 1: a row of a result has the same bits however many rows a batch has,
  /// whichever rank owns it and whichever algorithm runs. Products on GPUs are then tandem's own, which takes
  /// time. A device's value holds for its products, and for the fused ops on it, whose ranks must agree on
  /// it. See docs/guide/batch_invariance.md.
  bool batch_invariant = false;
  /// TANDEM_NAN_CHECK = 0 or 1: collectives and fused ops look for NaN in what they are given, and report the
  /// first one as kNumeric. It is the rank's own affair: other ranks may have another value. A group begins
  /// with it; see Group::set_nan_check().
  bool nan_check = false;
  /// TANDEM_CUBLASLT_LIBRARY, TANDEM_NCCL_LIBRARY: the only file to load. Unset: the library is looked for by
  /// its soname, then in the usual folders. Without it, other products or collectives run.
  std::optional<std::string> cublaslt_library;
  std::optional<std::string> nccl_library;
  /// TANDEM_TUNE_FOLDER: the folder where `tandem tune` keeps its measurements and `auto` looks them up; see
  /// cost/folder.hpp. Empty: none. Unset: tandem/tune under $XDG_CACHE_HOME, or else under ~/.cache.
  std::string tune_folder;
  /// TANDEM_RATES: speeds of a core, from which `auto` predicts on CPUs; parse_core_rates() reads them. Rank
  /// 0's hold for a group. Speeds that are not given are measured when an op first asks `auto`.
  CoreRates core_rates;
  /// TANDEM_MEASURE_GPUS = 0 | 1: whether fused::measure_gpus() measures what the folder does not hold. Rank
  /// 0's value holds for a group.
  bool measure_gpus = true;
  /// TANDEM_RECORDER_FOLDER: where the last calls of all ranks are written when a group fails; see
  /// bootstrap/flight_record.hpp. Empty: nowhere.
  std::string recorder_folder;
  /// TANDEM_FAULT: faults to inject; see fault.hpp.
  std::string fault;

  /// Reads the settings.
  /// Errors:  kInvalidArgument with the variable, its value and what is allowed.
  [[nodiscard]] static Result<Config> from_environment();
};

}  // namespace tandem
