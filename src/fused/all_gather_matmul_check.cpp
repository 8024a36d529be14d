#include "fused/all_gather_matmul_check.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "fused/argument_checks.hpp"
#include "fused/hash.hpp"

namespace tandem {
namespace {

constexpr std::string_view kWho = "fused_all_gather_matmul";

/// What the layouts depend on: a's shape, the dim and the size over all ranks.
Result<Dims> gathered_sizes(const AllGatherMatmulArgs& args) {
  const TensorView& a = args.a;
  if (a.dim() < 2) {
    return failf(ErrorCode::kInvalidArgument, "{}: a has sizes {}, need a matrix [..., k] of 2 dims or more",
                 kWho, to_string(a.sizes));
  }
  if (args.gather_dim < 0 || args.gather_dim >= a.dim()) {
    return failf(ErrorCode::kInvalidArgument, "{}: gather_dim is {}, need 0 to {} for a of sizes {}", kWho,
                 args.gather_dim, a.dim() - 1, to_string(a.sizes));
  }
  Dims sizes = a.sizes;
  sizes[args.gather_dim] = args.gather_size;
  if (!fused::is_representable(sizes, a.dtype)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: all of a would have sizes {}, need sizes that are not negative "
                 "and at most 2^62 bytes: gather_size is that of gather_dim {} over all ranks",
                 kWho, to_string(sizes), args.gather_dim);
  }
  return sizes;
}

/// Sizes of out[i]: a's over all ranks with b[i]'s columns.
Result<Dims> output_sizes(const AllGatherMatmulArgs& args, const Dims& gathered, int i) {
  const TensorView& b = args.b[static_cast<std::size_t>(i)];
  if (b.dim() != 2 || b.size(0) != gathered.back()) {
    return failf(ErrorCode::kInvalidArgument, "{}: b[{}] has sizes {}, need [{}, n]", kWho, i,
                 to_string(b.sizes), gathered.back());
  }
  Dims sizes = gathered;
  sizes[sizes.size() - 1] = b.size(1);
  if (!fused::is_representable(sizes, DType::kF32)) {
    return failf(ErrorCode::kInvalidArgument, "{}: out[{}] would have sizes {}, need at most 2^62 bytes",
                 kWho, i, to_string(sizes));
  }
  return sizes;
}

}  // namespace

Result<Layout> output_layout(const AllGatherMatmulArgs& args, int i) {
  TANDEM_ASSIGN(const Dims gathered, gathered_sizes(args));
  if (i < 0 || i >= static_cast<int>(args.b.size())) {
    return failf(ErrorCode::kInvalidArgument, "{}: output {} of {} b's does not exist", kWho, i,
                 args.b.size());
  }
  TANDEM_ASSIGN(const Dims sizes, output_sizes(args, gathered, i));
  return fused::front_major_layout(sizes, args.gather_dim);
}

Result<Layout> gathered_layout(const AllGatherMatmulArgs& args) {
  TANDEM_ASSIGN(const Dims sizes, gathered_sizes(args));
  return fused::front_major_layout(sizes, args.gather_dim);
}

namespace fused {
namespace {

Result<void> check_shard(const AllGatherMatmulArgs& args, const Group& group, const Device& device) {
  TANDEM_TRY(check_operand(kWho, {"a", -1, &args.a}, args.a.dtype, device));
  const Shard mine = shard_of(args.gather_size, group.size(), group.rank());
  if (args.a.size(args.gather_dim) != mine.size) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: a has sizes {}, need {} at gather_dim {}: rank {} of {} holds "
                 "[{}, {}) of gather_size {}",
                 kWho, to_string(args.a.sizes), mine.size, args.gather_dim, group.rank(), group.size(),
                 mine.offset, mine.offset + mine.size, args.gather_size);
  }
  return {};
}

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
    TANDEM_ASSIGN(const Dims need, output_sizes(args, sizes, i));
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
  TANDEM_TRY(check_no_overlap(kWho, output, {"a", -1, &args.a}));
  for (int i = 0; i < static_cast<int>(args.b.size()); ++i) {
    const auto idx = static_cast<std::size_t>(i);
    TANDEM_TRY(check_no_overlap(kWho, output, {"b", i, &args.b[idx]}));
    if (!args.bias.empty()) TANDEM_TRY(check_no_overlap(kWho, output, {"bias", i, &args.bias[idx]}));
    // Pairs of outputs once: the later one is `output`.
    if (i < output.idx || output.idx < 0)
      TANDEM_TRY(check_no_overlap(kWho, output, {"out", i, &args.out[idx]}));
  }
  return {};
}

/// Where a lies in a_handle, in elements: peers read the same place of their own rank.
Result<std::int64_t> place_in_handle(const AllGatherMatmulArgs& args, const Group& group,
                                     const Stream& stream, bool copies_a) {
  const symm::Handle& handle = *args.a_handle;
  const std::int64_t element = size_bytes(args.a.dtype);
  if (handle.world_size() != group.size() || handle.rank() != group.rank() ||
      &handle.device() != &stream.device()) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: a_handle is of rank {} of {} on {}, need rank {} of {} on {}", kWho, handle.rank(),
                 handle.world_size(), tandem::to_string(handle.device().id()), group.rank(), group.size(),
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

Result<GatherProblem> check(const AllGatherMatmulArgs& args, const Group& group, const Stream& stream) {
  const Device& device = stream.device();
  TANDEM_ASSIGN(const Dims sizes, gathered_sizes(args));
  TANDEM_TRY(check_shard(args, group, device));
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

  GatherProblem problem{.dtype = args.a.dtype,
                        .sizes = sizes,
                        .dim = args.gather_dim,
                        .world = group.size(),
                        .asked = args.algorithm,
                        .in_place_offset = -1,
                        .device = device.id(),
                        .num_b = static_cast<int>(args.b.size()),
                        .sum_n = 0,
                        .keeps_gathered = args.gathered.has_value(),
                        .copies_a = false};
  for (const TensorView& b : args.b) problem.sum_n += b.size(1);
  const TensorView front = problem.gathers_last() ? args.a : args.a.movedim(problem.dim, 0);
  problem.copies_a = !front.is_contiguous();
  if (args.a_handle) {
    TANDEM_ASSIGN(problem.in_place_offset, place_in_handle(args, group, stream, problem.copies_a));
  }
  return problem;
}

std::int64_t GatherProblem::rows() const {
  std::int64_t product = 1;
  for (int d = 0; d < sizes.size() - 1; ++d) product *= sizes[d];
  return product;
}

std::int64_t GatherProblem::unit_rows() const {
  std::int64_t product = gathers_last() ? 0 : 1;
  for (int d = 0; d < sizes.size() - 1; ++d) product *= d == dim ? 1 : sizes[d];
  return product;
}

std::int64_t GatherProblem::unit_elements() const {
  return gathers_last() ? rows() : unit_rows() * k();
}

std::size_t hash_of(const GatherProblem& p) {
  return Hash()
      .add(p.dtype)
      .add(p.sizes)
      .add(p.dim)
      .add(p.asked)
      .add(p.in_place_offset)
      .add(p.num_b)
      .add(p.sum_n)
      .add(p.keeps_gathered)
      .add(p.copies_a)
      .value();
}

std::string to_string(const GatherProblem& problem) {
  return fmt::format(
      "all_gather_matmul {} {} dim {} w{}{}", to_string(problem.dtype), to_string(problem.sizes), problem.dim,
      problem.world,
      problem.in_place_offset < 0 ? "" : fmt::format(" in place at {}", problem.in_place_offset));
}

}  // namespace fused
}  // namespace tandem
