#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <tandem/base/tensor.hpp>

namespace tandem::cpu {

/// A strided copy as a nest of loops round runs of bytes: small enough to travel inside a task. Dimensions
/// are put in the order of the destination's strides, and those without holes on both sides are merged.
class CopyPlan {
 public:
  /// Views of equal sizes and type, not empty.
  CopyPlan(const TensorView& from, const TensorView& to);

  void run() const;

  /// Bytes that are contiguous on both sides.
  [[nodiscard]] std::int64_t run_bytes() const { return run_bytes_; }
  /// Loops round the runs.
  [[nodiscard]] int num_loops() const { return num_loops_; }

 private:
  struct Loop {
    std::int64_t size = 1;
    std::int64_t from_stride_bytes = 0;
    std::int64_t to_stride_bytes = 0;
  };

  void run_loops(int loop_idx, const std::byte* from, std::byte* to) const;
  void run_innermost(const Loop& loop, const std::byte* from, std::byte* to) const;

  const std::byte* from_;
  std::byte* to_;
  std::int64_t run_bytes_;
  int num_loops_ = 0;
  std::array<Loop, kMaxDims> loops_;  // outermost first
};

}  // namespace tandem::cpu
