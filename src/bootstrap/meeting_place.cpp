#include "bootstrap/meeting_place.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/format.hpp"
#include "base/interrupts.hpp"
#include "base/system_refusal.hpp"
#include "base/transfer.hpp"
#include "base/try.hpp"
#include "base/uninterrupted.hpp"
#include "bootstrap/private_directory.hpp"

namespace tandem::bootstrap {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = "address";
constexpr const char* kUnfinished = "address.part";
constexpr std::string_view kFirstLine = "tandem launch 1";
constexpr std::size_t kMaxFileBytes = 8192;

/// FNV-1a: the same in all processes. The file holds the job itself.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string prefix() {
  return fmt::format("tandem-launch-{}-", ::geteuid());
}

Result<std::string> path_of(const std::string& job) {
  TANDEM_ASSIGN(const fs::path temporary, temporary_directory());
  return (temporary / fmt::format("{}{:016x}", prefix(), hash_of(job))).string();
}

Error refusal(const std::string& path, std::string_view fault) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("launch: '{}' {}: remove it, or set TMPDIR to another directory", path, fault));
}

/// Opens the directory. Invalid if there is none.
Result<UniqueFd> open_own(const std::string& path) {
  UniqueFd directory = open_directory(path);
  if (!directory.valid()) {
    if (errno == ENOENT) return directory;
    if (errno == ELOOP || errno == ENOTDIR)
      return tl::unexpected(refusal(path, "is no directory, or a link to one"));
    if (errno == EACCES) return tl::unexpected(refusal(path, "is not open to this user"));
    return tl::unexpected(system_refusal(fmt::format("launch: cannot open '{}'", path), errno));
  }
  struct stat status {};
  if (::fstat(directory.get(), &status) != 0)
    return tl::unexpected(system_refusal(fmt::format("launch: cannot look at '{}'", path), errno));
  if (status.st_uid != ::geteuid())
    return tl::unexpected(refusal(path, fmt::format("belongs to user {}", status.st_uid)));
  if ((status.st_mode & 077) != 0)
    return tl::unexpected(refusal(path, fmt::format("is open to others (mode {:o})", status.st_mode & 0777)));
  return directory;
}

/// Whatever else lies in it stays, and so does the directory then.
void remove(int directory, const std::string& path) {
  ::unlinkat(directory, kFile, 0);
  ::unlinkat(directory, kUnfinished, 0);
  ::rmdir(path.c_str());
}

/// Removes the directories of this user's processes that were killed.
void remove_left_over(const std::string& temporary, const std::string& own) {
  std::error_code end;
  for (fs::directory_iterator entry(temporary, end); !end && entry != fs::directory_iterator();
       entry.increment(end)) {
    const std::string path = entry->path();
    if (path == own || !entry->path().filename().string().starts_with(prefix())) continue;
    const UniqueFd directory = open_directory(path);
    if (directory.valid() && is_of_this_user(directory.get()) && try_lock(directory.get()) == 0)
      remove(directory.get(), path);
  }
}

/// Locks the directory, which it makes if there is none. Nothing if another process has it, or removes it.
Result<std::optional<UniqueFd>> try_take(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    const int code = errno;
    return fail(ErrorCode::kDriver,
                fmt::format("launch: cannot make the directory '{}': {}: set TMPDIR to a writable one", path,
                            std::strerror(code)),
                code);
  }
  TANDEM_ASSIGN(UniqueFd directory, open_own(path));
  if (!directory.valid()) return std::nullopt;
  if (try_lock(directory.get()) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    return tl::unexpected(system_refusal(fmt::format("launch: cannot lock '{}'", path), errno));
  }
  if (!is_named(directory.get(), path)) return std::nullopt;
  return std::optional(std::move(directory));
}

}  // namespace

Result<MeetingPlace> MeetingPlace::open(const std::string& job, Deadline deadline) {
  TANDEM_ASSIGN(const std::string temporary, temporary_directory());
  TANDEM_ASSIGN(std::string path, path_of(job));
  remove_left_over(temporary, path);
  for (;;) {
    TANDEM_ASSIGN(auto taken, try_take(path));
    if (taken) {
      // Nobody has the lock, so whoever wrote the file is gone.
      ::unlinkat(taken->get(), kFile, 0);
      ::unlinkat(taken->get(), kUnfinished, 0);
      return MeetingPlace(*std::move(taken), std::move(path), job);
    }
    if (is_interrupted()) return failf(ErrorCode::kPeerLost, "launch: rank 0 was interrupted");
    if (deadline.expired()) {
      return failf(
          ErrorCode::kTimeout,
          "launch: another launch of job '{}' has not ended its start: end it, or give each launch a "
          "name of its own by TANDEM_JOB",
          job);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

MeetingPlace::~MeetingPlace() {
  if (lock_.valid()) remove(lock_.get(), path_);
}

Result<void> MeetingPlace::publish(const LocalStoreAddress& address) const {
  const auto refuse = [&](int code) {
    return fail(ErrorCode::kDriver,
                fmt::format("launch: cannot write '{}/{}': {}", path_, kFile, std::strerror(code)), code);
  };
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd file(uninterrupted([&] { return ::openat(lock_.get(), kUnfinished, kFlags, 0600); }));
  if (!file.valid()) return refuse(errno);
  const std::string text = fmt::format("{}\n{}\n{}\n{}\n", kFirstLine, address.path, address.token, job_);
  const bool is_written = transfer_all(text.size(), [&](std::size_t done) {
    return ::write(file.get(), text.data() + done, text.size() - done);
  });
  if (!is_written) return refuse(errno);
  if (::renameat(lock_.get(), kUnfinished, lock_.get(), kFile) != 0) return refuse(errno);
  return {};
}

Result<std::optional<LocalStoreAddress>> read_address(const std::string& job) {
  TANDEM_ASSIGN(const std::string path, path_of(job));
  TANDEM_ASSIGN(const UniqueFd directory, open_own(path));
  if (!directory.valid()) return std::nullopt;
  const std::string name = fmt::format("{}/{}", path, kFile);
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const UniqueFd file(uninterrupted([&] { return ::openat(directory.get(), kFile, kFlags); }));
  if (!file.valid()) {
    if (errno == ENOENT) return std::nullopt;
    if (errno == ELOOP) return tl::unexpected(refusal(name, "is a link"));
    return tl::unexpected(system_refusal(fmt::format("launch: cannot open '{}'", name), errno));
  }
  struct stat status {};
  if (::fstat(file.get(), &status) != 0)
    return tl::unexpected(system_refusal(fmt::format("launch: cannot look at '{}'", name), errno));
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0)
    return tl::unexpected(refusal(name, "is not a file that only this user can read"));
  std::string text(kMaxFileBytes, '\0');
  const ssize_t length = uninterrupted([&] { return ::read(file.get(), text.data(), text.size()); });
  if (length < 0) return tl::unexpected(system_refusal(fmt::format("launch: cannot read '{}'", name), errno));
  text.resize(static_cast<std::size_t>(length));
  const std::size_t first = text.find('\n');
  const std::size_t second = first == std::string::npos ? first : text.find('\n', first + 1);
  const std::size_t third = second == std::string::npos ? second : text.find('\n', second + 1);
  if (third == std::string::npos || text.substr(0, first) != kFirstLine ||
      text.substr(third + 1) != job + "\n") {
    return tl::unexpected(refusal(name, fmt::format("does not tell of job '{}'", job)));
  }
  return LocalStoreAddress{text.substr(first + 1, second - first - 1),
                           text.substr(second + 1, third - second - 1)};
}

}  // namespace tandem::bootstrap
