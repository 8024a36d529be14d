#pragma once

#include <cstddef>
#include <cstdint>
#include <tandem/base/tensor.hpp>

#include "device/copy_loops.hpp"

namespace tandem::cpu {

/// A strided copy, small enough to travel inside a task.
class CopyPlan {
 public:
  /// Views of equal sizes and type, not empty.
  CopyPlan(const TensorView& from, const TensorView& to)
      : from_(from.data_as<const std::byte>()),
        to_(to.data_as<std::byte>()),
        loops_(CopyLoops::between(from, to)) {}

  void run() const;

  /// Bytes that are contiguous on both sides.
  [[nodiscard]] std::int64_t run_bytes() const { return loops_.run_bytes; }
  /// Loops round the runs.
  [[nodiscard]] int num_loops() const { return loops_.num_loops; }

 private:
  void run_loops(int loop_idx, const std::byte* from, std::byte* to) const;
  void run_innermost(const CopyLoops::Loop& loop, const std::byte* from, std::byte* to) const;

  const std::byte* from_;
  std::byte* to_;
  CopyLoops loops_;
};

}  // namespace tandem::cpu
