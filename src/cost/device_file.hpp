#pragma once

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>

#include "base/function_ref.hpp"

// Files of what was measured on a device, in a folder that programs share.

namespace tandem::cost {

/// Whether a file could not be read because there is none.
[[nodiscard]] bool is_missing(const Error& error);
/// "the table /a/b.json is not used: no JSON".
[[nodiscard]] std::string warning_of(std::string_view what, const std::filesystem::path& path,
                                     const Error& error);
/// The same error with the path in front of its text.
[[nodiscard]] tl::unexpected<Error> at(const std::filesystem::path& path, const Error& error);

// Others may be able to write in the folder. So symbolic links are not followed, and files of other users,
// but for the superuser's, are not read.

/// The file appears or changes as a whole. Errors: kDriver with the path; kInvalidArgument for a link.
/// `is_flushed`: before it has its name, so that a loss of power costs nothing.
[[nodiscard]] Result<void> write_file(const std::filesystem::path& path, const std::string& text,
                                      bool is_flushed = true);
/// Errors: those of io::read_small_file(), and kInvalidArgument for a link and for another user's file.
[[nodiscard]] Result<std::string> read_own_file(const std::filesystem::path& path, std::size_t most_bytes);
/// Keeps this user's other programs from writing in the folder, until it goes; a process that ends lets go
/// of it. Errors: kDriver with the path; kTimeout where another program still has the lock after `patience`.
[[nodiscard]] Result<UniqueFd> lock(const std::filesystem::path& folder, std::chrono::milliseconds patience);

/// The beginning of a file's text, up to its list of rows: those who read it look at all three first.
[[nodiscard]] std::string file_head(int format, std::string_view device, std::string_view rows_key);

/// What a file of rows has to be.
struct FileOfRows {
  int format = 1;
  std::string_view device;
  const char* rows_key = "";
  std::size_t most_bytes = 0;
};
/// Reads such a file, row by row. `read_row` may throw json::exception for what is missing or of another
/// type.
/// Errors:  kDriver when it cannot be read (ENOENT: there is none); kParse when it is no such file;
///          kInvalidArgument when it is another device's; those of read_row().
[[nodiscard]] Result<void> read_rows(const std::filesystem::path& path, const FileOfRows& file,
                                     FunctionRef<Result<void>(const nlohmann::json&)> read_row);

/// Reads the rows of a list, one by one. `read_row`: as above.
/// Errors:  kParse for what is no list; those of read_row(), with the row's number in front.
[[nodiscard]] Result<void> read_each_row(const nlohmann::json& rows,
                                         FunctionRef<Result<void>(const nlohmann::json&)> read_row);

}  // namespace tandem::cost
