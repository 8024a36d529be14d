#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <tandem/base/core_rates.hpp>
#include <tandem/base/error.hpp>

namespace tandem::cost {

// Speeds of a core that were measured on a device. The folder of the tables holds them in
// rates/<device>.json, one row for each number of busy cores. A file that cannot be used (see folder.hpp) is
// treated as absent, and replaced at the next measurement.

/// What read_rates() found.
struct FoundRates {
  CoreRates rates;      ///< none is known if there is no file that can be used
  std::string warning;  ///< names a file that cannot be used, and why; usually empty
};
/// Reads the speeds that were measured with this number of busy cores.
[[nodiscard]] FoundRates read_rates(const std::filesystem::path& folder, std::string_view device,
                                    int busy_cores);

/// Adds speeds to a device's file, and creates the folder if it is missing. Programs that do so at the same
/// time take turns.
/// Errors:  kInvalidArgument for an empty folder name, a device that is no UTF-8, and a file of this name
///          that belongs to another device; kDriver with the path. Nothing is written then.
[[nodiscard]] Result<void> add_rates(const std::filesystem::path& folder, std::string_view device,
                                     int busy_cores, const CoreRates& rates);

}  // namespace tandem::cost
