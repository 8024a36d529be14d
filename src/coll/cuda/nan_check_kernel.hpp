#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <tandem/symm/kernel_control.hpp>

#include "base/nan_rule.hpp"
#include "coll/element_rows.hpp"
#include "device/cuda/kernel_list.hpp"

namespace tandem::coll::cuda {

/// One look at every element of a tensor. What is found goes into the report of the rank, behind which its
/// fault record says that it is there.
struct NanCheck {
  ElementRows rows;
  NanRule rule;
  int element_bytes = 1;
  /// Elements lie at multiples of their size, and those of a row are neighbours: loads take 16 bytes.
  bool by_vectors = false;
  symm::KernelControl* control = nullptr;
  symm::NanReport report = {};  ///< but for what is found
};

/// Enqueues on `stream` of the current device, which has so many multiprocessors. There is at least one
/// element.
[[nodiscard]] cudaError_t launch_nan_check(const NanCheck& check, int num_multiprocessors,
                                           cudaStream_t stream);

[[nodiscard]] tandem::cuda::KernelList nan_check_kernels();

}  // namespace tandem::coll::cuda
