#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <tandem/base/shard.hpp>

#include "base/alignment.hpp"
#include "base/try.hpp"
#include "coll/algorithms.hpp"
#include "coll/backend.hpp"
#include "coll/pieces.hpp"
#include "coll/side_lane.hpp"
#include "symm/peers_handle.hpp"
#include "timeline/timeline_impl.hpp"

// Each rank pushes its chunks from where the input lies into stacks of their owners. A stack has a layer a
// rank, in rank order, and is in its owner's workspace, behind a place for the input. The own layer is read
// in the input, where that is contiguous; else it is copied to its place.
//
//   barrier 1: the stacks are free
//   put the chunks into the stacks of r+1, r+2, ...; own chunk into its layer, where it has to
//   barrier 0: all have put theirs
//   sum of the layers
//
// Large chunks go in pieces, each with a stack of its own. Barrier 0 and the sum of a piece are then on the
// lane, while the next piece travels.
//
// No barrier stands at the end. Peers write a stack only between barrier 1 and the barrier 0 of its piece,
// and every op touches a peer's workspace only behind a barrier or words of its own.

namespace tandem::coll {
namespace {

constexpr std::int64_t kStackAlignment = 64;
constexpr std::int64_t kLeastBytesToCut = std::int64_t{24} << 20;
constexpr int kMostLayersInPlace = 16;
constexpr int kPieces = 3;  // odd: with the one before the first piece, barriers are even in number

/// The input, where an op may make it, and behind it the stacks.
std::int64_t input_and_stack_bytes(const Problem& problem, const Device& /*device*/) {
  return aligned(problem.whole_bytes, kStackAlignment) + problem.world * problem.part_bytes;
}

int num_pieces_of(const Problem& problem, const Backend& backend) {
  const bool is_cut =
      backend.has_copy_engines() && problem.world > 1 && problem.part_bytes >= kLeastBytesToCut;
  return is_cut ? kPieces : 1;
}

class Scatter {
 public:
  Scatter(const ScatterCall& call, const EndBarrier& end, Backend& backend, Stream& stream)
      : call_(call),
        end_(end),
        workspace_(end.workspace),
        backend_(backend),
        stream_(stream),
        parts_(end.group, stream),
        cut_(Cut(call.input.sizes, call.dim,
                 num_pieces_of(problem_of(call.input, call.dim, end.workspace.world_size()), backend))) {}

  [[nodiscard]] bool is_cut() const { return cut_.num_pieces() > 1; }
  [[nodiscard]] Result<void> begin() const;
  /// The pieces, behind begin().
  [[nodiscard]] Result<void> enqueue(const SideLane& lane) const;

 private:
  [[nodiscard]] TensorView chunk_of(int q) const {
    const Shard part = shard_of(call_.input.size(call_.dim), workspace_.world_size(), q);
    return call_.input.narrow(call_.dim, part.offset, part.size);
  }
  /// Of rank q: the layers of all ranks' pieces of its chunk.
  [[nodiscard]] Result<TensorView> stack(int q, int piece) const;
  [[nodiscard]] bool reads_own_in_place(int piece) const;
  [[nodiscard]] Result<void> copy_own(int piece) const;
  [[nodiscard]] Result<void> put(int q, int piece) const;
  [[nodiscard]] Result<void> put_to_peers(int piece) const;
  [[nodiscard]] Result<void> sum(int piece, Stream& on) const;

