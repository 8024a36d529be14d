#include "shared_bytes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <string_view>

#include "base/memory_pages.hpp"
#include "base/system_refusal.hpp"
#include "failure.hpp"

namespace tandem::cli {
namespace {

constexpr std::string_view kWhat = "shared memory for the result";

[[noreturn]] void refused(const char* call, std::int64_t num_bytes, int code) {
  throw Failure(kFailed, system_refusal(fmt::format("{}: {} of {} bytes", kWhat, call, num_bytes), code));
}

UniqueFd create_file(std::int64_t num_bytes) {
  auto file = create_memory_file("tandem result", kWhat, num_bytes);
  if (!file) throw Failure(exit_code_of(file.error()), file.error());
  return *std::move(file);
}

}  // namespace

SharedBytes::SharedBytes(std::int64_t num_bytes) : SharedBytes(create_file(num_bytes), num_bytes) {}

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
  if (data == MAP_FAILED) refused("mmap", num_bytes_, errno);
  data_ = data;
}

SharedBytes SharedBytes::open(Store& store, const std::string& key) {
  UniqueFd fd = take(store.get_file(key, Deadline::after(std::chrono::seconds(10))));
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) refused("fstat", 0, errno);
  return {std::move(fd), status.st_size};
}

void SharedBytes::publish(Store& store, const std::string& key) const {
  take(store.set_file(key, fd_.get()));
}

}  // namespace tandem::cli
