#pragma once

#include <cstdint>
#include <tandem/base/tensor.hpp>
#include <tandem/device/stream.hpp>

namespace tandem::cli {

/// activated = silu(gate) * up / scale; contiguous, equal sizes; enqueued.
struct Activation {
  TensorView gate;       ///< bf16
  TensorView up;         ///< bf16
  TensorView activated;  ///< bf16 or f8e4m3, which saturates
  float scale = 1;
};
[[nodiscard]] Result<void> enqueue_activation(const Activation& activation, Stream& stream);

/// Makes what enqueue_activation() needs: a kernel that is loaded at its first launch would wait for kernels
/// that wait for other ranks.
[[nodiscard]] Result<void> prepare_activation(const Device& device);

}  // namespace tandem::cli
