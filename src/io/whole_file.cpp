#include "io/whole_file.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include "base/format.hpp"
#include "base/memory_limit.hpp"
#include "base/try.hpp"
#include "base/uninterrupted.hpp"
#include "io/errors.hpp"

namespace tandem::io {
namespace {

// What the umask leaves of it, as for any new file.
constexpr mode_t kPermissions = 0666;

// Independent of the target's name, which may already be as long as a name can be.
std::string scratch_name() {
  std::uint64_t number = 0;
  if (uninterrupted([&] { return ::getrandom(&number, sizeof(number), 0); }) != sizeof(number))
    number = static_cast<std::uint64_t>(::getpid());
  return fmt::format(".tandem-{:016x}.tmp", number);
}

/// Hidden siblings of this process's files: what remove_siblings() removes.
struct Siblings {
  std::mutex mutex;
  std::set<std::pair<int, std::string>> names;  ///< each in an open directory
};
Siblings& siblings() {
  static Siblings all;
  return all;
}

/// What a name stands for: itself, or what its links lead to.
struct Target {
  std::filesystem::path path;
  std::optional<mode_t> permissions;  ///< of the file that is there
};

Result<Target> resolve(const std::filesystem::path& target, WholeFile::Links links) {
  struct stat status {};
  if (::lstat(target.c_str(), &status) != 0) {
    if (errno == ENAMETOOLONG) return system_error("cannot use this name", errno);
    return Target{target, std::nullopt};  // nothing there: open() reports what is wrong
  }
  Target resolved{target, std::nullopt};
  if (S_ISLNK(status.st_mode)) {
    if (links == WholeFile::Links::kRefuse)
      return fail(ErrorCode::kInvalidArgument, "a symbolic link, which is not followed: remove it");
    std::error_code error;
    resolved.path = std::filesystem::canonical(target, error);
    if (error || ::stat(resolved.path.c_str(), &status) != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  "a symbolic link to nothing: remove it or create what it points to");
    }
  }
  if (!S_ISREG(status.st_mode)) {
    return failf(ErrorCode::kInvalidArgument, "{} has this name: need the name of a file",
                 S_ISDIR(status.st_mode) ? "a directory" : "something that is not a regular file");
  }
  constexpr mode_t kAll = 0777;
  resolved.permissions = status.st_mode & kAll;
  return resolved;
}

}  // namespace

WholeFile::WholeFile(WholeFile&& other) noexcept
    : directory_(std::move(other.directory_)),
      file_(std::move(other.file_)),
      name_(std::move(other.name_)),
      is_flushed_(other.is_flushed_),
      scratch_name_(std::exchange(other.scratch_name_, {})),
      num_written_(other.num_written_) {}

WholeFile::~WholeFile() {
  if (scratch_name_.empty()) return;
  ::unlinkat(directory_.get(), scratch_name_.c_str(), 0);
  forget_sibling();
}

void WholeFile::keep_sibling(std::string name) {
  scratch_name_ = std::move(name);
  const std::lock_guard lock(siblings().mutex);
  siblings().names.emplace(directory_.get(), scratch_name_);
}

void WholeFile::forget_sibling() {
  const std::lock_guard lock(siblings().mutex);
  siblings().names.erase({directory_.get(), scratch_name_});
  scratch_name_.clear();
}

void WholeFile::remove_siblings() {
  const std::lock_guard lock(siblings().mutex);
  for (const auto& [directory, name] : siblings().names) ::unlinkat(directory, name.c_str(), 0);
}

Result<void> WholeFile::put(const std::filesystem::path& target, std::string_view text, Options options) {
  TANDEM_ASSIGN(WholeFile file, create(target, options));
  TANDEM_TRY(file.write(text.data(), text.size()));
  return file.commit();
}

