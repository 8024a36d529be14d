#include "row_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tandem/base/unique_fd.hpp>
#include <vector>

#include "base/transfer.hpp"
#include "base/uninterrupted.hpp"
#include "failure.hpp"
#include "io/file_lock.hpp"
#include "io/whole_file.hpp"
#include "outputs.hpp"
#include "version.hpp"

namespace tandem::cli {
namespace {

/// A row as a file keeps it. People's own words, such as a file name in a command, may be no UTF-8, which
/// JSON has to be.
std::string line_of(const nlohmann::json& row) {
  return row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

tl::unexpected<Error> system_error(const char* what, int number) {
  return fail(ErrorCode::kDriver, fmt::format("{}: {}", what, std::strerror(number)), number);
}

/// The file, open at its end; invalid if there is none. It never blocks on a pipe.
Result<UniqueFd> open_rows(const std::string& path) {
  struct stat status {};
  // Not opened first: to open some devices does something.
  const bool is_there = ::stat(path.c_str(), &status) == 0;
  if (!is_there && errno != ENOENT) return system_error("cannot open it", errno);
  if (is_there && !S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kInvalidArgument,
                S_ISDIR(status.st_mode) ? "a folder, not a regular file" : "not a regular file");
  }
  if (!is_there) return UniqueFd();
  constexpr int kFlags = O_RDWR | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  UniqueFd file(uninterrupted([&] { return ::open(path.c_str(), kFlags); }));
  if (!file.valid()) return system_error("cannot open it", errno);
  return file;
}

bool has_the_name(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

/// What is behind the last line's end: nothing, or a row that a killed program left cut off.
struct Tail {
  off_t begin = 0;
  std::string text;

  [[nodiscard]] bool is_whole_row() const { return nlohmann::json::accept(text); }
};

Result<Tail> tail_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return system_error("cannot stat it", errno);
  Tail tail{status.st_size, {}};
  constexpr off_t kBlock = off_t{64} << 10;
  while (tail.begin > 0) {
    const off_t from = std::max<off_t>(0, tail.begin - kBlock);
    std::string block(static_cast<std::size_t>(tail.begin - from), '\0');
    if (!read_at(fd, block.data(), block.size(), from))
      return system_error("cannot read its last row", errno);
    const std::size_t newline = block.rfind('\n');
    const std::size_t kept = newline == std::string::npos ? 0 : newline + 1;
    tail.text.insert(0, block, kept);
    tail.begin = from + static_cast<off_t>(kept);
    if (newline != std::string::npos) break;
  }
  if (!tail.text.empty() && !tail.is_whole_row() && tail.text.front() != '{')
    return fail(ErrorCode::kInvalidArgument, "its last line is no JSON: it is no file of rows");
  return tail;
}

/// An open file of rows, which no other program of this kind changes meanwhile.
class LockedRows {
 public:
  static Result<LockedRows> open(const std::string& path) {
    constexpr std::chrono::seconds kPatience{10};
    constexpr int kMostTries = 100;
    for (int i = 0; i < kMostTries; ++i) {
      auto file = open_rows(path);
      if (!file) return tl::unexpected(file.error());
      const bool is_made = !file->valid();
      // Not through a symbolic link to nothing.
      constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_NOCTTY | O_CLOEXEC;
      if (is_made) *file = UniqueFd(uninterrupted([&] { return ::open(path.c_str(), kFlags, 0666); }));
      if (!file->valid() && errno == EEXIST) continue;  // another program was quicker
      if (!file->valid()) return system_error("cannot make it", errno);
      LockedRows rows(path, std::move(*file), is_made);
      if (auto locked = io::lock_file(rows.file_.get(), kPatience); !locked)
        return tl::unexpected(locked.error());
      if (has_the_name(rows.file_.get(), path)) return rows;  // else it was replaced or removed meanwhile
    }
    return fail(ErrorCode::kDriver, "it appears and disappears, or is a symbolic link to nothing");
  }

