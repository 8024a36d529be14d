#include <array>
#include <tandem/coll/collectives.hpp>

#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "coll/checks.hpp"
#include "coll/collective_call.hpp"
#include "device/check_view.hpp"

namespace tandem::coll {
namespace {

constexpr const char* kOp = "all_gather_with_progress";

Result<void> check_sizes(const AllGatherWithProgressArgs& args, int world) {
  if (args.input.dim() < 1 || args.input.dtype != args.output.dtype) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: input is {}, output {}: need equal types and at least one dim", kOp,
                 to_string(args.input), to_string(args.output));
  }
  Dims want = args.input.sizes;
  want[0] *= world;
  if (args.output.sizes != want) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: output is {}, need {} for an input of {} on each of {} ranks", kOp,
                 to_string(args.output.sizes), to_string(want), to_string(args.input.sizes), world);
  }
  if (!args.input.is_contiguous() || !args.output.is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument, "{}: input is {}, output {}: need both contiguous", kOp,
                 to_string(args.input), to_string(args.output));
  }
  if (args.splits_per_rank < 1 || args.input.numel() % args.splits_per_rank != 0) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: splits_per_rank is {}, need a divisor of input's {} elements", kOp,
                 args.splits_per_rank, args.input.numel());
  }
  const Dims words = {std::int64_t{world} * args.splits_per_rank};
  if (args.progress.dtype != DType::kU32 || args.progress.sizes != words || !args.progress.is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument, "{}: progress is {}, need u32 {}, contiguous", kOp,
                 to_string(args.progress), to_string(words));
  }
  return check_words(kOp, "progress", args.progress);
}

Result<void> check_apart_in(const AllGatherWithProgressArgs& args, const Group& group) {
  const Named output{"output", -1, &args.output};
  const Named input{"input", -1, &args.input};
  const Named progress{"progress", -1, &args.progress};
  TANDEM_TRY(check_apart(kOp, progress, output));
  TANDEM_TRY(check_apart(kOp, progress, input));
  const std::int64_t rows = args.input.size(0);
  if (is_same_memory(args.input, args.output.narrow(0, group.rank() * rows, rows))) return {};
  return check_apart(kOp, output, input);
}

Result<std::int64_t> check(const AllGatherWithProgressArgs& args, const Group& group, const Stream& stream) {
  TANDEM_TRY(check_view(kOp, "input", args.input, stream.device()));
  TANDEM_TRY(check_view(kOp, "output", args.output, stream.device()));
  TANDEM_TRY(check_view(kOp, "progress", args.progress, stream.device()));
  TANDEM_TRY(check_sizes(args, group.size()));
  TANDEM_TRY(check_apart_in(args, group));
  TANDEM_ASSIGN(const std::int64_t offset_bytes,
                offset_in_handle({.op_name = kOp, .view = args.input}, args.input_handle.get(), group));
  return offset_bytes / size_bytes(args.input.dtype);
}

Result<void> enqueue(const AllGatherWithProgressArgs& args, std::int64_t offset, const Group& group,
                     Stream& stream) {
  const std::int64_t rank_elements = args.input.numel();
  const std::int64_t piece_elements = rank_elements / args.splits_per_rank;
  const TensorView output =
      TensorView::contiguous(args.output.data, {args.output.numel()}, args.output.dtype, args.output.device);
  TANDEM_TRY(args.input_handle->barrier(stream, symm::kGatherChannel));  // all inputs are ready
  // The own rank last: a consumer needs no copy of what it holds already.
  for (int step = 1; step <= group.size(); ++step) {
    const int source = (group.rank() + step) % group.size();
    for (int i = 0; i < args.splits_per_rank; ++i) {
      const std::int64_t at = i * piece_elements;
      const TensorView piece = output.narrow(0, source * rank_elements + at, piece_elements);
      if (piece_elements > 0) TANDEM_TRY(args.input_handle->get(stream, piece, source, offset + at));
      TANDEM_TRY(
          stream.stream_write_value32(args.progress, std::int64_t{source} * args.splits_per_rank + i, 1));
    }
  }
  return args.input_handle->barrier(stream, symm::kGatherChannel);  // peers may write their inputs again
}

}  // namespace

Result<void> all_gather_with_progress(const AllGatherWithProgressArgs& args, Group& group, Stream& stream) {
  const auto offset = check(args, group, stream);
  if (!offset) return refused(group, offset.error());
  fmt::memory_buffer fingerprint;
  fmt::format_to(
      std::back_inserter(fingerprint), "{} {} [{}] at {} in {} splits", kOp, to_string(args.input.dtype),
      fmt::join(args.input.sizes.begin(), args.input.sizes.end(), ", "), *offset, args.splits_per_rank);
  const std::array inputs = {CheckedInput{"input", &args.input}};
  return run_collective({.group = group,
                         .stream = stream,
                         .fingerprint = {fingerprint.data(), fingerprint.size()},
                         .inputs = inputs},
                        [&](symm::Handle*) { return enqueue(args, *offset, group, stream); });
}

}  // namespace tandem::coll
