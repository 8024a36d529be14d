#include "coll/steps.hpp"

#include <array>
#include <tandem/base/shard.hpp>

#include "base/alignment.hpp"
#include "base/row_bytes.hpp"
#include "base/try.hpp"
#include "coll/backend.hpp"

namespace tandem::coll {
namespace {

/// Of the stack behind an input, from the start of the workspace.
constexpr std::int64_t kStackAlignment = 64;

/// `sizes` with another dim 0.
Dims with_rows(Dims sizes, std::int64_t rows) {
  sizes[0] = rows;
  return sizes;
}

// More ranks than this get their chunks by copies.
constexpr int kMaxLayers = 16;

/// Whether a kernel reads the chunks of all ranks where they lie.
bool reads_peers(int world, const Device& device) {
  const auto* backend = device.service<Backend>();
  return backend != nullptr && world <= kMaxLayers && world <= backend->max_layers();
}

/// All shards by copies, then a barrier.
Result<void> get_shards(const AllGatherArgs& args, const EndBarrier& end, Stream& stream) {
  const int rank = end.workspace.rank();
  const int world = end.workspace.world_size();
  const auto part_of = [&](int q) {
    const Shard part = shard_of(args.output.size(0), world, q);
    return args.output.narrow(0, part.offset, part.size);
  };
  for (int step = 1; step < world; ++step) {
    const int source = (rank + step) % world;
    const TensorView part = part_of(source);
    if (part.numel() > 0) TANDEM_TRY(end.workspace.get(stream, part, source));
  }
  TANDEM_TRY(stream.copy(args.input, part_of(rank)));
  return end.workspace.barrier(stream, end.channel);
}

/// A rank's part of the published inputs.
struct Chunk {
  Dims sizes;
  std::int64_t offset;  // elements before it in every rank's input
};

/// By one kernel, between two barriers.
Result<void> sum_where_they_lie(const ReduceScatterArgs& args, const Chunk& chunk, const EndBarrier& end,
                                Stream& stream) {
  std::array<const void*, kMaxLayers> layers;
  const int world = end.workspace.world_size();
  for (int q = 0; q < world; ++q) {
    TANDEM_ASSIGN(const TensorView layer,
                  end.workspace.get_buffer(q, chunk.sizes, args.input.dtype, chunk.offset));
    layers[static_cast<std::size_t>(q)] = layer.data;
  }
  TANDEM_ASSIGN(Backend* const backend, backend_of("reduce_scatter", stream));
  return backend->reduce_layers({.layers = std::span(layers).first(static_cast<std::size_t>(world)),
                                 .dtype = args.input.dtype,
                                 .out = args.output,
                                 .op = args.op,
                                 .bias = args.bias,
                                 .largest_bytes = largest_part_bytes(args.input, world)},
                                end, stream);
}

/// The chunks as a stack in the own workspace, behind the published input.
Result<TensorView> get_stack(const ReduceScatterArgs& args, const Chunk& chunk, symm::Handle& workspace,
                             Stream& stream) {
  const DType dtype = args.input.dtype;
  const int rank = workspace.rank();
  const int world = workspace.world_size();
  const std::int64_t stack_at = aligned(args.input.size_bytes(), kStackAlignment) / size_bytes(dtype);
  Dims stack_sizes = chunk.sizes;
  stack_sizes.insert(0, world);
  TANDEM_ASSIGN(const TensorView stack, workspace.get_buffer(rank, stack_sizes, dtype, stack_at));
  if (stack.numel() == 0) return stack;
  for (int step = 1; step <= world; ++step) {
    const int source = (rank + step) % world;
    TANDEM_TRY(workspace.get(stream, stack.select(0, source), source, chunk.offset));
  }
  return stack;
}

}  // namespace

// The own shard, at the start; sized for the largest.
std::int64_t all_gather_workspace_bytes(const TensorView& output, int world) {
  return largest_part_bytes(output, world);
}

// The whole input, and behind it the stack of all ranks' chunks for this rank, if there is one.
std::int64_t reduce_scatter_workspace_bytes(const TensorView& input, int world, const Device& device) {
  const std::int64_t input_bytes = aligned(input.size_bytes(), kStackAlignment);
  if (reads_peers(world, device)) return input_bytes;
  return input_bytes + world * largest_part_bytes(input, world);
}

Result<void> enqueue_all_gather(const AllGatherArgs& args, symm::Handle* workspace, Group& group,
                                Stream& stream) {
  if (args.output.numel() == 0) return {};
  TANDEM_ASSIGN(Backend* const backend, backend_of("all_gather", stream));
  const EndBarrier all_have_read = {*workspace, group, symm::kGatherChannel};
  TANDEM_ASSIGN(const bool is_done, backend->all_gather(args, all_have_read, stream));
  if (is_done) return {};
  TANDEM_ASSIGN(const TensorView published,
                workspace->get_buffer(group.rank(), args.input.sizes, args.input.dtype));
  TANDEM_TRY(stream.copy(args.input, published));
  TANDEM_TRY(workspace->barrier(stream, symm::kGatherChannel + 1));  // all are published
  return get_shards(args, all_have_read, stream);
}

Result<TensorView> scatter_input(const symm::Handle& workspace, const Dims& sizes, DType dtype) {
  return workspace.get_buffer(workspace.rank(), sizes, dtype);
}

Result<void> enqueue_reduce_scatter(const ReduceScatterArgs& args, symm::Handle* workspace, Group& group,
                                    Stream& stream) {
  if (args.input.numel() == 0) return {};
  TANDEM_ASSIGN(Backend* const backend, backend_of("reduce_scatter", stream));
  TANDEM_ASSIGN(const bool is_done, backend->reduce_scatter(args, group, stream));
  if (is_done) return {};
  const int world = group.size();
  const Shard mine = shard_of(args.input.size(0), world, group.rank());
  const Chunk chunk = {with_rows(args.input.sizes, mine.size),
                       mine.offset * row_bytes(args.input) / size_bytes(args.input.dtype)};
  TANDEM_ASSIGN(const TensorView published, scatter_input(*workspace, args.input.sizes, args.input.dtype));
  if (args.input.data != published.data) TANDEM_TRY(stream.copy(args.input, published));
  if (reads_peers(world, stream.device())) {
    return sum_where_they_lie(args, chunk, {*workspace, group, symm::kScatterChannel}, stream);
  }
  TANDEM_TRY(workspace->barrier(stream, symm::kScatterChannel + 1));  // all inputs are published
  TANDEM_ASSIGN(const TensorView stack, get_stack(args, chunk, *workspace, stream));
  TANDEM_TRY(workspace->barrier(stream, symm::kScatterChannel));  // peers may use the workspace again
  return reduce_stack({.stack = stack, .out = args.output, .op = args.op, .bias = args.bias}, stream);
}

}  // namespace tandem::coll
