#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>

namespace tandem::io {

struct RegularFile {
  UniqueFd fd;
  std::size_t size_bytes = 0;  ///< when it was opened
};
/// Whose files are read: those of a folder that others can write may be anyone's.
enum class Trust : std::uint8_t {
  kAll,      ///< what the user named, through whatever links
  kOwnOnly,  ///< of this user or the superuser, and no symbolic link
};
/// Opens a file for reading; never blocks on a pipe.
/// Errors: kDriver with errno when the system refuses; kInvalidArgument for what is not a regular file, and
///         for one that is not trusted.
[[nodiscard]] Result<RegularFile> open_regular(const std::filesystem::path& path, Trust trust = Trust::kAll);

/// All of a small file, copied: unlike a mapping, it survives a disk that fails and a writer that shortens
/// the file. Errors: as above; kDriver for a read that fails; kParse for more than `most_bytes`, of which no
/// more is read.
[[nodiscard]] Result<std::string> read_small_file(const std::filesystem::path& path, std::size_t most_bytes,
                                                  Trust trust = Trust::kAll);

}  // namespace tandem::io
