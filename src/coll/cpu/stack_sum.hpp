#pragma once

#include <cstdint>
#include <tandem/base/tensor.hpp>

namespace tandem::coll::cpu {

/// reduce_stack() as its kernel sees it: small enough to be captured by a task.
struct StackSum {
  const void* stack = nullptr;    ///< [num_layers, numel of out], contiguous; or, where that is null,
  void* const* blocks = nullptr;  ///< layer i, contiguous, lies in blocks[i]
  std::int64_t offset_bytes = 0;  ///< so many bytes behind its start
  DType stack_dtype = DType::kF32;
  std::int64_t num_layers = 0;
  TensorView out;  ///< at least one element; any strides
  float divisor = 1.0F;
  const void* bias = nullptr;  ///< of out's type, along its last dim; null: none
  std::int64_t bias_stride = 0;
};

void add_up(const StackSum& sum);

}  // namespace tandem::coll::cpu
