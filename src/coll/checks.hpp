#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

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

/// An input that peers read in place.
struct SymmetricInput {
  const char* op_name;
  const TensorView& view;
  std::int64_t largest_bytes = 0;  ///< of the rank that has the largest, where they differ
};
/// Bytes from the handle's start to the input, a multiple of its elements. Errors: kInvalidArgument for no
/// handle, one of another group, or an input that is not in its block.
[[nodiscard]] Result<std::int64_t> offset_in_handle(const SymmetricInput& input, const symm::Handle* handle,
                                                    const Group& group);

/// One dim is left for the stack of all ranks' inputs.
[[nodiscard]] Result<void> check_stackable(const char* op, const TensorView& input);

[[nodiscard]] Result<void> check_reduce_stack(const ReduceStackArgs& args, const Stream& stream);

}  // namespace tandem::coll
