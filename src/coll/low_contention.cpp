#include <array>
#include <optional>
#include <tandem/base/shard.hpp>
#include <tandem/coll/collectives.hpp>

#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "coll/algorithms.hpp"
#include "coll/backend.hpp"
#include "coll/checks.hpp"
#include "coll/collective_call.hpp"
#include "device/check_view.hpp"
#include "symm/peers_handle.hpp"
#include "symm/reporter.hpp"

// The ops that leave the multiprocessors to a product: those entries of the lists that say so, along any
// dimension.

namespace tandem::coll {
namespace {

constexpr const char* kGatherOp = "low_contention_all_gather";
constexpr const char* kScatterOp = "low_contention_reduce_scatter";

/// A tensor of all ranks, along a dimension of which each rank has a part.
struct Sharded {
  const char* op_name;
  const char* dim_name;
  const char* whole_name;
  const TensorView& whole;
  const char* part_name;
  const TensorView& part;
  int dim;
};

Shard own_part(const Sharded& sharded, const Group& group) {
  return shard_of(sharded.whole.size(sharded.dim), group.size(), group.rank());
}

TensorView own_place(const Sharded& sharded, const Group& group) {
  const Shard mine = own_part(sharded, group);
  return sharded.whole.narrow(sharded.dim, mine.offset, mine.size);
}

Result<void> check_sharded(const Sharded& sharded, const Group& group, const Stream& stream) {
  TANDEM_TRY(check_view(sharded.op_name, sharded.whole_name, sharded.whole, stream.device()));
  TANDEM_TRY(check_view(sharded.op_name, sharded.part_name, sharded.part, stream.device()));
  if (sharded.dim < 0 || sharded.dim >= sharded.whole.dim()) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, need 0 to {} for {} {}", sharded.op_name,
                 sharded.dim_name, sharded.dim, sharded.whole.dim() - 1, sharded.whole_name,
                 to_string(sharded.whole));
  }
  Dims want = sharded.whole.sizes;
  want[sharded.dim] = own_part(sharded, group).size;
  if (sharded.part.sizes == want) return {};
  return failf(ErrorCode::kInvalidArgument, "{}: {} is {} on rank {} of {}, need {} for {} {}",
               sharded.op_name, sharded.part_name, to_string(sharded.part.sizes), group.rank(), group.size(),
               to_string(want), sharded.whole_name, to_string(sharded.whole.sizes));
}

struct NamedCopy {
  const char* op_name;
  const char* name;
  const TensorView& view;  ///< whose strides the error tells
};

/// One side is contiguous.
Result<void> check_copy_aside(const NamedCopy& copy, const Dims& sizes, const Backend& backend) {
  TensorView part = copy.view;
  part.sizes = sizes;
  const TensorView packed = TensorView::contiguous(part.data, sizes, part.dtype, part.device);
  for (const auto& [from, to] : {std::pair(part, packed), std::pair(packed, part)}) {
    const Answer can = backend.can_copy_aside(from, to);
    if (!can)
      return failf(ErrorCode::kUnsupported, "{}: {} is {}: {}", copy.op_name, copy.name, to_string(copy.view),
                   can.why_not);
  }
  return {};
}

/// The parts of `whole` travel to or from contiguous memory.
Result<void> check_parts(const Sharded& sharded, const Group& group, const Backend& backend) {
  for (int q = 0; q < group.size(); ++q) {
    Dims sizes = sharded.whole.sizes;
    sizes[sharded.dim] = shard_of(sharded.whole.size(sharded.dim), group.size(), q).size;
    TANDEM_TRY(check_copy_aside({sharded.op_name, sharded.whole_name, sharded.whole}, sizes, backend));
  }
  return {};
}

Sharded sharded_of(const LowContentionAllGatherArgs& args) {
  return {kGatherOp, "gather_dim", "output", args.output, "input", args.input, args.gather_dim};
}

Sharded sharded_of(const LowContentionReduceScatterArgs& args) {
  return {kScatterOp, "scatter_dim", "input", args.input, "output", args.output, args.scatter_dim};
}

Result<void> check_layouts(const LowContentionAllGatherArgs& args, const Group& group,
                           const Backend& backend) {
  const Sharded sharded = sharded_of(args);
  TANDEM_TRY(check_parts(sharded, group, backend));
  TANDEM_TRY(check_copy_aside({kGatherOp, "input", args.input}, args.input.sizes, backend));
  const Answer can = backend.can_copy_aside(args.input, own_place(sharded, group));
  if (can) return {};
  return failf(ErrorCode::kUnsupported, "{}: input is {} and output {}: {}", kGatherOp, to_string(args.input),
               to_string(args.output), can.why_not);
}

Result<void> check(const LowContentionAllGatherArgs& args, const Group& group, const Stream& stream) {
  const Sharded sharded = sharded_of(args);
  TANDEM_TRY(check_sharded(sharded, group, stream));
  if (args.input.dtype != args.output.dtype) {
    return failf(ErrorCode::kInvalidArgument, "{}: input is {}, output {}: need equal types", kGatherOp,
                 to_string(args.input), to_string(args.output));
  }
  TANDEM_TRY(check_writable(kGatherOp, {"output", -1, &args.output}));
  TANDEM_ASSIGN(const Backend* const backend, backend_of(kGatherOp, stream));
  TANDEM_TRY(check_layouts(args, group, *backend));
  if (is_same_memory(args.input, own_place(sharded, group))) return {};
  return check_apart(kGatherOp, {"output", -1, &args.output}, {"input", -1, &args.input});
}