Result<WholeFile> WholeFile::create(const std::filesystem::path& target, Options options) {
  TANDEM_ASSIGN(const Target found, resolve(target, options.links));
  const std::filesystem::path& resolved = found.path;
  if (!resolved.has_filename()) return fail(ErrorCode::kInvalidArgument, "need the name of a file");
  const std::filesystem::path parent = resolved.has_parent_path() ? resolved.parent_path() : ".";
  UniqueFd directory(uninterrupted([&] { return ::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC); }));
  if (!directory.valid())
    return system_error(fmt::format("cannot open the directory '{}'", parent.native()), errno);
  WholeFile file(std::move(directory), resolved.filename().native());
  file.is_flushed_ = options.is_flushed;
  TANDEM_TRY(file.open(options.scratch));
  if (found.permissions && ::fchmod(file.file_.get(), *found.permissions) != 0)
    return system_error("cannot give the file the permissions of the one that is there", errno);
  if (options.is_private && ::fchmod(file.file_.get(), S_IRUSR | S_IWUSR) != 0)
    return system_error("cannot keep others from reading it", errno);
  return file;
}

Result<void> WholeFile::open(Scratch scratch) {
  if (scratch == Scratch::kNameless) {
    file_ = UniqueFd(uninterrupted(
        [&] { return ::openat(directory_.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, kPermissions); }));
    if (file_.valid()) return {};
    const bool has_none = errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL;
    if (!has_none) return system_error("cannot create a file in its directory", errno);
  }
  std::string name = scratch_name();
  constexpr int kFlags = O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC;
  file_ =
      UniqueFd(uninterrupted([&] { return ::openat(directory_.get(), name.c_str(), kFlags, kPermissions); }));
  if (!file_.valid()) return system_error("cannot create a file in its directory", errno);
  keep_sibling(std::move(name));
  return {};
}

Result<void> WholeFile::write(const void* data, std::size_t num_bytes) {
  const auto* next = static_cast<const std::byte*>(data);
  while (num_bytes > 0) {
    // At the limit the kernel sends SIGXFSZ, which would end the caller's process.
    const auto room = static_cast<std::size_t>(std::max<std::int64_t>(0, file_size_limit() - num_written_));
    if (room == 0) return system_error(fmt::format("cannot write {} bytes", num_bytes), EFBIG);
    const ssize_t written = ::write(file_.get(), next, std::min(num_bytes, room));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(fmt::format("cannot write {} bytes", num_bytes), errno);
    next += written;
    num_written_ += written;
    num_bytes -= static_cast<std::size_t>(written);
  }
  return {};
}

bool WholeFile::link_to(const std::string& name) const {
  if (::linkat(file_.get(), "", directory_.get(), name.c_str(), AT_EMPTY_PATH) == 0) return true;
  if (errno != ENOENT) return false;
  // Without privileges a nameless file can be named only by way of /proc.
  const std::string path = fmt::format("/proc/self/fd/{}", file_.get());
  return ::linkat(AT_FDCWD, path.c_str(), directory_.get(), name.c_str(), AT_SYMLINK_FOLLOW) == 0;
}

Result<void> WholeFile::flush() const {
  const int result = uninterrupted([&] { return ::fsync(file_.get()); });
  // Some file systems have nothing to flush, and say so.
  if (result == 0 || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) return {};
  return system_error("cannot bring the file to the disk", errno);
}

Result<void> WholeFile::commit() {
  if (is_flushed_) TANDEM_TRY(flush());
  if (scratch_name_.empty()) {
    if (link_to(name_)) return {};
    if (errno != EEXIST) return system_error("cannot name the file", errno);
    // A link cannot replace a file, a rename can.
    std::string name = scratch_name();
    if (!link_to(name)) return system_error("cannot name the file", errno);
    keep_sibling(std::move(name));
  }
  // Some network file systems report what they could not store only here.
  if (::close(file_.release()) != 0 && errno != EINTR) return system_error("cannot finish the file", errno);
  if (::renameat(directory_.get(), scratch_name_.c_str(), directory_.get(), name_.c_str()) != 0) {
    return system_error("cannot rename the file to its name", errno);
  }
  forget_sibling();
  return {};
}

}  // namespace tandem::io
