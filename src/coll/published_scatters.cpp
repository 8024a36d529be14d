#include <algorithm>
#include <array>
#include <tandem/base/shard.hpp>

#include "base/alignment.hpp"
#include "base/row_bytes.hpp"
#include "base/try.hpp"
#include "coll/algorithms.hpp"
#include "coll/backend.hpp"

// Both publish the whole input at the start of the workspace, unless an op has made it there.

namespace tandem::coll {
namespace {

constexpr std::int64_t kStackAlignment = 64;
constexpr int kMaxLayers = 16;

/// The own rank's part of every published input.
struct Chunk {
  Dims sizes;
  std::int64_t offset;  // elements before it
};

Result<Chunk> publish(const TensorView& input, const symm::Handle& workspace, Stream& stream) {
  TANDEM_ASSIGN(const TensorView published, workspace.get_buffer(workspace.rank(), input.sizes, input.dtype));
  if (input.data != published.data) TANDEM_TRY(stream.copy(input, published));
  const Shard mine = shard_of(input.size(0), workspace.world_size(), workspace.rank());
  Chunk chunk = {input.sizes, mine.offset * row_bytes(input) / size_bytes(input.dtype)};
  chunk.sizes[0] = mine.size;
  return chunk;
}

// In place: one kernel between two barriers reads the chunks where they lie.

Answer reads_peers(const Problem& problem, const Device& device) {
  const auto* const backend = device.service<Backend>();
  const int max_layers = backend == nullptr ? 0 : backend->max_layers();
  if (max_layers == 0) return Answer::no("kernels cannot read memory of peers");
  if (problem.world > std::min(kMaxLayers, max_layers)) return Answer::no("more ranks than a sum has layers");
  return Answer::yes();
}

std::int64_t input_bytes(const Problem& problem, const Device&) {
  return aligned(problem.whole_bytes, kStackAlignment);
}

Result<void> sum_in_place(const ReduceScatterArgs& args, const EndBarrier& end, Stream& stream) {
  TANDEM_ASSIGN(const Chunk chunk, publish(args.input, end.workspace, stream));
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

// By copies: barrier, get every rank's chunk for this rank, barrier, sum in rank order.

/// The input, and behind it a stack of all ranks' chunks for this rank.
std::int64_t input_and_stack_bytes(const Problem& problem, const Device& device) {
  return input_bytes(problem, device) + problem.world * problem.part_bytes;
}

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

Result<void> sum_stack(const ReduceScatterArgs& args, const EndBarrier& end, Stream& stream) {
  TANDEM_ASSIGN(const Chunk chunk, publish(args.input, end.workspace, stream));
  TANDEM_TRY(end.workspace.barrier(stream, end.channel + 1));  // all inputs are published
  TANDEM_ASSIGN(const TensorView stack, get_stack(args, chunk, end.workspace, stream));
  TANDEM_TRY(end.workspace.barrier(stream, end.channel));  // peers may use the workspace again
  return reduce_stack({.stack = stack, .out = args.output, .op = args.op, .bias = args.bias}, stream);
}

}  // namespace

const ScatterAlgorithm kScatterInPlace = {
    .name = "in_place", .can_run = &reads_peers, .workspace_bytes = &input_bytes, .run = &sum_in_place};
const ScatterAlgorithm kScatterByCopies = {
    .name = "copies", .can_run = &always, .workspace_bytes = &input_and_stack_bytes, .run = &sum_stack};

}  // namespace tandem::coll