Result<void> check(const LowContentionReduceScatterArgs& args, const Group& group, const Stream& stream) {
  const Sharded sharded = sharded_of(args);
  TANDEM_TRY(check_sharded(sharded, group, stream));
  TANDEM_TRY(check_stackable(kScatterOp, args.input));
  TANDEM_TRY(check_sum({.op_name = kScatterOp,
                        .in_dtype = args.input.dtype,
                        .out = args.output,
                        .op = args.op,
                        .bias = nullptr},
                       stream));
  TANDEM_ASSIGN(const Backend* const backend, backend_of(kScatterOp, stream));
  TANDEM_TRY(check_parts(sharded, group, *backend));
  if (is_same_memory(args.output, own_place(sharded, group))) return {};
  return check_apart(kScatterOp, {"output", -1, &args.output}, {"input", -1, &args.input});
}

/// Bytes from the start of every rank's block to its input.
Result<std::int64_t> symmetric_at_bytes(const LowContentionAllGatherArgs& args, std::int64_t largest_bytes,
                                        const Group& group) {
  if (!args.input.is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument, "{}: input is {}, need it contiguous where it has a handle",
                 kGatherOp, to_string(args.input));
  }
  TANDEM_ASSIGN(const std::int64_t offset_bytes,
                offset_in_handle({kGatherOp, args.input, largest_bytes}, args.input_handle.get(), group));
  return args.input_handle->offset_bytes() + offset_bytes;
}

/// An op whose ranks agree on `whole` and what its text says besides, and which nothing keeps from running
/// beside a product.
template <class Call, class Lists>
Result<void> run_beside(const Call& call, const Problem& problem, const fmt::memory_buffer& fingerprint,
                        symm::Handle* handle, Lists list, Group& group, Stream& stream) {
  const std::array inputs = {CheckedInput{"input", &call.input}};
  return run_collective({.group = group,
                         .stream = stream,
                         .fingerprint = {fingerprint.data(), fingerprint.size()},
                         .workspace_bytes = workspace_bytes(list, problem, stream.device()),
                         .inputs = inputs},
                        [&](symm::Handle* workspace) -> Result<void> {
                          if (problem.whole_bytes == 0) return {};
                          symm::Handle& used = handle != nullptr ? *handle : *workspace;
                          return run_first(call, problem, {used, group, symm::kLowContentionChannel}, stream);
                        });
}

}  // namespace

Result<void> low_contention_all_gather(const LowContentionAllGatherArgs& args, Group& group, Stream& stream) {
  if (auto ok = check(args, group, stream); !ok) return refused(group, std::move(ok).error());
  Problem problem = problem_of(args.output, args.gather_dim, group.size());
  problem.runs_beside = true;
  GatherCall call = {.input = args.input, .output = args.output, .dim = args.gather_dim};
  fmt::memory_buffer fingerprint;
  fmt::format_to(std::back_inserter(fingerprint), "{} {} [{}] along {}", kGatherOp,
                 to_string(args.output.dtype),
                 fmt::join(args.output.sizes.begin(), args.output.sizes.end(), ", "), args.gather_dim);
  if (args.input_handle) {
    const auto at_bytes = symmetric_at_bytes(args, problem.part_bytes, group);
    if (!at_bytes) return refused(group, at_bytes.error());
    call.symmetric_at_bytes = *at_bytes;
    problem.is_read_in_place = true;
    fmt::format_to(std::back_inserter(fingerprint), ", in place at {}", *at_bytes);
  }
  return run_beside(call, problem, fingerprint, args.input_handle.get(),
                    algorithms_of(stream.device()).gather, group, stream);
}

Result<void> low_contention_reduce_scatter(const LowContentionReduceScatterArgs& args, Group& group,
                                           Stream& stream) {
  if (auto ok = check(args, group, stream); !ok) return refused(group, std::move(ok).error());
  Problem problem = problem_of(args.input, args.scatter_dim, group.size());
  problem.runs_beside = true;
  const ScatterCall call = {
      .input = args.input, .output = args.output, .op = args.op, .dim = args.scatter_dim};
  fmt::memory_buffer fingerprint;
  fmt::format_to(std::back_inserter(fingerprint), "{} {} {} [{}] along {} -> {}", kScatterOp,
                 to_string(args.op), to_string(args.input.dtype),
                 fmt::join(args.input.sizes.begin(), args.input.sizes.end(), ", "), args.scatter_dim,
                 to_string(args.output.dtype));
  return run_beside(call, problem, fingerprint, nullptr, algorithms_of(stream.device()).scatter, group,
                    stream);
}

Result<std::string_view> low_contention_barriers(Group& group, const Stream& stream) {
  if (stream.device().id().kind == DeviceKind::kCpu) return "cores";
  TANDEM_ASSIGN(const auto handle, symm::reporter_of(group, stream.device()));
  return symm::meets_on_stream(*handle) ? "stream operations" : "kernels";
}

}  // namespace tandem::coll
