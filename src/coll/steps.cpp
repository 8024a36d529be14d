#include "coll/steps.hpp"

#include <tandem/base/shard.hpp>

#include "base/try.hpp"

namespace tandem::coll {
namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t num_bytes) {
  return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// `sizes` with another dim 0.
Dims with_rows(Dims sizes, std::int64_t rows) {
  sizes[0] = rows;
  return sizes;
}

std::int64_t row_elements(const TensorView& view) {
  std::int64_t count = 1;
  for (int d = 1; d < view.dim(); ++d) count *= view.size(d);
  return count;
}

}  // namespace

// The own shard, at the start; sized for the largest.
std::int64_t all_gather_workspace_bytes(const TensorView& output, int world) {
  return shard_stride(output.size(0), world) * row_elements(output) * size_bytes(output.dtype);
}

// The whole input, and behind it the stack of all ranks' chunks for this rank.
std::int64_t reduce_scatter_workspace_bytes(const TensorView& input, int world) {
  const std::int64_t row_bytes = row_elements(input) * size_bytes(input.dtype);
  return aligned(input.size(0) * row_bytes) + world * shard_stride(input.size(0), world) * row_bytes;
}

Result<void> enqueue_all_gather(const AllGatherArgs& args, symm::Handle* workspace, Group& group,
                                Stream& stream) {
  if (args.output.numel() == 0) return {};
  const int rank = group.rank();
  const int world = group.size();
  const auto part_of = [&](int q) {
    const Shard part = shard_of(args.output.size(0), world, q);
    return args.output.narrow(0, part.offset, part.size);
  };
  TANDEM_TRY(workspace->barrier(stream, symm::kGatherChannel));  // everybody has finished with the workspace
  TANDEM_ASSIGN(const TensorView published, workspace->get_buffer(rank, args.input.sizes, args.input.dtype));
  TANDEM_TRY(stream.copy(args.input, published));
  TANDEM_TRY(workspace->barrier(stream, symm::kGatherChannel + 1));  // all shards are published
  for (int step = 1; step < world; ++step) {
    const int source = (rank + step) % world;
    const TensorView part = part_of(source);
    if (part.numel() > 0) TANDEM_TRY(workspace->get(stream, part, source));
  }
  TANDEM_TRY(stream.copy(args.input, part_of(rank)));
  return workspace->barrier(stream, symm::kGatherChannel);  // peers may use the workspace again
}

Result<void> enqueue_reduce_scatter(const ReduceScatterArgs& args, symm::Handle* workspace, Group& group,
                                    Stream& stream) {
  if (args.input.numel() == 0) return {};
  const int rank = group.rank();
  const int world = group.size();
  const DType dtype = args.input.dtype;
  const Shard mine = shard_of(args.input.size(0), world, rank);
  TANDEM_TRY(workspace->barrier(stream, symm::kScatterChannel));  // everybody has finished with the workspace
  TANDEM_ASSIGN(const TensorView published, workspace->get_buffer(rank, args.input.sizes, dtype));
  TANDEM_TRY(stream.copy(args.input, published));
  TANDEM_TRY(workspace->barrier(stream, symm::kScatterChannel + 1));  // all inputs are published

  const Dims chunk_sizes = with_rows(args.input.sizes, mine.size);
  const std::int64_t chunk_elements = mine.size * row_elements(args.input);
  const std::int64_t stack_at = aligned(args.input.size_bytes()) / size_bytes(dtype);
  Dims stack_sizes = chunk_sizes;
  stack_sizes.insert(0, world);
  TANDEM_ASSIGN(const TensorView stack, workspace->get_buffer(rank, stack_sizes, dtype, stack_at));
  if (chunk_elements > 0) {
    for (int step = 1; step <= world; ++step) {
      const int source = (rank + step) % world;
      const std::int64_t offset = mine.offset * row_elements(args.input);
      TANDEM_TRY(workspace->get(stream, stack.select(0, source), source, offset));
    }
  }
  TANDEM_TRY(workspace->barrier(stream, symm::kScatterChannel));  // peers may use the workspace again
  return reduce_stack({.stack = stack, .out = args.output, .op = args.op, .bias = args.bias}, stream);
}

}  // namespace tandem::coll
