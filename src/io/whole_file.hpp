#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>

namespace tandem::io {

/// A file under construction in its target's directory. It appears under its name, whole, with commit(),
/// replacing what was there; without commit() nothing is left of it.
class WholeFile {
 public:
  /// Where the bytes wait for commit(): in a file without a name, which the system removes however the
  /// process ends, or, where the file system has no such files, in a hidden sibling.
  enum class Scratch : std::uint8_t { kNameless, kNamed };

  /// A symbolic link is followed: what it points to is replaced. Permissions are those of an ordinary new
  /// file. Errors: kInvalidArgument when something else than a regular file has that name; kDriver.
  [[nodiscard]] static Result<WholeFile> create(const std::filesystem::path& target,
                                                Scratch scratch = Scratch::kNameless);

  WholeFile(WholeFile&& other) noexcept;
  WholeFile& operator=(WholeFile&&) = delete;
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile();

  [[nodiscard]] Result<void> write(const void* data, std::size_t num_bytes);
  /// Once, after the last write().
  [[nodiscard]] Result<void> commit();

 private:
  WholeFile(UniqueFd directory, std::string name)
      : directory_(std::move(directory)), name_(std::move(name)) {}
  [[nodiscard]] Result<void> open(Scratch scratch);
  [[nodiscard]] bool link_to(const std::string& name) const;

  UniqueFd directory_;
  UniqueFd file_;
  std::string name_;
  std::string scratch_name_;  // of the sibling, while there is one
};

}  // namespace tandem::io
