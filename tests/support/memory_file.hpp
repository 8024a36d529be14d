#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tandem/base/unique_fd.hpp>

namespace tandem::tests {

/// A file without a disk, to write thousands of times.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("tandem_test", MFD_CLOEXEC)) {}
  [[nodiscard]] std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }
  void set(std::string_view bytes) const {
    const bool is_set = ::ftruncate(fd_.get(), 0) == 0 && ::pwrite(fd_.get(), bytes.data(), bytes.size(),
                                                                   0) == static_cast<ssize_t>(bytes.size());
    if (!is_set) throw std::runtime_error("cannot write a file in memory");
  }

 private:
  UniqueFd fd_;
};

}  // namespace tandem::tests
