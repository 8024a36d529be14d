#pragma once

#include <array>
#include <cstdint>
#include <tandem/base/tensor.hpp>

namespace tandem {

/// A strided copy as a nest of loops round runs of bytes. Dimensions are put in the order of the
/// destination's strides, and those without holes on both sides are merged.
struct CopyLoops {
  struct Loop {
    std::int64_t size = 1;
    std::int64_t from_stride_bytes = 0;
    std::int64_t to_stride_bytes = 0;
  };

  std::int64_t run_bytes = 0;        ///< contiguous on both sides
  int num_loops = 0;                 ///< round the runs
  std::array<Loop, kMaxDims> loops;  ///< outermost first

  /// Views of equal sizes and type, not empty.
  [[nodiscard]] static CopyLoops between(const TensorView& from, const TensorView& to);
};

}  // namespace tandem
