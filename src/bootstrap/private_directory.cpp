#include "bootstrap/private_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/format.hpp"
#include "base/system_refusal.hpp"
#include "base/try.hpp"
#include "base/uninterrupted.hpp"

namespace tandem::bootstrap {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "tandem-store-";
constexpr std::string_view kUnique = "XXXXXX";
constexpr const char* kSocket = "store";

/// Whatever else lies in it stays, and so does the directory then.
void remove(int directory, const std::string& path) {
  struct stat status {};
  if (::fstatat(directory, kSocket, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(status.st_mode))
    ::unlinkat(directory, kSocket, 0);
  ::rmdir(path.c_str());
}

/// Removes the directories of this user's processes that were killed.
void remove_left_over(const fs::path& temporary) {
  std::error_code end;
  for (fs::directory_iterator entry(temporary, end); !end && entry != fs::directory_iterator();
       entry.increment(end)) {
    const std::string name = entry->path().filename();
    if (name.size() != kPrefix.size() + kUnique.size() || !name.starts_with(kPrefix)) continue;
    const std::string path = entry->path();
    const UniqueFd directory = open_directory(path);
    if (directory.valid() && is_of_this_user(directory.get()) && try_lock(directory.get()) == 0)
      remove(directory.get(), path);
  }
}

/// Nothing if another process has taken the directory for one that was left over.
Result<std::optional<UniqueFd>> lock(const std::string& path) {
  UniqueFd directory = open_directory(path);
  if (!directory.valid() && errno != ENOENT) {
    Error refusal = system_refusal(fmt::format("store: cannot open its directory '{}'", path), errno);
    ::rmdir(path.c_str());
    return tl::unexpected(std::move(refusal));
  }
  // Where a file system has no locks, nobody gets one, and nothing is taken for left over.
  const bool is_taken = directory.valid() && try_lock(directory.get()) != 0 && errno == EWOULDBLOCK;
  if (!directory.valid() || is_taken || !is_named(directory.get(), path)) return std::nullopt;
  return std::optional(std::move(directory));
}

}  // namespace

Result<std::string> temporary_directory() {
  std::error_code no_directory;
  const fs::path temporary = fs::temp_directory_path(no_directory);
  if (!no_directory) return temporary.string();
  return failf(ErrorCode::kUnsupported, "store: no temporary directory ({}): set TMPDIR to one",
               no_directory.message());
}

int try_lock(int directory) {
  return uninterrupted([&] { return ::flock(directory, LOCK_EX | LOCK_NB); });
}

UniqueFd open_directory(const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  return UniqueFd(uninterrupted([&] { return ::open(path.c_str(), kFlags); }));
}

bool is_named(int directory, const std::string& path) {
  struct stat open {};
  struct stat named {};
  return ::fstat(directory, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

bool is_of_this_user(int directory) {
  struct stat status {};
  return ::fstat(directory, &status) == 0 && status.st_uid == ::geteuid();
}

Result<PrivateDirectory> PrivateDirectory::create() {
  TANDEM_ASSIGN(const fs::path temporary, temporary_directory());
  const std::string pattern = temporary / fmt::format("{}{}", kPrefix, kUnique);
  constexpr std::size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;
  if (const std::size_t length = pattern.size() + 1 + std::string_view(kSocket).size(); length > kLongest) {
    return failf(ErrorCode::kUnsupported,
                 "store: a socket below '{}' would have a path of {} characters, at most {}: set TMPDIR to a "
                 "shorter one",
                 temporary.string(), length, kLongest);
  }
  remove_left_over(temporary);
  for (;;) {
    std::string path = pattern;
    if (::mkdtemp(path.data()) == nullptr) {  // mode 0700
      const int code = errno;
      return fail(ErrorCode::kDriver,
                  fmt::format("store: cannot make a directory below '{}': {}: set TMPDIR to a writable one",
                              temporary.string(), std::strerror(code)),
                  code);
    }
    TANDEM_ASSIGN(auto locked, lock(path));
    if (locked) return PrivateDirectory(*std::move(locked), std::move(path));
  }
}

PrivateDirectory::~PrivateDirectory() {
  if (lock_.valid()) remove(lock_.get(), path_);
}

std::string PrivateDirectory::socket_path() const {
  return path_ + "/" + kSocket;
}

}  // namespace tandem::bootstrap
