#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/tune/table.hpp>
#include <vector>

namespace tandem::tune {

// A folder holds one file a device, which appears and changes as a whole. A file that cannot be used (written
// by another version, for another device than its name says, or no table at all) counts as if it were not
// there.

/// "nvidia_h200_132_sms_139_gib_driver_13_0.json".
[[nodiscard]] std::string file_name_of(std::string_view device);

struct Tables {
  std::vector<Table> tables;
  std::vector<std::string> warnings;  ///< a line a file that was passed over, naming it and the reason
};
/// All tables of a folder, by file name; none where there is no such folder, or its name is empty.
[[nodiscard]] Tables read_folder(const std::filesystem::path& folder);

struct Written {
  std::filesystem::path file;
  std::string warning;  ///< why what the file held before was dropped; usually empty
};
/// Puts rows into a device's table; makes the folder where it is missing. Programs that do so at once take
/// turns.
/// Errors: kInvalidArgument for an empty folder name; kDriver with the path.
[[nodiscard]] Result<Written> add_rows(const std::filesystem::path& folder, std::string_view device,
                                       const std::vector<Row>& rows);

}  // namespace tandem::tune
