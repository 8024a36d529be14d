#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace tandem {

/// Repeats a call that reads or writes a part, from where it stopped and after interruptions, until all is
/// done. `call(done)` gets the number of bytes done so far and returns as ::read does. False with errno set;
/// at the end of a file errno is EIO.
template <class Call>
[[nodiscard]] bool transfer_all(std::size_t num_bytes, Call call) {
  std::size_t done = 0;
  while (done < num_bytes) {
    const ssize_t count = call(done);
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = EIO;
    if (count <= 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

/// Reads all of `num_bytes` from `offset` of a file.
[[nodiscard]] inline bool read_at(int fd, void* bytes, std::size_t num_bytes, off_t offset) {
  return transfer_all(num_bytes, [&](std::size_t done) {
    return ::pread(fd, static_cast<std::byte*>(bytes) + done, num_bytes - done,
                   offset + static_cast<off_t>(done));
  });
}

/// Writes all of `num_bytes` at `offset` of a file.
[[nodiscard]] inline bool write_at(int fd, const void* bytes, std::size_t num_bytes, off_t offset) {
  return transfer_all(num_bytes, [&](std::size_t done) {
    return ::pwrite(fd, static_cast<const std::byte*>(bytes) + done, num_bytes - done,
                    offset + static_cast<off_t>(done));
  });
}

}  // namespace tandem
