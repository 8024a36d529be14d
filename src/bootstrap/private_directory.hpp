#pragma once

#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>

namespace tandem::bootstrap {

// Directories below the temporary directory, each locked (flock) by the process that it belongs to.

/// Errors: kUnsupported without one.
[[nodiscard]] Result<std::string> temporary_directory();
/// Invalid if there is none, or a link. errno says why.
[[nodiscard]] UniqueFd open_directory(const std::string& path);
/// 0, or -1 with errno, at once.
[[nodiscard]] int try_lock(int directory);
/// Whether the path still names the open directory.
[[nodiscard]] bool is_named(int directory, const std::string& path);
[[nodiscard]] bool is_of_this_user(int directory);

/// A directory below the temporary directory that only this user may enter, with at most one socket in it.
/// Both go with the object. A process that is killed leaves them; the next create() of the same user removes
/// them. The owner holds a lock (flock) on its directory, so those of live processes stay.
class PrivateDirectory {
 public:
  /// Errors: kUnsupported without a temporary directory, or with one of too long a path; kDriver.
  [[nodiscard]] static Result<PrivateDirectory> create();
  PrivateDirectory(PrivateDirectory&& other) noexcept = default;
  PrivateDirectory& operator=(PrivateDirectory&& other) = delete;
  ~PrivateDirectory();

  /// Where the socket belongs. It fits into a socket's address.
  [[nodiscard]] std::string socket_path() const;

 private:
  PrivateDirectory(UniqueFd lock, std::string path) : lock_(std::move(lock)), path_(std::move(path)) {}
  UniqueFd lock_;  ///< invalid in an object that was moved from
  std::string path_;
};

}  // namespace tandem::bootstrap
