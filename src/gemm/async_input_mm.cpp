#include <algorithm>
#include <limits>
#include <tandem/base/shard.hpp>
#include <tandem/gemm/async_input_mm.hpp>

#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "device/check_view.hpp"
#include "gemm/operand_checks.hpp"

namespace tandem::gemm {
namespace {

constexpr std::string_view kWho = "async_input_mm";

std::int64_t rows_of_chunks(std::int64_t rows, std::int64_t chunks, std::int64_t first, std::int64_t count) {
  const std::int64_t stride = shard_stride(rows, static_cast<int>(chunks));
  return std::min(rows, (first + count) * stride) - std::min(rows, first * stride);
}

Result<void> check_strides(const ProductArgs& args) {
  if (!args.a->is_contiguous() || !args.out->is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument, "{}: a is {}, out {}: need both contiguous", kWho,
                 to_string(*args.a), to_string(*args.out));
  }
  if (args.addend != nullptr && !args.addend->is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument, "{}: addend is {}, need it contiguous", kWho,
                 to_string(*args.addend));
  }
  if (!has_no_holes(*args.b)) {
    return failf(ErrorCode::kInvalidArgument, "{}: b is {}, need it row-major or column-major without holes",
                 kWho, to_string(*args.b));
  }
  return {};
}

Result<void> check_signals(const Arrival& arrival) {
  const TensorView& signals = arrival.signals;
  TANDEM_TRY(check_words(kWho, "a_chunk_signals", signals));
  if (signals.size(0) < 1 || signals.size(0) > std::numeric_limits<int>::max()) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} signals, need 1 to {}", kWho, signals.size(0),
                 std::numeric_limits<int>::max());
  }
  if (arrival.pivot < 0 || arrival.pivot >= signals.size(0)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: a_chunk_pivot is {}, need 0 to {}, as there are {} signals", kWho, arrival.pivot,
                 signals.size(0) - 1, signals.size(0));
  }
  if (arrival.chunks_together < 1 || arrival.pivot % arrival.chunks_together != 0) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: chunks_together is {}, need 1 or more, and a_chunk_pivot, {}, a multiple of it", kWho,
                 arrival.chunks_together, arrival.pivot);
  }
  return {};
}

Result<void> check_complete(const ProductArgs& args) {
  const Arrival& arrival = *args.arrival;
  const CompleteChunks& complete = *arrival.complete;
  const std::int64_t chunks = arrival.signals.size(0);
  if (complete.first < 0 || complete.count < 1 || complete.first >= chunks ||
      complete.count > chunks - complete.first) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: complete has {} chunks from chunk {}, need 1 or more inside 0 to {}", kWho,
                 complete.count, complete.first, chunks - 1);
  }
  const TensorView& rows = complete.rows;
  const std::int64_t num_rows = rows_of_chunks(args.a->size(0), chunks, complete.first, complete.count);
  if (rows.dtype != args.a->dtype || rows.sizes != Dims{num_rows, args.a->size(1)} || !rows.is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: complete.rows is {}, need {} [{}, {}], contiguous, for chunks {} to {} of {}", kWho,
                 to_string(rows), to_string(args.a->dtype), num_rows, args.a->size(1), complete.first,
                 complete.first + complete.count - 1, chunks);
  }
  return {};
}

Result<void> check_senders(const Arrival& arrival, const Stream& stream) {
  const ChunkSenders& senders = *arrival.senders;
  if (senders.handle == nullptr) {
    return failf(ErrorCode::kInvalidArgument, "{}: senders.handle is null, need that of a's block", kWho);
  }
  if (&senders.handle->device() != &stream.device()) {
    return failf(ErrorCode::kInvalidArgument, "{}: senders.handle is of {}, need one of the stream's device",
                 kWho, to_string(senders.handle->device().id()));
  }
  const std::int64_t chunks = arrival.signals.size(0);
  const int world = senders.handle->world_size();
  if (senders.chunks_per_rank < 1 || (chunks - 1) / senders.chunks_per_rank >= world) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: senders.chunks_per_rank is {}, need 1 or more, and {} chunks from {} ranks at most",
                 kWho, senders.chunks_per_rank, chunks, world);
  }
  return {};
}

/// Whether a lies in the senders' block, so that each of them has its rows at the same place.
Result<void> check_held(const ProductArgs& args) {
  const Arrival& arrival = *args.arrival;
  if (!arrival.senders)
    return failf(ErrorCode::kInvalidArgument, "{}: rows are held by their senders, which are missing", kWho);
  const symm::Handle& handle = *arrival.senders->handle;
  const void* const block = handle.buffer_ptrs()[static_cast<std::size_t>(handle.rank())];
  const std::int64_t at = args.a->data_as<const std::byte>() - static_cast<const std::byte*>(block);
  if (at >= 0 && at + args.a->size_bytes() <= handle.buffer_size_bytes()) return {};
  return failf(
      ErrorCode::kInvalidArgument,
      "{}: a lies {} bytes behind the start of the senders' block, need all of its {} bytes inside {}", kWho,
      at, args.a->size_bytes(), handle.buffer_size_bytes());
}

