#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/cost/table.hpp>
#include <vector>

namespace tandem::cost {

// A folder holds one file for each device, of at most 512 KiB, which appears and changes as a whole. Some
// files cannot be used: those of another version, of another device than the name says, that are too large,
// or that hold no table. Others may be able to write in the folder, so symbolic links cannot be used either,
// nor files of other users than this one and the superuser. All these are treated as absent.

/// The name of a device's file: "nvidia_h200_132_sms_139_gib_driver_13_0.json".
[[nodiscard]] std::string file_name_of(std::string_view device);

/// What read_table() found.
struct Found {
  Table table;          ///< without rows if there is no file that can be used
  std::string warning;  ///< names a file that cannot be used, and why; usually empty
};
/// Reads a device's table. The result is empty if there is no folder or file, or the folder's name is empty.
[[nodiscard]] Found read_table(const std::filesystem::path& folder, std::string_view device);

/// Checks that files can be created in the folder, or that it can be made. It makes neither.
/// Errors:  kInvalidArgument for an empty folder name; kDriver with the path.
[[nodiscard]] Result<void> check_folder(const std::filesystem::path& folder);

/// What add_rows() wrote.
struct Written {
  std::filesystem::path file;
  std::string warning;  ///< why the file's earlier content was dropped; usually empty
};
/// Adds rows to a device's table, and creates the folder if it is missing. Programs that do so at the same
/// time take turns.
/// Errors:  kInvalidArgument for an empty folder name, rows that no reader accepts, a table that becomes too
///          large, and a file of this name that belongs to another device or another user, or is a link;
///          kTimeout where another program of this user keeps the lock; kDriver. Nothing is written then.
[[nodiscard]] Result<Written> add_rows(const std::filesystem::path& folder, std::string_view device,
                                       const std::vector<Row>& rows);

}  // namespace tandem::cost
