#pragma once

// A kernel that begins while the one before it in its stream still runs.
//
// The one before calls let_next_kernel_begin(). The one behind has to be launched with
// cudaLaunchAttributeProgrammaticStreamSerialization, or it begins when the one before has ended, as ever.
// It begins once every block of the one before has called, so all of those run already: the one behind may
// take all other room of the GPU.
//
// Memory order: the one behind sees what came before the one before, which began when that had ended. It sees
// what the one before writes once it has called await_kernel_before(). Some thread of it must call that
// before the kernel ends, since what stands behind waits for this kernel alone.

namespace tandem::cuda {

/// By all threads.
__device__ inline void let_next_kernel_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// Until the kernel before has ended and all that it wrote is there for this thread.
__device__ inline void await_kernel_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace tandem::cuda
