#pragma once

// Two kernels in a row on one stream, of which the second begins while the first still runs.
//
// The first calls let_next_kernel_begin(). The second is launched with
// cudaLaunchAttributeProgrammaticStreamSerialization. It then begins once every block of the first has
// called. So all those blocks run already, and the second may take all other room of the GPU. Without the
// attribute the second begins when the first has ended. Programs say where it is allowed: see
// check_early_beginnings().
//
// Memory order: the first began when all earlier work of the stream had ended, so the second sees what that
// work wrote. It sees what the first wrote once it has called await_kernel_before(). Some thread of the
// second has to call that before the second ends, since later work waits for the second alone. That wait has
// no deadline; the first kernel must have one.

namespace tandem::cuda {

/// By all threads.
__device__ inline void let_next_kernel_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// Until the first kernel has ended and all that it wrote is there for this thread.
__device__ inline void await_kernel_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace tandem::cuda
