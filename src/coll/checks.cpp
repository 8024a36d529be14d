#include <algorithm>
#include <tandem/base/shard.hpp>

#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "coll/checks.hpp"
#include "coll/steps.hpp"
#include "device/check_view.hpp"

namespace tandem::coll {
namespace {

bool is_summable(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || is_f8(dtype);
}

Result<void> check_contiguous(const char* op, const char* name, const TensorView& view) {
  if (view.is_contiguous()) return {};
  return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, need it contiguous", op, name, to_string(view));
}

Result<void> check_sizes(const char* op, const char* name, const TensorView& view, const Dims& want) {
  if (view.sizes == want) return {};
  return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, need {}", op, name, to_string(view.sizes),
               to_string(want));
}

}  // namespace

Result<void> check_stackable(const char* op, const TensorView& input) {
  if (input.dim() >= 1 && input.dim() < kMaxDims) return {};
  return failf(ErrorCode::kInvalidArgument, "{}: input is {}, need 1 to {} dims", op, to_string(input),
               kMaxDims - 1);
}

Result<std::int64_t> offset_in_handle(const SymmetricInput& input, const symm::Handle* handle,
                                      const Group& group) {
  if (handle == nullptr || !handle->is_of(group)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: input_handle is {}; need the input's handle in this group, from symm::rendezvous()",
                 input.op_name, handle == nullptr ? "null" : "another group's");
  }
  const auto begin =
      reinterpret_cast<std::intptr_t>(handle->buffer_ptrs()[static_cast<std::size_t>(group.rank())]);
  const std::intptr_t at = reinterpret_cast<std::intptr_t>(input.view.data) - begin;
  const std::int64_t num_bytes = std::max(input.view.size_bytes(), input.largest_bytes);
  const std::int64_t offset_bytes = at - handle->offset_bytes();
  if (offset_bytes < 0 || offset_bytes % size_bytes(input.view.dtype) != 0 ||
      at + num_bytes > handle->buffer_size_bytes()) {
    return failf(
        ErrorCode::kInvalidArgument,
        "{}: input is not symmetric: its {} bytes at {} are not in the handle's block of {} bytes at {}",
        input.op_name, num_bytes, input.view.data, handle->buffer_size_bytes(),
        reinterpret_cast<void*>(begin));
  }
  return offset_bytes;
}

Result<void> check_all_gather(const AllGatherArgs& args, const Group& group, const Stream& stream) {
  constexpr const char* kOp = "all_gather";
  TANDEM_TRY(check_view(kOp, "input", args.input, stream.device()));
  TANDEM_TRY(check_view(kOp, "output", args.output, stream.device()));
  if (args.output.dim() < 1 || args.input.dtype != args.output.dtype) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: input is {}, output {}: need equal types and at least one dim", kOp,
                 to_string(args.input), to_string(args.output));
  }
  Dims want = args.output.sizes;
  want[0] = shard_of(args.output.size(0), group.size(), group.rank()).size;
  if (args.input.sizes != want) {
    return failf(ErrorCode::kInvalidArgument, "{}: input is {} on rank {} of {}, need {} for an output of {}",
                 kOp, to_string(args.input.sizes), group.rank(), group.size(), to_string(want),
                 to_string(args.output.sizes));
  }
  TANDEM_TRY(check_contiguous(kOp, "input", args.input));
  TANDEM_TRY(check_contiguous(kOp, "output", args.output));
  const Shard mine = shard_of(args.output.size(0), group.size(), group.rank());
  if (is_same_memory(args.input, args.output.narrow(0, mine.offset, mine.size))) return {};
  return check_apart(kOp, {"output", -1, &args.output}, {"input", -1, &args.input});
}