std::int64_t num_flags_of(const ProductArgs& args) {
  const TensorView& a = *args.a;
  return num_piece_flags(a.size(0), args.arrival->senders->handle->world_size(),
                         a.size(1) * size_bytes(a.dtype));
}

Result<void> check_pieces(const ProductArgs& args) {
  const Arrival& arrival = *args.arrival;
  const PieceExchange& pieces = *arrival.pieces;
  if (!arrival.complete || !arrival.senders) {
    return failf(ErrorCode::kInvalidArgument, "{}: pieces need complete and senders, and {} missing", kWho,
                 arrival.complete  ? "senders are"
                 : arrival.senders ? "complete is"
                                   : "both are");
  }
  const symm::Handle& handle = *arrival.senders->handle;
  if (handle.world_size() > kMostPieceRanks) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} ranks, and at most {} exchange pieces", kWho,
                 handle.world_size(), kMostPieceRanks);
  }
  if (pieces.peers < 1 || pieces.peers >= handle.world_size()) {
    return failf(ErrorCode::kInvalidArgument, "{}: pieces.peers is {}, need 1 to {}, all other ranks", kWho,
                 pieces.peers, handle.world_size() - 1);
  }
  const std::int64_t per_rank = arrival.senders->chunks_per_rank;
  const std::int64_t chunks = arrival.signals.size(0);
  if (chunks != handle.world_size() * per_rank || arrival.complete->first != handle.rank() * per_rank ||
      arrival.complete->count != per_rank) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: complete has chunks [{}, {}) of {}: pieces need rank {}'s whole shard, [{}, {}) of {}",
                 kWho, arrival.complete->first, arrival.complete->first + arrival.complete->count, chunks,
                 handle.rank(), handle.rank() * per_rank, (handle.rank() + 1) * per_rank,
                 handle.world_size() * per_rank);
  }
  const void* const block = handle.buffer_ptrs()[static_cast<std::size_t>(handle.rank())];
  const std::int64_t a_bytes = args.a->data_as<const std::byte>() - static_cast<const std::byte*>(block);
  if (a_bytes != pieces.rows_bytes) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: a lies {} bytes behind the start of the senders' block, and pieces.rows_bytes is {}: "
                 "need equal",
                 kWho, a_bytes, pieces.rows_bytes);
  }
  const std::int64_t rows_end = pieces.rows_bytes + args.a->size_bytes();
  const std::int64_t flags_end = pieces.flags_bytes + 4 * num_flags_of(args);
  if (pieces.rows_bytes < 0 || pieces.flags_bytes < 0 || pieces.rows_bytes % kAsyncInputAlignment != 0 ||
      pieces.flags_bytes % kAsyncInputAlignment != 0 ||
      std::max(rows_end, flags_end) > handle.buffer_size_bytes()) {
    return failf(
        ErrorCode::kInvalidArgument,
        "{}: pieces.rows_bytes is {} and they end at {}, flags_bytes {} and they end at {}: need multiples "
        "of {} inside {} bytes",
        kWho, pieces.rows_bytes, rows_end, pieces.flags_bytes, flags_end, kAsyncInputAlignment,
        handle.buffer_size_bytes());
  }
  return {};
}

/// Peers write this rank's flags while the product runs.
Result<void> check_flags_apart(const ProductArgs& args) {
  const Arrival& arrival = *args.arrival;
  const symm::Handle& handle = *arrival.senders->handle;
  auto* const block = static_cast<std::byte*>(handle.buffer_ptrs()[static_cast<std::size_t>(handle.rank())]);
  const TensorView words = TensorView::contiguous(block + arrival.pieces->flags_bytes, {num_flags_of(args)},
                                                  DType::kU32, args.a->device);
  const Named flags{"pieces' flags", -1, &words};
  TANDEM_TRY(check_apart(kWho, flags, {"a", -1, args.a}));
  TANDEM_TRY(check_apart(kWho, flags, {"b", -1, args.b}));
  TANDEM_TRY(check_apart(kWho, flags, {"out", -1, args.out}));
  TANDEM_TRY(check_apart(kWho, flags, {"complete.rows", -1, &arrival.complete->rows}));
  return check_apart(kWho, flags, {"a_chunk_signals", -1, &arrival.signals});
}

bool are_aligned(const ProductArgs& args) {
  const auto& complete = args.arrival->complete;
  return is_aligned_async_input(*args.a) && is_aligned_async_input(*args.b) &&
         is_aligned_async_input(*args.out) && (!complete || is_aligned_async_input(complete->rows)) &&
         (args.addend == nullptr || is_aligned_async_input(*args.addend));
}

