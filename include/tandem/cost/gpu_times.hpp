#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <vector>

namespace tandem::cost {

// What was measured on the GPUs of a group, from which `auto` predicts there. The folder of the tables has it
// in gpus/<device>_<ranks>_ranks.json. A file that cannot be used (see folder.hpp) is treated as absent, and
// replaced at the next measurement.

/// The work that is measured; docs/design/cost.md has the sizes. Pairs differ in depth or size alone: kShort
/// and kLong, so that a start can be told from a rate.
enum class GpuProbe : std::uint8_t {
  kVendorShort,  ///< one wave of cuBLASLt's tiles
  kVendorLong,
  kVendorFewRows,  ///< a product that takes what its right operand takes from memory
  kVendorLarge,    ///< many waves
  kNativeBF16Short,
  kNativeBF16Long,
  kNativeBF16RowsShort,  ///< with a row-major right operand
  kNativeBF16RowsLong,
  kNativeF16Short,
  kNativeF16Long,
  kNativeF16RowsShort,
  kNativeF16RowsLong,
  kNativeF8Short,
  kNativeF8Long,
  kPushShort,  ///< a copy to a peer
  kPushLong,
  kPullShort,  ///< and from one
  kPullLong,
  kBarrier,
  kMemory,     ///< a copy within the GPU's own memory
  kMailboxes,  ///< a gather of few bytes
  kGatherShort,
  kGatherLong,
  kSumShort,
  kSumLong
};
inline constexpr std::size_t kNumGpuProbes = 25;

/// "vendor, short".
[[nodiscard]] std::string_view to_string(GpuProbe probe);
/// The inverse of to_string(); nothing for an unknown name.
[[nodiscard]] std::optional<GpuProbe> parse_gpu_probe(std::string_view name);

/// A time for each GpuProbe, or 0 where it is not known.
/// Units:   us; the median of several rounds on the slowest rank.
class GpuTimes {
 public:
  [[nodiscard]] double operator[](GpuProbe probe) const { return us_[static_cast<std::size_t>(probe)]; }
  [[nodiscard]] bool knows(GpuProbe probe) const { return (*this)[probe] > 0; }
  [[nodiscard]] bool is_empty() const { return *this == GpuTimes(); }
  void set(GpuProbe probe, double us) { us_[static_cast<std::size_t>(probe)] = us; }
  friend bool operator==(const GpuTimes&, const GpuTimes&) = default;

 private:
  std::array<double, kNumGpuProbes> us_{};
};

/// What read_gpu_times() found.
struct FoundGpuTimes {
  GpuTimes times;       ///< empty if there is no file that can be used
  std::string warning;  ///< names a file that cannot be used, and why; usually empty
};
/// Reads what was measured on this kind of device by groups of so many ranks.
[[nodiscard]] FoundGpuTimes read_gpu_times(const std::filesystem::path& folder, std::string_view device,
                                           int ranks);

/// Writes a device's file, and creates the folder if it is missing.
/// Errors:  kInvalidArgument for an empty folder name, a device that is no UTF-8, and a file of this name
///          that belongs to another device; kDriver with the path. Nothing is written then.
[[nodiscard]] Result<void> write_gpu_times(const std::filesystem::path& folder, std::string_view device,
                                           int ranks, const GpuTimes& times);

/// The rates that follow from the times, for people: one line each with its value and, where they differ, the
/// reference machine's.
[[nodiscard]] std::vector<std::string> describe_gpu_rates(const GpuTimes& times);

}  // namespace tandem::cost