Result<void> check_reduce_scatter(const ReduceScatterArgs& args, const Group& group, const Stream& stream) {
  constexpr const char* kOp = "reduce_scatter";
  TANDEM_TRY(check_view(kOp, "input", args.input, stream.device()));
  TANDEM_TRY(check_stackable(kOp, args.input));
  Dims want = args.input.sizes;
  const Shard mine = shard_of(args.input.size(0), group.size(), group.rank());
  want[0] = mine.size;
  if (args.output.sizes != want) {
    return failf(ErrorCode::kInvalidArgument, "{}: output is {} on rank {} of {}, need {} for an input of {}",
                 kOp, to_string(args.output.sizes), group.rank(), group.size(), to_string(want),
                 to_string(args.input.sizes));
  }
  TANDEM_TRY(check_contiguous(kOp, "input", args.input));
  TANDEM_TRY(check_sum({.op_name = kOp,
                        .in_dtype = args.input.dtype,
                        .out = args.output,
                        .op = args.op,
                        .bias = args.bias ? &*args.bias : nullptr},
                       stream));
  if (is_same_memory(args.output, args.input.narrow(0, mine.offset, mine.size))) return {};
  return check_apart(kOp, {"output", -1, &args.output}, {"input", -1, &args.input});
}

Result<void> check_all_reduce(const AllReduceArgs& args, const Stream& stream) {
  constexpr const char* kOp = "all_reduce";
  TANDEM_TRY(check_view(kOp, "input", args.input, stream.device()));
  TANDEM_TRY(check_stackable(kOp, args.input));
  TANDEM_TRY(check_sizes(kOp, "output", args.output, args.input.sizes));
  TANDEM_TRY(check_contiguous(kOp, "input", args.input));
  TANDEM_TRY(check_contiguous(kOp, "output", args.output));
  TANDEM_TRY(check_sum({.op_name = kOp,
                        .in_dtype = args.input.dtype,
                        .out = args.output,
                        .op = args.op,
                        .bias = args.bias ? &*args.bias : nullptr},
                       stream));
  if (is_same_memory(args.output, args.input)) return {};
  return check_apart(kOp, {"output", -1, &args.output}, {"input", -1, &args.input});
}

Result<void> check_reduce_stack(const ReduceStackArgs& args, const Stream& stream) {
  constexpr const char* kOp = "reduce_stack";
  TANDEM_TRY(check_view(kOp, "stack", args.stack, stream.device()));
  if (args.stack.dim() < 1 || args.stack.size(0) < 1) {
    return failf(ErrorCode::kInvalidArgument, "{}: stack is {}, need at least one layer", kOp,
                 to_string(args.stack));
  }
  Dims want = args.stack.sizes;
  want.erase(0);
  TANDEM_TRY(check_sizes(kOp, "out", args.out, want));
  TANDEM_TRY(check_contiguous(kOp, "stack", args.stack));
  TANDEM_TRY(check_sum({.op_name = kOp,
                        .in_dtype = args.stack.dtype,
                        .out = args.out,
                        .op = args.op,
                        .bias = args.bias ? &*args.bias : nullptr},
                       stream));
  return check_apart(kOp, {"output", -1, &args.out}, {"stack", -1, &args.stack});
}

Result<void> check_sum(const SumCheck& sum, const Stream& stream) {
  TANDEM_TRY(check_view(sum.op_name, "output", sum.out, stream.device()));
  const bool types_fit =
      sum.in_dtype == sum.out.dtype || sum.in_dtype == DType::kF32 || sum.out.dtype == DType::kF32;
  if (!is_summable(sum.in_dtype) || !is_summable(sum.out.dtype) || !types_fit) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: input is {} and output {}, need f32, bf16, f16 or f8, equal or one of them f32",
                 sum.op_name, to_string(sum.in_dtype), to_string(sum.out.dtype));
  }
  if (sum.op != ReduceOp::kSum && sum.op != ReduceOp::kAvg) {
    return failf(ErrorCode::kInvalidArgument, "{}: op is {}, need sum or avg", sum.op_name,
                 static_cast<int>(sum.op));
  }
  const Named out{"output", -1, &sum.out};
  TANDEM_TRY(check_writable(sum.op_name, out));
  if (sum.bias == nullptr) return {};
  TANDEM_TRY(check_view(sum.op_name, "bias", *sum.bias, stream.device()));
  if (sum.out.dim() < 1 || sum.bias->dtype != sum.out.dtype ||
      sum.bias->sizes != Dims{sum.out.sizes.back()}) {
    return failf(ErrorCode::kInvalidArgument, "{}: bias is {}, need {} along the last dim of output {}",
                 sum.op_name, to_string(*sum.bias), to_string(sum.out.dtype), to_string(sum.out.sizes));
  }
  return check_apart(sum.op_name, out, {"bias", -1, sum.bias});
}

}  // namespace tandem::coll
