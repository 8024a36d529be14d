#include "shared_bytes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "failure.hpp"

namespace tandem::cli {
namespace {

[[noreturn]] void no_memory(std::int64_t num_bytes, int code) {
  throw Failure(kFailed,
                Error(ErrorCode::kOutOfMemory,
                      fmt::format("no {} bytes of shared memory for the result: {}; use smaller tensors or "
                                  "raise the memory limit",
                                  num_bytes, std::strerror(code)),
                      code));
}

}  // namespace

SharedBytes::SharedBytes(std::int64_t num_bytes)
    : fd_(memfd_create("tandem result", MFD_CLOEXEC)), num_bytes_(num_bytes) {
  if (!fd_.valid()) no_memory(num_bytes, errno);
  if (num_bytes == 0) return;
  // Reserves the pages now: a full memory is an error here and not a SIGBUS in a rank.
  if (const int code = posix_fallocate(fd_.get(), 0, num_bytes); code != 0) no_memory(num_bytes, code);
  map();
}

SharedBytes::SharedBytes(UniqueFd fd, std::int64_t num_bytes) : fd_(std::move(fd)), num_bytes_(num_bytes) {
  if (num_bytes > 0) map();
}

SharedBytes::SharedBytes(SharedBytes&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)) {}

SharedBytes::~SharedBytes() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(num_bytes_));
}

void SharedBytes::map() {
  void* data =
      mmap(nullptr, static_cast<std::size_t>(num_bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (data == MAP_FAILED) no_memory(num_bytes_, errno);
  data_ = data;
}

SharedBytes SharedBytes::open(Store& store, const std::string& key) {
  UniqueFd fd = take(store.get_file(key, Deadline::after(std::chrono::seconds(10))));
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) no_memory(0, errno);
  return {std::move(fd), status.st_size};
}

void SharedBytes::publish(Store& store, const std::string& key) const {
  take(store.set_file(key, fd_.get()));
}

}  // namespace tandem::cli
