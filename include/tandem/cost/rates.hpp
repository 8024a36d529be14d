#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <tandem/base/core_rates.hpp>
#include <tandem/base/error.hpp>

namespace tandem::cost {

// Speeds of a core that were measured on a device, in the folder of its tables: rates/<device>.json, one row
// for each number of cores that were busy at once. A file that cannot be used (see folder.hpp) counts as if
// it were not there, and is replaced when something is measured.

struct FoundRates {
  CoreRates rates;      ///< knows nothing if there is no file that can be used
  std::string warning;  ///< why what is there is not used, naming the file; usually empty
};
[[nodiscard]] FoundRates read_rates(const std::filesystem::path& folder, std::string_view device,
                                    int busy_cores);

/// Puts speeds into a device's file; makes the folder where it is missing. Programs that do so at once take
/// turns.
/// Errors: kInvalidArgument for an empty folder name, a device that is no UTF-8, and a file of this name that
///         is another device's; kDriver with the path. Nothing is written then.
[[nodiscard]] Result<void> add_rates(const std::filesystem::path& folder, std::string_view device,
                                     int busy_cores, const CoreRates& rates);

}  // namespace tandem::cost
