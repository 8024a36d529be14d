#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <vector>

namespace tandem::testing {

/// While it lives this process can open that many files, no more.
class FileLimit {
 public:
  explicit FileLimit(int more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    int highest = 0;
    for (int fd = 0; fd < kMostLookedAt; ++fd) {
      if (::fcntl(fd, F_GETFD) >= 0) highest = fd;
    }
    // Numbers below that are free would count too.
    int next = open_any();
    for (; next >= 0 && next < highest; next = open_any()) fillers_.push_back(next);
    ::close(next);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(highest + 1 + more);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_NOFILE, &before_);
    for (const int fd : fillers_) ::close(fd);
  }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  static constexpr int kMostLookedAt = 4096;
  static int open_any() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }

  rlimit before_{};
  std::vector<int> fillers_;
};

}  // namespace tandem::testing
