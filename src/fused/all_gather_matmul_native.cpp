#include "fused/all_gather_matmul_native.hpp"

#include <algorithm>
#include <tandem/gemm/mm.hpp>

#include "base/alignment.hpp"
#include "base/format.hpp"
#include "base/try.hpp"
#include "fused/native_gather.hpp"
#include "gemm/product.hpp"

namespace tandem::fused {
namespace {

/// Of b number i of this rank.
gemm::Product async_product(const GatherProblem& problem, const AllGatherMatmulArgs& args, std::size_t i) {
  const TensorView& b = args.b[i];
  gemm::Product product = agreed_product(problem, problem.patch_peers);
  product.n = b.size(1);
  product.b_is_column_major = !b.is_contiguous();
  product.is_aligned = gemm::is_aligned_async_input(b) && gemm::is_aligned_async_input(args.out[i]) &&
                       (problem.copies_a || gemm::is_aligned_async_input(args.a));
  return product;
}

/// Why not, but for what the device's products say; null if there is nothing. Asked in every call.
const char* why_not_consumed(const GatherProblem& problem, const TensorView& b) {
  if (problem.has_bias) return "no product there adds a bias while its input arrives";
  if (!b.is_contiguous() && !b.movedim(0, 1).is_contiguous()) return "b has holes";
  if (!native_chunks(problem).by_shard_rule) return "shards are uneven, and their units are several rows";
  return nullptr;
}

bool is_consumed(const GatherProblem& problem, const AllGatherMatmulArgs& args, std::size_t i,
                 const Device& device) {
  return why_not_consumed(problem, args.b[i]) == nullptr &&
         gemm::choose(async_product(problem, args, i), device) != nullptr;
}

std::uint64_t bit_of(std::size_t i) {
  return std::uint64_t{1} << std::min<std::size_t>(i, 63);
}

bool is_by_mm(const GatherProblem& problem, std::size_t i) {
  return (problem.by_mm & bit_of(i)) != 0;
}

/// One native call that has its slot.
class NativeCall {
 public:
  NativeCall(const GatherOp& op, const NativeSlot& slot, const TensorView& slot_units)
      : op_(op), chunks_(native_chunks(op.problem)), slot_(slot) {
    op_.gathered = slot_units;
  }

  /// Into the slot, if they lie so that products cannot send them. First of all.
  Result<void> align_own_rows();
  Result<void> push(Stream& side) const;
  Result<void> multiply() const;
  /// All of a, for a caller who wants to keep it.
  Result<void> keep_gathered() const;

 private:
  [[nodiscard]] const GatherProblem& problem() const { return op_.problem; }
  [[nodiscard]] int rank() const { return op_.group.rank(); }
  [[nodiscard]] TensorView own_rows() const {
    return TensorView::contiguous(op_.shard.data, {op_.shard.size(0) * problem().unit_rows(), problem().k()},
                                  problem().dtype, problem().device);
  }
  [[nodiscard]] Result<TensorView> gathered_rows() const {
    return slot_.data({problem().rows(), problem().k()}, problem().dtype);
  }
  /// Of the gathered rows.
  [[nodiscard]] Result<gemm::Arrival> arrival() const;
  /// Consumes the chunks as they come; true if there was such a product.
  Result<bool> consume() const;
  /// Without a product to make: what the other ranks' products need of this one, and a wait for theirs.
  Result<void> exchange_patches() const;
  Result<void> multiply_behind_waits(bool waits) const;

