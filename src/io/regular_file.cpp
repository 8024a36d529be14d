#include "io/regular_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/uninterrupted.hpp"
#include "io/errors.hpp"

namespace tandem::io {

Result<RegularFile> open_regular(const std::filesystem::path& path, Trust trust) {
  const bool is_choosy = trust == Trust::kOwnOnly;
  // O_NONBLOCK: opening a pipe that nobody writes to returns at once; it means nothing to a regular file.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (is_choosy ? O_NOFOLLOW : 0);
  UniqueFd fd(uninterrupted([&] { return ::open(path.c_str(), flags); }));
  if (!fd.valid() && is_choosy && errno == ELOOP)
    return fail(ErrorCode::kInvalidArgument, "a symbolic link, which is not followed: remove it");
  if (!fd.valid()) return system_error("cannot open it", errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return system_error("cannot stat it", errno);
  if (S_ISDIR(status.st_mode))
    return fail(ErrorCode::kInvalidArgument, "a folder, not a regular file: name a file in it");
  if (!S_ISREG(status.st_mode))
    return fail(ErrorCode::kInvalidArgument, "not a regular file: copy it to one first");
  if (is_choosy && status.st_uid != ::geteuid() && status.st_uid != 0) {
    return failf(ErrorCode::kInvalidArgument,
                 "it belongs to user {}, and this is user {}: remove it, or name another folder",
                 status.st_uid, ::geteuid());
  }
  return RegularFile{std::move(fd), static_cast<std::size_t>(status.st_size)};
}

Result<std::string> read_small_file(const std::filesystem::path& path, std::size_t most_bytes, Trust trust) {
  TANDEM_ASSIGN(const RegularFile file, open_regular(path, trust));
  const auto too_large = [&](std::size_t num_bytes) {
    return failf(ErrorCode::kParse, "{} bytes, need at most {}", num_bytes, most_bytes);
  };
  if (file.size_bytes > most_bytes) return too_large(file.size_bytes);
  // One byte more than it had, to see its end; it may have grown since it was opened.
  std::string text(file.size_bytes + 1, '\0');
  std::size_t filled = 0;
  for (;;) {
    const ssize_t got = ::read(file.fd.get(), text.data() + filled, text.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error("cannot read it", errno);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
    if (filled > most_bytes) return too_large(filled);
    if (filled == text.size()) text.resize(std::min(2 * text.size(), most_bytes + 1));
  }
  text.resize(filled);
  return text;
}

}  // namespace tandem::io
