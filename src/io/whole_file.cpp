#include "io/whole_file.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "io/errors.hpp"

namespace tandem::io {
namespace {

// What the umask leaves of it, as for any new file.
constexpr mode_t kPermissions = 0666;

// Independent of the target's name, which may already be as long as a name can be.
std::string scratch_name() {
  std::uint64_t number = 0;
  if (::getrandom(&number, sizeof(number), 0) != sizeof(number))
    number = static_cast<std::uint64_t>(::getpid());
  return fmt::format(".tandem-{:016x}.tmp", number);
}

Result<std::filesystem::path> resolve(const std::filesystem::path& target) {
  struct stat status {};
  if (::lstat(target.c_str(), &status) != 0) return target;  // nothing there: open() reports what is wrong
  std::filesystem::path resolved = target;
  if (S_ISLNK(status.st_mode)) {
    std::error_code error;
    resolved = std::filesystem::canonical(target, error);
    if (error || ::stat(resolved.c_str(), &status) != 0) {
      return fail(ErrorCode::kInvalidArgument,
                  "a symbolic link to nothing: remove it or create what it points to");
    }
  }
  if (!S_ISREG(status.st_mode)) {
    return failf(ErrorCode::kInvalidArgument, "{} has this name: need the name of a file",
                 S_ISDIR(status.st_mode) ? "a directory" : "something that is not a regular file");
  }
  return resolved;
}

}  // namespace

WholeFile::WholeFile(WholeFile&& other) noexcept
    : directory_(std::move(other.directory_)),
      file_(std::move(other.file_)),
      name_(std::move(other.name_)),
      scratch_name_(std::exchange(other.scratch_name_, {})) {}

WholeFile::~WholeFile() {
  if (!scratch_name_.empty()) ::unlinkat(directory_.get(), scratch_name_.c_str(), 0);
}

Result<WholeFile> WholeFile::create(const std::filesystem::path& target, Scratch scratch) {
  TANDEM_ASSIGN(const std::filesystem::path resolved, resolve(target));
  if (!resolved.has_filename()) return fail(ErrorCode::kInvalidArgument, "need the name of a file");
  const std::filesystem::path parent = resolved.has_parent_path() ? resolved.parent_path() : ".";
  UniqueFd directory(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid())
    return system_error(fmt::format("cannot open the directory '{}'", parent.native()), errno);
  WholeFile file(std::move(directory), resolved.filename().native());
  TANDEM_TRY(file.open(scratch));
  return file;
}

Result<void> WholeFile::open(Scratch scratch) {
  if (scratch == Scratch::kNameless) {
    file_ = UniqueFd(::openat(directory_.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, kPermissions));
    if (file_.valid()) return {};
    const bool has_none = errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL;
    if (!has_none) return system_error("cannot create a file in its directory", errno);
  }
  std::string name = scratch_name();
  file_ = UniqueFd(
      ::openat(directory_.get(), name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kPermissions));
  if (!file_.valid()) return system_error("cannot create a file in its directory", errno);
  scratch_name_ = std::move(name);
  return {};
}

Result<void> WholeFile::write(const void* data, std::size_t num_bytes) {
  const auto* next = static_cast<const std::byte*>(data);
  while (num_bytes > 0) {
    const ssize_t written = ::write(file_.get(), next, num_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(fmt::format("cannot write {} bytes", num_bytes), errno);
    next += written;
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

Result<void> WholeFile::commit() {
  if (scratch_name_.empty()) {
    if (link_to(name_)) return {};
    if (errno != EEXIST) return system_error("cannot name the file", errno);
    // A link cannot replace a file, a rename can.
    std::string name = scratch_name();
    if (!link_to(name)) return system_error("cannot name the file", errno);
    scratch_name_ = std::move(name);
  }
  // Some network file systems report what they could not store only here.
  if (::close(file_.release()) != 0 && errno != EINTR) return system_error("cannot finish the file", errno);
  if (::renameat(directory_.get(), scratch_name_.c_str(), directory_.get(), name_.c_str()) != 0) {
    return system_error("cannot rename the file to its name", errno);
  }
  scratch_name_.clear();
  return {};
}

}  // namespace tandem::io
