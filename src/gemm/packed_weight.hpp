#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tandem/base/error.hpp>
#include <vector>

namespace tandem::gemm {

/// How a 4-bit weight lies in memory. It is cut into panels of kPanel output features, the last one filled up
/// with zeros. A panel is its groups, one after another:
///
///   nibbles  [group / 8][kPanel] of 4 bytes: the low halves are k 0 to 3 of the eight, the high ones 4 to 7
///   scales   f32 [kPanel]
///   sums     of (q - 8) over the group: i16 [kPanel] in small groups, else i32 [kPanel]
class PackedWeight {
 public:
  static constexpr std::int64_t kPanel = 32;
  /// Groups whose sums, of the weight or of a row, fit in 16 bits.
  static constexpr std::int64_t kSmallGroup = 256;
  /// Of sums that fit in 32 bits.
  static constexpr std::int64_t kMostGroup = 1 << 17;
  static constexpr std::int64_t kStepBytes = 4 * kPanel;  ///< of eight k

  static Result<PackedWeight> make(std::int64_t n, std::int64_t k, std::int64_t group);

  [[nodiscard]] std::int64_t n() const { return n_; }
  [[nodiscard]] std::int64_t k() const { return k_; }
  [[nodiscard]] std::int64_t group() const { return group_; }
  [[nodiscard]] std::int64_t num_groups() const { return group_ == 0 ? 0 : k_ / group_; }
  [[nodiscard]] std::int64_t num_panels() const { return (n_ + kPanel - 1) / kPanel; }
  [[nodiscard]] bool has_small_groups() const { return group_ <= kSmallGroup; }
  [[nodiscard]] std::int64_t nibble_bytes() const { return group_ / 8 * kStepBytes; }
  [[nodiscard]] std::int64_t group_bytes() const {
    return nibble_bytes() + kPanel * static_cast<std::int64_t>(sizeof(float)) +
           kPanel * (has_small_groups() ? 2 : 4);
  }
  [[nodiscard]] std::int64_t panel_bytes() const { return num_groups() * group_bytes(); }
  [[nodiscard]] std::int64_t num_bytes() const {
    return num_panels() * panel_bytes() + static_cast<std::int64_t>(bias_.size() * sizeof(float));
  }

  [[nodiscard]] std::byte* panel(std::int64_t idx) { return memory_.get() + idx * panel_bytes(); }
  [[nodiscard]] const std::byte* panel(std::int64_t idx) const { return memory_.get() + idx * panel_bytes(); }
  /// [n] filled up to whole panels, or empty.
  [[nodiscard]] std::vector<float>& bias() { return bias_; }
  [[nodiscard]] const std::vector<float>& bias() const { return bias_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };

  std::int64_t n_ = 0;
  std::int64_t k_ = 0;
  std::int64_t group_ = 0;
  std::unique_ptr<std::byte[], Free> memory_;  ///< 64-byte aligned
  std::vector<float> bias_;
};

}  // namespace tandem::gemm
