#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/cost/table.hpp>
#include <vector>

namespace tandem::cost {

// A folder holds one file a device, of at most 512 KiB, which appears and changes as a whole. A file that
// cannot be used (written by another version, for another device than its name says, too large, or no table
// at all) counts as if it were not there.

/// "nvidia_h200_132_sms_139_gib_driver_13_0.json".
[[nodiscard]] std::string file_name_of(std::string_view device);

struct Found {
  Table table;          ///< of this device; without rows if there is none that can be used
  std::string warning;  ///< why what is there is not used, naming the file; usually empty
};
/// A device's table; none where there is no such folder or file, or the folder's name is empty.
[[nodiscard]] Found read_table(const std::filesystem::path& folder, std::string_view device);

/// Makes the folder where it is missing and tries whether files can be made in it; leaves none there.
/// Errors: kInvalidArgument for an empty folder name; kDriver with the path.
[[nodiscard]] Result<void> prepare_folder(const std::filesystem::path& folder);

struct Written {
  std::filesystem::path file;
  std::string warning;  ///< why what the file held before was dropped; usually empty
};
/// Puts rows into a device's table; makes the folder where it is missing. Programs that do so at once take
/// turns.
/// Errors: kInvalidArgument for an empty folder name, rows that no reader would take, a table that they make
///         too large, and a file of this name that is another device's; kDriver with the path. Nothing is
///         written then.
[[nodiscard]] Result<Written> add_rows(const std::filesystem::path& folder, std::string_view device,
                                       const std::vector<Row>& rows);

}  // namespace tandem::cost
