#pragma once

#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/stream.hpp>

namespace tandem::coll {

/// What reduce_scatter, all_reduce and reduce_stack have in common.
struct SumCheck {
  const char* op_name;
  DType in_dtype;
  const TensorView& out;
  ReduceOp op;
  const TensorView* bias;  ///< null: none
};
[[nodiscard]] Result<void> check_sum(const SumCheck& sum, const Stream& stream);

[[nodiscard]] Result<void> check_reduce_stack(const ReduceStackArgs& args, const Stream& stream);

}  // namespace tandem::coll