  /// Nothing of `line` stays unless it is there whole, and on the disk.
  Result<void> append(const std::string& line) {
    if (auto ready = end_last_line(); !ready) return ready;
    auto written = write(separator_ + line);
    if (written) return {};
    static_cast<void>(cut_off());
    if (is_made_ && end_ == 0) ::unlink(path_.c_str());
    return written;
  }

 private:
  LockedRows(std::string path, UniqueFd file, bool is_made)
      : path_(std::move(path)), file_(std::move(file)), is_made_(is_made) {}

  /// Goes to where a row can begin. A row that is cut off goes.
  Result<void> end_last_line() {
    const auto tail = tail_of(file_.get());
    if (!tail) return tl::unexpected(tail.error());
    const bool is_whole = tail->is_whole_row();
    if (is_whole) separator_ = "\n";
    end_ = tail->begin + (is_whole ? static_cast<off_t>(tail->text.size()) : 0);
    if (is_whole || tail->text.empty()) return {};
    if (cut_off() != 0) return system_error("cannot remove its cut-off row", errno);
    return {};
  }

  int cut_off() {
    return uninterrupted([&] { return ::ftruncate(file_.get(), end_); });
  }

  Result<void> write(const std::string& bytes) {
    const bool is_written = transfer_all(bytes.size(), [&](std::size_t done) {
      return ::write(file_.get(), bytes.data() + done, bytes.size() - done);
    });
    if (!is_written) {
      const int number = errno;
      return fail(ErrorCode::kDriver,
                  fmt::format("cannot add a row of {} bytes: {}", bytes.size(), std::strerror(number)),
                  number);
    }
    if (uninterrupted([&] { return ::fsync(file_.get()); }) != 0 && errno != EINVAL)
      return system_error("cannot bring a row to the disk", errno);
    return {};
  }

  std::string path_;
  UniqueFd file_;
  bool is_made_;
  off_t end_ = 0;
  std::string separator_;
};

}  // namespace

Result<void> check_rows(const std::string& path) {
  auto file = open_rows(path);
  if (!file) return tl::unexpected(file.error());
  if (file->valid()) {
    const auto tail = tail_of(file->get());
    return tail ? Result<void>() : tl::unexpected(tail.error());
  }
  // As for any file that is to be made; it also refuses a link to nothing.
  const auto can = io::WholeFile::create(path);
  return can ? Result<void>() : tl::unexpected(can.error());
}

RowFile::RowFile(const std::string& path) : path_(path) {
  claim_rows("--json", path);
}

void RowFile::append(const nlohmann::json& row) const {
  if (path_.empty()) return;
  const Writing writing(path_);
  auto rows = LockedRows::open(path_);
  const Result<void> done = rows ? rows->append(line_of(row)) : tl::unexpected(rows.error());
  if (done) return writing.kept_row();
  throw Failure(kFailed, Error(done.error().code(), fmt::format("--json {}: {}", path_, done.error().text()),
                               done.error().native_code()));
}

void add_circumstances(nlohmann::json& row, const Invocation& invocation, const JobPlace& place) {
  if (place.placement.kind == DeviceKind::kCuda) {
    row["gpu"] = invocation.machine.gpus.front();
    row["gpu_states"] = gpu_states();
    row["loopback"] = place.placement.loopback;
  }
  row["cpu"] = invocation.machine.cpu_model;
  row["cores"] = invocation.machine.usable_cores();
  row["commit"] = kCommit;
  // Where a row is kept says nothing about how it was measured.
  std::vector<std::string> arguments = invocation.arguments;
  std::erase_if(arguments, [](const std::string& argument) { return argument.starts_with("--json="); });
  const auto flag = std::find(arguments.begin(), arguments.end(), "--json");
  if (flag != arguments.end()) arguments.erase(flag, std::min(flag + 2, arguments.end()));
  row["command"] = fmt::format("tandem {}", fmt::join(arguments, " "));
}

}  // namespace tandem::cli
