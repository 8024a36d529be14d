#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>

namespace tandem::cuda {

/// The numbers 0, 1, ... in a GPU's memory: what a copy engine takes a word from that is to be written to
/// another GPU. The driver's stream writes refuse memory that was mapped by the virtual memory functions, as
/// peers' memory is.
class NumberTable {
 public:
  static constexpr std::uint32_t kSize = (1U << 20) + 1;
  /// Of this GPU, one a process. Made at the first call, which waits for the GPU to fill it; never given
  /// back, since that would wait for every kernel of the GPU.
  [[nodiscard]] static Result<const std::uint32_t*> of(int gpu);
};

}  // namespace tandem::cuda