  GatherOp op_;  ///< its `gathered` is the slot
  NativeChunks chunks_;
  NativeSlot slot_;
};

/// Whether the own shard goes into the slot because products cannot send it from where it is.
bool needs_alignment(const GatherOp& op) {
  return op.problem.patch_peers > 0 && !gemm::is_aligned_async_input(op.shard);
}
TensorView own_part(const GatherOp& op) {
  const Shard own = op.problem.part_of(op.group.rank());
  return op.gathered.narrow(0, own.offset, own.size);
}

Result<void> NativeCall::align_own_rows() {
  if (!needs_alignment(op_)) return {};
  const TensorView in_slot = own_part(op_);
  TANDEM_TRY(op_.stream.copy(op_.shard, in_slot));
  op_.shard = in_slot;
  return {};
}

Result<void> NativeCall::push(Stream& side) const {
  TANDEM_TRY(side.wait(op_.stream));  // a is ready, and so is what earlier work made of it
  const TensorView rows = own_rows();
  return push_shard({rows, chunks_, slot_, problem().patch_peers}, op_.group, side);
}

Result<void> NativeCall::multiply() const {
  TANDEM_ASSIGN(const bool has_waited, consume());
  if (!has_waited && problem().patch_peers > 0) TANDEM_TRY(exchange_patches());
  return multiply_behind_waits(!has_waited);
}

Result<gemm::Arrival> NativeCall::arrival() const {
  TANDEM_ASSIGN(const TensorView words, slot_.words(rank()));
  const std::int64_t first = rank() * chunks_.per_rank;
  gemm::Arrival arrival{
      .signals = words,
      .pivot = first,
      .expected = slot_.epoch,
      .chunks_together = chunks_.per_rank,
      .in_order = false,
      .complete =
          gemm::CompleteChunks{
              .rows = own_rows(), .first = first, .count = std::min(chunks_.per_rank, chunks_.count - first)},
      .senders = gemm::ChunkSenders{.handle = slot_.handle, .chunks_per_rank = chunks_.per_rank}};
  if (problem().patch_peers > 0) {
    arrival.patches = {
        .peers = problem().patch_peers, .rows_bytes = slot_.data_bytes, .stamps_bytes = slot_.stamps_bytes};
  }
  return arrival;
}

Result<bool> NativeCall::consume() const {
  TANDEM_ASSIGN(const TensorView rows, gathered_rows());
  TANDEM_ASSIGN(gemm::Arrival chunks, arrival());
  bool any = false;
  for (std::size_t i = 0; i < op_.args.b.size(); ++i) {
    const std::int64_t columns = op_.args.b[i].size(1);
    if (columns == 0 || is_by_mm(problem(), i)) continue;
    const TensorView out = TensorView::contiguous(op_.args.out[i].data, {problem().rows(), columns},
                                                  problem().dtype, problem().device);
    TANDEM_TRY(gemm::run({.a = &rows, .b = &op_.args.b[i], .out = &out, .arrival = &chunks}, op_.stream));
    if (chunks.patches) chunks.patches->sends = false;
    any = true;
  }
  return any;
}

Result<void> NativeCall::exchange_patches() const {
  TANDEM_ASSIGN(const TensorView rows, gathered_rows());
  TANDEM_ASSIGN(const gemm::Arrival chunks, arrival());
  const TensorView b = TensorView::contiguous(nullptr, {problem().k(), 0}, problem().dtype, problem().device);
  const TensorView out =
      TensorView::contiguous(nullptr, {problem().rows(), 0}, problem().dtype, problem().device);
  return gemm::run({.a = &rows, .b = &b, .out = &out, .arrival = &chunks}, op_.stream);
}

// Also without a product to make: the peers count on it that every op awaits all of them (native_line.hpp).
Result<void> NativeCall::multiply_behind_waits(bool waits) const {
  const auto by_mm = [&](std::size_t i) { return is_by_mm(problem(), i); };
  for (int step = 0; step < problem().world; ++step) {
    const int source = (rank() + step) % problem().world;
    if (waits && step > problem().patch_peers) TANDEM_TRY(await_shard(slot_, chunks_, source, op_.stream));
    TANDEM_TRY(multiply_rows(op_, {problem().part_of(source), source}, op_.stream, gemm::mm, by_mm));
  }
  return {};
}

Result<void> NativeCall::keep_gathered() const {
  if (!problem().keeps_gathered) return {};
  const TensorView all =
      TensorView::contiguous(op_.args.gathered->data, op_.gathered.sizes, problem().dtype, problem().device);
  const Shard own = problem().part_of(rank());
  const std::int64_t behind = own.offset + own.size;
  for (const Shard& part : {Shard{0, own.offset}, Shard{behind, problem().total() - behind}}) {
    TANDEM_TRY(op_.stream.copy(op_.gathered.narrow(0, part.offset, part.size),
                               all.narrow(0, part.offset, part.size)));
  }
  return op_.stream.copy(op_.shard, all.narrow(0, own.offset, own.size));
}

/// `side` is null where the products send everything: nothing is left for it.
Result<void> enqueue_call(NativeCall& call, Stream* side) {
  TANDEM_TRY(call.align_own_rows());
  if (side != nullptr) TANDEM_TRY(call.push(*side));
  TANDEM_TRY(call.multiply());
  return call.keep_gathered();
}

}  // namespace

std::uint64_t products_by_mm(const AllGatherMatmulArgs& args, const GatherProblem& problem,
                             const Device& device) {
  std::uint64_t bits = 0;
  if (problem.gathers_last() || problem.rows() == 0) return bits;
  for (std::size_t i = 0; i < args.b.size(); ++i) {
    const bool is_made = args.b[i].size(1) > 0 && !is_consumed(problem, args, i, device);
    if (is_made) bits |= bit_of(i);
  }
  return bits;
}

std::string describe_by_mm(const AllGatherMatmulArgs& args, const GatherProblem& problem,
                           const Device& device) {
  std::string text;
  for (std::size_t i = 0; i < args.b.size(); ++i) {
    if (args.b[i].size(1) == 0 || !is_by_mm(problem, i)) continue;
    const char* const why = why_not_consumed(problem, args.b[i]);
    text +=
        fmt::format("; out[{}] by mm: {}", i,
                    why != nullptr ? why : gemm::can_run(async_product(problem, args, i), device).why_not);
  }
  return text;
}

Result<void> prepare_native(const GatherOp& op) {
  const auto by_mm = [&](std::size_t i) { return is_by_mm(op.problem, i); };
  // Of the slot only sizes and alignments matter here.
  GatherOp like = op;
  like.gathered = TensorView::contiguous(reinterpret_cast<void*>(kMostAlignment),
                                         {op.problem.total(), op.problem.unit_elements()}, op.problem.dtype,
                                         op.problem.device);
  if (needs_alignment(op)) like.shard = own_part(like);
  for (int source = 0; source < op.problem.world; ++source) {
    TANDEM_TRY(multiply_rows(like, {op.problem.part_of(source), source}, op.stream, gemm::prepare, by_mm));
  }
  return {};
}

Result<void> enqueue_native(const GatherOp& op) {
  const GatherProblem& problem = op.problem;
  const Dims units = {problem.total(), problem.unit_elements()};
  const NativeLine::Need need = {
      .data_bytes = numel(units) * size_bytes(problem.dtype),
      .num_words = native_chunks(problem).count,
      .num_stamps = problem.patch_peers > 0 ? gemm::num_patches(problem.rows(), problem.k()) : 0};
  TANDEM_ASSIGN(const NativeSlot slot, native_line(op.group, problem.device).next(need, op.group, op.stream));
  TANDEM_ASSIGN(const TensorView slot_units, slot.data(units, problem.dtype));
  TANDEM_TRY(copy_shard(op.a, op.shard, op.stream));
  NativeCall call(op, slot, slot_units);
  if (problem.patch_peers == problem.world - 1) return enqueue_call(call, nullptr);
  Stream& side = stream_pair(op.group, op.stream).side;
  const auto enqueued = enqueue_call(call, &side);
  // Also behind a call that broke off: the caller waits for his own stream only before memory goes.
  const auto joined = op.stream.wait(side);
  return enqueued ? joined : enqueued;
}

}  // namespace tandem::fused
