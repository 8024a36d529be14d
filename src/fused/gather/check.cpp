#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "fused/call/checks.hpp"
#include "fused/gather/algorithms.hpp"
#include "fused/gather/arguments.hpp"
#include "fused/gather/call.hpp"

namespace tandem {
namespace {

constexpr std::string_view kWho = "fused_all_gather_matmul";

}  // namespace

Result<Layout> output_layout(const AllGatherMatmulArgs& args, int i) {
  return fused::output_layout(kWho, fused::gathering_of(args), args.b, i);
}

Result<Layout> gathered_layout(const AllGatherMatmulArgs& args) {
  return fused::gathered_layout(kWho, fused::gathering_of(args));
}

namespace fused {
namespace {

Result<void> check_lists(const AllGatherMatmulArgs& args, const Dims& sizes, const Device& device) {
  if (args.b.empty() || args.out.size() != args.b.size() ||
      (!args.bias.empty() && args.bias.size() != args.b.size())) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: got {} b's, {} out's and {} bias'es, need one out a b, and no bias "
                 "or one a b",
                 kWho, args.b.size(), args.out.size(), args.bias.size());
  }
  for (int i = 0; i < static_cast<int>(args.b.size()); ++i) {
    const auto idx = static_cast<std::size_t>(i);
    TANDEM_TRY(check_operand(kWho, {"b", i, &args.b[idx]}, args.a.dtype, device));
    TANDEM_ASSIGN(const Dims need, output_sizes(kWho, args.b[idx], sizes, i));
    TANDEM_TRY(check_layout(kWho, {"out", i, &args.out[idx]}, front_major_layout(need, args.gather_dim),
                            args.a.dtype, device));
    if (args.bias.empty()) continue;
    TANDEM_TRY(check_operand(kWho, {"bias", i, &args.bias[idx]}, args.a.dtype, device));
    if (!(args.bias[idx].sizes == Dims{need.back()})) {
      return failf(ErrorCode::kInvalidArgument, "{}: bias[{}] has sizes {}, need {}", kWho, i,
                   to_string(args.bias[idx].sizes), to_string(Dims{need.back()}));
    }
  }
  return {};
}

Result<void> check_memory_of(const AllGatherMatmulArgs& args, const Named& output) {
  TANDEM_TRY(check_apart(kWho, output, {"a", -1, &args.a}));
  for (int i = 0; i < static_cast<int>(args.b.size()); ++i) {
    const auto idx = static_cast<std::size_t>(i);
    TANDEM_TRY(check_apart(kWho, output, {"b", i, &args.b[idx]}));
    if (!args.bias.empty()) TANDEM_TRY(check_apart(kWho, output, {"bias", i, &args.bias[idx]}));
    // Pairs of outputs once: the later one is `output`.
    if (i < output.idx || output.idx < 0) TANDEM_TRY(check_apart(kWho, output, {"out", i, &args.out[idx]}));
  }
  return {};
}

/// Where a lies in a_handle, in elements: peers read the same place of their own rank.
Result<std::int64_t> place_in_handle(const AllGatherMatmulArgs& args, const Group& group,
                                     const Stream& stream, bool copies_a) {
  const symm::Handle& handle = *args.a_handle;
  const std::int64_t element = size_bytes(args.a.dtype);
  if (!handle.is_of(group) || &handle.device() != &stream.device()) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: a_handle is of rank {} of {} on {}{}, need rank {} of {} on {}", kWho, handle.rank(),
                 handle.world_size(), tandem::to_string(handle.device().id()),
                 handle.is_of(group) ? "" : " in another group", group.rank(), group.size(),
                 tandem::to_string(stream.device().id()));
  }
  if (copies_a) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: a has strides {}, need {} to be read in place through a_handle: see "
                 "restride_for_all_gather_matmul(), or leave a_handle out",
                 kWho, to_string(args.a.strides),
                 to_string(front_major_layout(args.a.sizes, args.gather_dim).strides));
  }
  const std::int64_t shard_bytes = args.a.size_bytes();
  const auto* base =
      static_cast<const std::byte*>(handle.buffer_ptrs()[static_cast<std::size_t>(handle.rank())]);
  const std::int64_t from_base = args.a.data_as<const std::byte>() - base;
  const std::int64_t from_offset = from_base - handle.offset_bytes();
  if (from_offset < 0 || from_base + shard_bytes > handle.buffer_size_bytes() || from_offset % element != 0) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: a ({} bytes) lies {} bytes after the start of a_handle, which has "
                 "{} bytes from {}: need all of it inside, at a multiple of {}",
                 kWho, shard_bytes, from_base, handle.buffer_size_bytes(), handle.offset_bytes(), element);
  }
  return from_offset / element;
}

}  // namespace

Result<CheckedGather> check(const AllGatherMatmulArgs& args, const Group& group, const Stream& stream) {
  const Device& device = stream.device();
  TANDEM_ASSIGN(const Dims sizes, gathered_sizes(kWho, gathering_of(args)));
  TANDEM_TRY(check_planned(kWho, "plan_n", args.plan_n));
  TANDEM_TRY(check_operand(kWho, {"a", -1, &args.a}, args.a.dtype, device));
  TANDEM_TRY(check_shard(kWho, gathering_of(args), group));
  TANDEM_TRY(check_lists(args, sizes, device));
  for (int i = 0; i < static_cast<int>(args.out.size()); ++i) {
    TANDEM_TRY(check_memory_of(args, {"out", i, &args.out[static_cast<std::size_t>(i)]}));
  }
  if (args.gathered) {
    const Named gathered{"gathered", -1, &*args.gathered};
    TANDEM_TRY(
        check_layout(kWho, gathered, front_major_layout(sizes, args.gather_dim), args.a.dtype, device));
    TANDEM_TRY(check_memory_of(args, gathered));
  }

  GatherProblem problem = gather_problem_of(args, sizes, group, device);
  problem.is_capturing = stream.is_capturing();
  problem.has_bias = !args.bias.empty();
  GatherCall call = GatherCall::of(args);
  find_copies(call, problem);
  ask_native(call, device, problem);
  if (args.a_handle) {
    TANDEM_ASSIGN(problem.in_place_offset, place_in_handle(args, group, stream, problem.copies_a()));
  }
  return CheckedGather{std::move(call), problem};
}

}  // namespace fused
}  // namespace tandem
