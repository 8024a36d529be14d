#pragma once

// The twin of device/cuda/next_kernel.cuh for the simulated GPU, found before it. There a kernel begins when
// the one before has ended.

namespace tandem::cuda {

inline void let_next_kernel_begin() {}

inline void await_kernel_before() {}

}  // namespace tandem::cuda