  const ScatterCall& call_;
  const EndBarrier& end_;
  symm::Handle& workspace_;
  Backend& backend_;
  Stream& stream_;
  timeline::Parts parts_;
  Cut cut_;
};

Result<TensorView> Scatter::stack(int q, int piece) const {
  const TensorView chunk = chunk_of(q);
  const int world = workspace_.world_size();
  const Shard range = cut_.range(chunk.size(cut_.dim()), piece);
  const std::int64_t before = chunk.narrow(cut_.dim(), 0, range.offset).numel();
  const std::int64_t at = aligned(call_.input.size_bytes(), kStackAlignment) / size_bytes(chunk.dtype);
  Dims sizes = cut_.piece_of(chunk, piece).sizes;
  sizes.insert(0, world);
  return workspace_.get_buffer(q, sizes, chunk.dtype, at + world * before);
}

Result<void> Scatter::put(int q, int piece) const {
  const TensorView from = cut_.piece_of(chunk_of(q), piece);
  if (from.numel() == 0) return {};
  TANDEM_ASSIGN(const TensorView layers, stack(q, piece));
  TANDEM_TRY(symm::put_view(workspace_, stream_, from, layers.select(0, workspace_.rank()), q));
  return parts_.put(q, from.size_bytes());
}

Result<void> Scatter::put_to_peers(int piece) const {
  const int world = workspace_.world_size();
  for (int step = 1; step < world; ++step) TANDEM_TRY(put((workspace_.rank() + step) % world, piece));
  return {};
}

bool Scatter::reads_own_in_place(int piece) const {
  const int world = workspace_.world_size();
  return world <= std::min(kMostLayersInPlace, backend_.max_layers()) &&
         cut_.piece_of(chunk_of(workspace_.rank()), piece).is_contiguous();
}

Result<void> Scatter::sum(int piece, Stream& on) const {
  TANDEM_ASSIGN(const TensorView layered, stack(workspace_.rank(), piece));
  const Shard range = cut_.range(call_.output.size(cut_.dim()), piece);
  const TensorView out = call_.output.narrow(cut_.dim(), range.offset, range.size);
  if (out.numel() == 0) return {};
  std::optional<TensorView> bias = call_.bias;
  if (bias && cut_.dim() == out.dim() - 1) bias = bias->narrow(0, range.offset, range.size);
  if (!reads_own_in_place(piece)) {
    return backend_.reduce_stack_aside(
        {.stack = layered, .out = out, .op = call_.op, .bias = std::move(bias)}, on);
  }
  std::array<const void*, kMostLayersInPlace> layers;
  const auto world = static_cast<std::size_t>(workspace_.world_size());
  for (std::size_t r = 0; r < world; ++r) layers[r] = layered.select(0, static_cast<std::int64_t>(r)).data;
  layers[static_cast<std::size_t>(workspace_.rank())] =
      cut_.piece_of(chunk_of(workspace_.rank()), piece).data;
  return backend_.reduce_layers_aside({.layers = std::span(layers).first(world),
                                       .dtype = call_.input.dtype,
                                       .out = out,
                                       .op = call_.op,
                                       .bias = std::move(bias)},
                                      on);
}

Result<void> Scatter::copy_own(int piece) const {
  const TensorView own = cut_.piece_of(chunk_of(workspace_.rank()), piece);
  if (own.numel() == 0 || reads_own_in_place(piece)) return {};
  TANDEM_ASSIGN(const TensorView layers, stack(workspace_.rank(), piece));
  TANDEM_TRY(backend_.copy_aside(own, layers.select(0, workspace_.rank()), stream_));
  return parts_.copied("copy the own part", own.size_bytes());
}

Result<void> Scatter::begin() const {
  TANDEM_TRY(symm::barrier_aside(workspace_, stream_, end_.channel + 1, 0));  // the stacks are free
  return parts_.met(end_.channel + 1, symm::meets_on_stream(workspace_));
}

Result<void> Scatter::enqueue(const SideLane& lane) const {
  const timeline::Parts beside(end_.group, lane.stream());
  TANDEM_TRY(beside.begin());
  for (int piece = 0; piece < cut_.num_pieces(); ++piece) {
    TANDEM_TRY(put_to_peers(piece));
    TANDEM_TRY(copy_own(piece));
    TANDEM_TRY(lane.follow());
    const int turn = (piece + 1) % 2;
    TANDEM_TRY(symm::barrier_aside(workspace_, lane.stream(), end_.channel, turn));  // all have put theirs
    TANDEM_TRY(beside.met(end_.channel, symm::meets_on_stream(workspace_)));
    TANDEM_TRY(sum(piece, lane.stream()));
    TANDEM_TRY(beside.summed());
  }
  return {};
}

Result<void> run(const ScatterCall& call, const EndBarrier& end, Stream& stream) {
  TANDEM_ASSIGN(Backend* const backend, backend_of("reduce_scatter", stream));
  const Scatter scatter(call, end, *backend, stream);
  TANDEM_TRY(scatter.begin());
  if (!scatter.is_cut()) return scatter.enqueue(SideLane(stream, stream));
  return with_side_lane(end.group, stream, [&](const SideLane& lane) { return scatter.enqueue(lane); });
}

}  // namespace

const ScatterAlgorithm kScatterByCopies = {.name = "copies",
                                           .leaves_multiprocessors = true,
                                           .can_run = &always,
                                           .workspace_bytes = &input_and_stack_bytes,
                                           .run = &run};

}  // namespace tandem::coll
