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

/// The file appears or changes as a whole. Errors: kDriver with the path.
[[nodiscard]] Result<void> write_file(const std::filesystem::path& path, const std::string& text);
/// Errors: kInvalidArgument for an empty name; kDriver with the path.
[[nodiscard]] Result<void> make_folder(const std::filesystem::path& folder);
/// Held until it goes; a process that ends lets go of it. Errors: kDriver with the path.
/// Errors: kTimeout where another program still has the lock after `patience`.
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

/// What a file says, for an error text. What has parts is not printed: it may be as deep as the file is long.
[[nodiscard]] std::string shown(const nlohmann::json& value);

}  // namespace tandem::cost
