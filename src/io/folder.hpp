#pragma once

#include <filesystem>
#include <tandem/base/error.hpp>

namespace tandem::io {

/// Whether files can be created in a folder, or, where it is missing, in the nearest folder above it. It
/// makes nothing: a program that ends before it has something to keep leaves no empty folder.
/// Errors: kInvalidArgument for an empty name; kDriver with the path.
[[nodiscard]] Result<void> check_folder(const std::filesystem::path& folder);

/// Makes a folder, and those above it, where they are missing. Errors: as above.
[[nodiscard]] Result<void> make_folder(const std::filesystem::path& folder);

}  // namespace tandem::io
