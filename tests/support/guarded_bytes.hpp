#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <tandem/base/tensor.hpp>
#include <vector>

namespace tandem::testing {

/// Host memory between two guards, 0xff (a NaN in every float type) until it is written.
class GuardedBytes {
 public:
  static constexpr std::int64_t kGuardBytes = 64;
  static constexpr std::byte kGuard{0xa5};

  explicit GuardedBytes(std::int64_t num_bytes)
      : num_bytes_(num_bytes), bytes_(static_cast<std::size_t>(num_bytes + 2 * kGuardBytes), kGuard) {
    std::memset(data(), 0xff, static_cast<std::size_t>(num_bytes));
  }
  GuardedBytes(const Dims& sizes, DType dtype) : GuardedBytes(numel(sizes) * size_bytes(dtype)) {}

  [[nodiscard]] std::byte* data() { return bytes_.data() + kGuardBytes; }
  [[nodiscard]] std::int64_t size_bytes_held() const { return num_bytes_; }
  [[nodiscard]] TensorView view(const Dims& sizes, DType dtype) {
    return TensorView::contiguous(data(), sizes, dtype);
  }

  void fill_random(unsigned seed) {
    std::mt19937 random(seed);
    for (std::int64_t i = 0; i < num_bytes_; ++i) data()[i] = static_cast<std::byte>(random());
  }
  [[nodiscard]] bool guards_are_whole() const {
    for (std::int64_t i = 0; i < kGuardBytes; ++i) {
      if (bytes_[static_cast<std::size_t>(i)] != kGuard) return false;
      if (bytes_[static_cast<std::size_t>(kGuardBytes + num_bytes_ + i)] != kGuard) return false;
    }
    return true;
  }
  [[nodiscard]] bool is_untouched() {
    for (std::int64_t i = 0; i < num_bytes_; ++i) {
      if (data()[i] != std::byte{0xff}) return false;
    }
    return guards_are_whole();
  }

 private:
  std::int64_t num_bytes_;
  std::vector<std::byte> bytes_;
};

}  // namespace tandem::testing
