#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
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
  /// What becomes of a target that is a symbolic link: what it points to is replaced, or it is an error.
  enum class Links : std::uint8_t { kFollow, kRefuse };
  struct Options {
    Scratch scratch = Scratch::kNameless;
    Links links = Links::kFollow;
    bool is_flushed = true;   ///< false: a loss of power may leave a damaged file
    bool is_private = false;  ///< only this user may read it, whatever was there
  };

  /// Permissions are those of the file that is replaced, or else those of an ordinary new file.
  /// Errors: kInvalidArgument when something else than a regular file has that name; kDriver.
  [[nodiscard]] static Result<WholeFile> create(const std::filesystem::path& target, Options options);
  [[nodiscard]] static Result<WholeFile> create(const std::filesystem::path& target) {
    return create(target, {});
  }
  /// The three steps for a text. Errors: as theirs.
  [[nodiscard]] static Result<void> put(const std::filesystem::path& target, std::string_view text,
                                        Options options);

  WholeFile(WholeFile&& other) noexcept;
  WholeFile& operator=(WholeFile&&) = delete;
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile();

  [[nodiscard]] Result<void> write(const void* data, std::size_t num_bytes);
  /// Once, after the last write(). The bytes are on the disk before the name is theirs: neither a full disk
  /// nor a loss of power costs the file that was there.
  [[nodiscard]] Result<void> commit();

  /// Removes the hidden siblings of all files of this process, for a program that ends without destructors.
  static void remove_siblings();

 private:
  WholeFile(UniqueFd directory, std::string name)
      : directory_(std::move(directory)), name_(std::move(name)) {}
  [[nodiscard]] Result<void> open(Scratch scratch);
  [[nodiscard]] bool link_to(const std::string& name) const;
  [[nodiscard]] Result<void> flush() const;
  void keep_sibling(std::string name);
  void forget_sibling();

  UniqueFd directory_;
  UniqueFd file_;
  std::string name_;
  bool is_flushed_ = true;
  std::string scratch_name_;  // of the sibling, while there is one
  std::int64_t num_written_ = 0;
};

}  // namespace tandem::io
