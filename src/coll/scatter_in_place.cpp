#include <algorithm>
#include <array>
#include <tandem/base/shard.hpp>

#include "base/alignment.hpp"
#include "base/row_bytes.hpp"
#include "base/try.hpp"
#include "coll/algorithms.hpp"
#include "coll/backend.hpp"

// The whole input is published at the start of the workspace, unless an op has made it there. One kernel
// between two barriers reads the chunks where they lie.

namespace tandem::coll {
namespace {

constexpr std::int64_t kInputAlignment = 64;
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

Answer reads_peers(const Problem& problem, const Device& device) {
  const auto* const backend = device.service<Backend>();
  const int max_layers = backend == nullptr ? 0 : backend->max_layers();
  if (max_layers == 0) return Answer::no("kernels cannot read memory of peers");
  if (problem.world > std::min(kMaxLayers, max_layers)) return Answer::no("more ranks than a sum has layers");
  return Answer::yes();
}

std::int64_t input_bytes(const Problem& problem, const Device&) {
  return aligned(problem.whole_bytes, kInputAlignment);
}

Result<void> sum_in_place(const ScatterCall& args, const EndBarrier& end, Stream& stream) {
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

}  // namespace

const ScatterAlgorithm kScatterInPlace = {
    .name = "in_place", .can_run = &reads_peers, .workspace_bytes = &input_bytes, .run = &sum_in_place};

}  // namespace tandem::coll
