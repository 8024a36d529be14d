#include "fused/gather/arguments.hpp"

#include <tandem/base/shard.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/with_last.hpp"
#include "fused/call/checks.hpp"

namespace tandem::fused {

Result<Dims> gathered_sizes(std::string_view who, const Gathering& gathering) {
  const TensorView& a = gathering.a;
  if (a.dim() < 2) {
    return failf(ErrorCode::kInvalidArgument, "{}: a has sizes {}, need a matrix [..., k] of 2 dims or more",
                 who, to_string(a.sizes));
  }
  if (gathering.dim < 0 || gathering.dim >= a.dim()) {
    return failf(ErrorCode::kInvalidArgument, "{}: gather_dim is {}, need 0 to {} for a of sizes {}", who,
                 gathering.dim, a.dim() - 1, to_string(a.sizes));
  }
  Dims sizes = a.sizes;
  sizes[gathering.dim] = gathering.size;
  if (!is_representable(sizes, a.dtype)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: all of a would have sizes {}, need sizes that are not negative "
                 "and at most 2^62 bytes: gather_size is that of gather_dim {} over all ranks",
                 who, to_string(sizes), gathering.dim);
  }
  return sizes;
}

Result<void> check_shard(std::string_view who, const Gathering& gathering, const Group& group) {
  const Shard mine = shard_of(gathering.size, group.size(), group.rank());
  if (gathering.a.size(gathering.dim) == mine.size) return {};
  return failf(ErrorCode::kInvalidArgument,
               "{}: a has sizes {}, need {} at gather_dim {}: rank {} of {} holds [{}, {}) of gather_size {}",
               who, to_string(gathering.a.sizes), mine.size, gathering.dim, group.rank(), group.size(),
               mine.offset, mine.offset + mine.size, gathering.size);
}

Result<Dims> output_sizes(std::string_view who, const TensorView& b, const Dims& gathered, int i) {
  if (b.dim() != 2 || b.size(0) != gathered.back()) {
    return failf(ErrorCode::kInvalidArgument, "{}: b[{}] has sizes {}, need [{}, n]", who, i,
                 to_string(b.sizes), gathered.back());
  }
  const Dims sizes = with_last(gathered, b.size(1));
  if (!is_representable(sizes, DType::kF32)) {
    return failf(ErrorCode::kInvalidArgument, "{}: out[{}] would have sizes {}, need at most 2^62 bytes", who,
                 i, to_string(sizes));
  }
  return sizes;
}

Result<Layout> output_layout(std::string_view who, const Gathering& gathering, std::span<const TensorView> b,
                             int i) {
  TANDEM_ASSIGN(const Dims gathered, gathered_sizes(who, gathering));
  if (i < 0 || i >= static_cast<int>(b.size())) {
    return failf(ErrorCode::kInvalidArgument, "{}: output {} of {} b's does not exist", who, i, b.size());
  }
  TANDEM_ASSIGN(const Dims sizes, output_sizes(who, b[static_cast<std::size_t>(i)], gathered, i));
  return front_major_layout(sizes, gathering.dim);
}

Result<Layout> gathered_layout(std::string_view who, const Gathering& gathering) {
  TANDEM_ASSIGN(const Dims sizes, gathered_sizes(who, gathering));
  return front_major_layout(sizes, gathering.dim);
}

void find_copies(const GatherCall& call, GatherProblem& problem) {
  for (int i = 0; i < num_travelling(problem); ++i) {
    if (!call.front(problem, i).is_contiguous()) problem.copied |= 1U << static_cast<unsigned>(i);
  }
}

}  // namespace tandem::fused