Chunks chunks_of(const Arrival& arrival) {
  const bool has_pieces = arrival.pieces && arrival.senders;
  return {.count = arrival.signals.size(0),
          .together = arrival.chunks_together,
          .complete = arrival.complete ? arrival.complete->count : 0,
          .in_pieces = has_pieces ? arrival.pieces->peers * arrival.senders->chunks_per_rank : 0,
          .in_order = arrival.in_order,
          .held = arrival.held};
}

Arrival arrival_of(const AsyncInputMmArgs& args) {
  return {.signals = args.a_chunk_signals,
          .pivot = args.a_chunk_pivot,
          .expected = args.expected,
          .chunks_together = args.chunks_together,
          .in_order = args.in_order,
          .complete = args.complete,
          .senders = args.senders};
}

ProductArgs product_args(const AsyncInputMmArgs& args, const Arrival& arrival) {
  return {.a = &args.a, .b = &args.b, .out = &args.out, .arrival = &arrival};
}

}  // namespace

std::string to_string(const AsyncInputProblem& problem) {
  return to_string(product_of(problem));
}

Product product_of(const AsyncInputProblem& problem) {
  return {.m = problem.m,
          .n = problem.n,
          .k = problem.k,
          .a = problem.in,
          .b = problem.in,
          .out = problem.out,
          .b_is_column_major = problem.b_is_column_major,
          .is_aligned = problem.is_aligned,
          .arrival = Chunks{
              .count = problem.chunks, .together = problem.chunks_together, .in_order = problem.in_order}};
}

namespace {

/// The same of checked operands whose a arrives.
Result<Product> with_arrival(Product product, const ProductArgs& args) {
  TANDEM_TRY(check_strides(args));
  TANDEM_TRY(check_signals(*args.arrival));
  if (args.arrival->complete) TANDEM_TRY(check_complete(args));
  product.b_is_column_major = !args.b->is_contiguous();
  product.is_aligned = are_aligned(args);
  product.arrival = chunks_of(*args.arrival);
  return product;
}

/// The scales of the complete rows, as a_scale has them of all.
Result<void> check_complete_scale(const ProductArgs& args) {
  const Arrival& arrival = *args.arrival;
  if (!arrival.complete_scale) return {};
  if (args.a_scale == nullptr || args.a_scale->dim() != 2)
    return failf(ErrorCode::kInvalidArgument, "{}: complete_scale needs a_scale of two dims", kWho);
  const TensorView& scale = *arrival.complete_scale;
  const Dims need = {arrival.complete ? arrival.complete->rows.size(0) : 0, args.a_scale->size(1)};
  if (scale.dtype == DType::kF32 && scale.sizes == need) return {};
  return failf(ErrorCode::kInvalidArgument, "{}: complete_scale is {}, need f32 {}", kWho, to_string(scale),
               to_string(need));
}

}  // namespace

Result<Product> async_input_product(const ProductArgs& args) {
  TANDEM_TRY(check_matrices(kWho, args));
  return with_arrival(product_of(args), args);
}

Result<Product> scaled_async_input_product(const ProductArgs& args) {
  TANDEM_ASSIGN(const Product product, scaled_product(args));
  if (args.a->dim() != 2) {
    return failf(ErrorCode::kInvalidArgument, "{}: a is {}, need two dimensions", kWho,
                 to_string(args.a->sizes));
  }
  TANDEM_TRY(check_complete_scale(args));
  return with_arrival(product, args);
}

Result<void> check_senders_and_pieces(const ProductArgs& args, const Stream& stream) {
  if (args.arrival->senders) TANDEM_TRY(check_senders(*args.arrival, stream));
  if (args.arrival->held) TANDEM_TRY(check_held(args));
  if (!args.arrival->pieces) return {};
  TANDEM_TRY(check_pieces(args));
  return check_flags_apart(args);
}

Result<AsyncInputProblem> problem_of(const AsyncInputMmArgs& args) {
  const Arrival arrival = arrival_of(args);
  TANDEM_ASSIGN(const Product product, async_input_product(product_args(args, arrival)));
  return AsyncInputProblem{.m = product.m,
                           .n = product.n,
                           .k = product.k,
                           .chunks = product.arrival->count,
                           .chunks_together = product.arrival->together,
                           .in_order = product.arrival->in_order,
                           .in = product.a,
                           .out = product.out,
                           .b_is_column_major = product.b_is_column_major,
                           .is_aligned = product.is_aligned};
}

Support can_run(const AsyncInputProblem& problem, const Device& device) {
  constexpr std::int64_t kMostChunks = std::numeric_limits<int>::max();
  if (problem.chunks < 1 || problem.chunks > kMostChunks || problem.chunks_together < 1) {
    return Support::no(fmt::format("{} chunks, {} of them together: need 1 to {}, and 1 or more",
                                   problem.chunks, problem.chunks_together, kMostChunks));
  }
  return can_run(product_of(problem), device);
}

Result<void> async_input_mm(const AsyncInputMmArgs& args, Stream& stream) {
  const Arrival arrival = arrival_of(args);
  return run(kAsyncInputMm, product_args(args, arrival), stream);
}

}  // namespace tandem::gemm
