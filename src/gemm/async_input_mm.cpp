#include <algorithm>
#include <limits>
#include <tandem/base/shard.hpp>
#include <tandem/gemm/async_input_mm.hpp>

#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "device/check_view.hpp"
#include "gemm/backend.hpp"
#include "gemm/choose.hpp"
#include "gemm/operand_checks.hpp"
#include "gemm/patch_grid.hpp"

namespace tandem::gemm {
namespace {

constexpr std::string_view kWho = "async_input_mm";

std::int64_t rows_of_chunks(std::int64_t rows, std::int64_t chunks, std::int64_t first, std::int64_t count) {
  const std::int64_t stride = shard_stride(rows, static_cast<int>(chunks));
  return std::min(rows, (first + count) * stride) - std::min(rows, first * stride);
}

Result<void> check_strides(const AsyncInputMmArgs& args) {
  if (!args.a.is_contiguous() || !args.out.is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument, "{}: a is {}, out {}: need both contiguous", kWho,
                 to_string(args.a), to_string(args.out));
  }
  if (!args.b.is_contiguous() && !args.b.movedim(0, 1).is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument, "{}: b is {}, need it row-major or column-major without holes",
                 kWho, to_string(args.b));
  }
  return {};
}

Result<void> check_signals(const AsyncInputMmArgs& args) {
  const TensorView& signals = args.a_chunk_signals;
  TANDEM_TRY(check_words(kWho, "a_chunk_signals", signals));
  if (signals.size(0) < 1 || signals.size(0) > std::numeric_limits<int>::max()) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} signals, need 1 to {}", kWho, signals.size(0),
                 std::numeric_limits<int>::max());
  }
  if (args.a_chunk_pivot < 0 || args.a_chunk_pivot >= signals.size(0)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: a_chunk_pivot is {}, need 0 to {}, as there are {} signals", kWho, args.a_chunk_pivot,
                 signals.size(0) - 1, signals.size(0));
  }
  if (args.chunks_together < 1 || args.a_chunk_pivot % args.chunks_together != 0) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: chunks_together is {}, need 1 or more, and a_chunk_pivot, {}, a multiple of it", kWho,
                 args.chunks_together, args.a_chunk_pivot);
  }
  return {};
}

Result<void> check_complete(const AsyncInputMmArgs& args) {
  const CompleteChunks& complete = *args.complete;
  const std::int64_t chunks = args.a_chunk_signals.size(0);
  if (complete.first < 0 || complete.count < 1 || complete.first >= chunks ||
      complete.count > chunks - complete.first) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: complete has {} chunks from chunk {}, need 1 or more inside 0 to {}", kWho,
                 complete.count, complete.first, chunks - 1);
  }
  const TensorView& rows = complete.rows;
  const std::int64_t num_rows = rows_of_chunks(args.a.size(0), chunks, complete.first, complete.count);
  if (rows.dtype != args.a.dtype || rows.sizes != Dims{num_rows, args.a.size(1)} || !rows.is_contiguous()) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: complete.rows is {}, need {} [{}, {}], contiguous, for chunks {} to {} of {}", kWho,
                 to_string(rows), to_string(args.a.dtype), num_rows, args.a.size(1), complete.first,
                 complete.first + complete.count - 1, chunks);
  }
  return {};
}

Result<void> check_senders(const AsyncInputMmArgs& args, const Stream& stream) {
  const ChunkSenders& senders = *args.senders;
  if (senders.handle == nullptr) {
    return failf(ErrorCode::kInvalidArgument, "{}: senders.handle is null, need that of a's block", kWho);
  }
  if (&senders.handle->device() != &stream.device()) {
    return failf(ErrorCode::kInvalidArgument, "{}: senders.handle is of {}, need one of the stream's device",
                 kWho, to_string(senders.handle->device().id()));
  }
  const std::int64_t chunks = args.a_chunk_signals.size(0);
  const int world = senders.handle->world_size();
  if (senders.chunks_per_rank < 1 || (chunks - 1) / senders.chunks_per_rank >= world) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: senders.chunks_per_rank is {}, need 1 or more, and {} chunks from {} ranks at most",
                 kWho, senders.chunks_per_rank, chunks, world);
  }
  return {};
}

Result<void> check_patches(const AsyncInputMmArgs& args) {
  const PatchExchange& patches = *args.patches;
  if (!args.complete || !args.senders) {
    return failf(ErrorCode::kInvalidArgument, "{}: patches need complete and senders, and {} missing", kWho,
                 args.complete  ? "senders are"
                 : args.senders ? "complete is"
                                : "both are");
  }
  const symm::Handle& handle = *args.senders->handle;
  if (handle.world_size() > kMostPatchRanks) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} ranks, and at most {} exchange patches", kWho,
                 handle.world_size(), kMostPatchRanks);
  }
  if (patches.peers < 1 || patches.peers >= handle.world_size()) {
    return failf(ErrorCode::kInvalidArgument, "{}: patches.peers is {}, need 1 to {}, all other ranks", kWho,
                 patches.peers, handle.world_size() - 1);
  }
  const std::int64_t per_rank = args.senders->chunks_per_rank;
  const std::int64_t chunks = args.a_chunk_signals.size(0);
  if (chunks != handle.world_size() * per_rank || args.complete->first != handle.rank() * per_rank ||
      args.complete->count != per_rank) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: complete has chunks [{}, {}) of {}: patches need rank {}'s whole shard, [{}, {}) of {}",
                 kWho, args.complete->first, args.complete->first + args.complete->count, chunks,
                 handle.rank(), handle.rank() * per_rank, (handle.rank() + 1) * per_rank,
                 handle.world_size() * per_rank);
  }
  const void* const block = handle.buffer_ptrs()[static_cast<std::size_t>(handle.rank())];
  const std::int64_t a_bytes = args.a.data_as<const std::byte>() - static_cast<const std::byte*>(block);
  if (a_bytes != patches.rows_bytes) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: a lies {} bytes behind the start of the senders' block, and patches.rows_bytes is {}: "
                 "need equal",
                 kWho, a_bytes, patches.rows_bytes);
  }
  const std::int64_t rows_end = patches.rows_bytes + args.a.size_bytes();
  const std::int64_t stamps_end = patches.stamps_bytes + 4 * num_patches(args.a.size(0), args.a.size(1));
  if (patches.rows_bytes < 0 || patches.stamps_bytes < 0 || patches.rows_bytes % kAsyncInputAlignment != 0 ||
      patches.stamps_bytes % kAsyncInputAlignment != 0 ||
      std::max(rows_end, stamps_end) > handle.buffer_size_bytes()) {
    return failf(
        ErrorCode::kInvalidArgument,
        "{}: patches.rows_bytes is {} and they end at {}, stamps_bytes {} and they end at {}: need multiples "
        "of {} inside {} bytes",
        kWho, patches.rows_bytes, rows_end, patches.stamps_bytes, stamps_end, kAsyncInputAlignment,
        handle.buffer_size_bytes());
  }
  return {};
}

std::int64_t patch_chunks_of(const AsyncInputMmArgs& args) {
  return args.patches && args.senders ? args.patches->peers * args.senders->chunks_per_rank : 0;
}

Result<void> check_memory(const AsyncInputMmArgs& args, const Device& device) {
  TANDEM_TRY(check_view(kWho, "a", args.a, device));
  TANDEM_TRY(check_view(kWho, "b", args.b, device));
  TANDEM_TRY(check_view(kWho, "out", args.out, device));
  if (args.complete) TANDEM_TRY(check_view(kWho, "complete.rows", args.complete->rows, device));
  return check_view(kWho, "a_chunk_signals", args.a_chunk_signals, device);
}

Result<void> check_out_apart(const AsyncInputMmArgs& args) {
  const Named out{"out", -1, &args.out};
  TANDEM_TRY(check_apart(kWho, out, {"a", -1, &args.a}));
  TANDEM_TRY(check_apart(kWho, out, {"b", -1, &args.b}));
  if (args.complete) TANDEM_TRY(check_apart(kWho, out, {"complete.rows", -1, &args.complete->rows}));
  return check_apart(kWho, out, {"a_chunk_signals", -1, &args.a_chunk_signals});
}

/// Peers write this rank's stamps while the product runs.
Result<void> check_stamps_apart(const AsyncInputMmArgs& args) {
  const symm::Handle& handle = *args.senders->handle;
  auto* const block = static_cast<std::byte*>(handle.buffer_ptrs()[static_cast<std::size_t>(handle.rank())]);
  const TensorView words =
      TensorView::contiguous(block + args.patches->stamps_bytes,
                             {num_patches(args.a.size(0), args.a.size(1))}, DType::kU32, args.a.device);
  const Named stamps{"patches' stamps", -1, &words};
  TANDEM_TRY(check_apart(kWho, stamps, {"a", -1, &args.a}));
  TANDEM_TRY(check_apart(kWho, stamps, {"b", -1, &args.b}));
  TANDEM_TRY(check_apart(kWho, stamps, {"out", -1, &args.out}));
  TANDEM_TRY(check_apart(kWho, stamps, {"complete.rows", -1, &args.complete->rows}));
  return check_apart(kWho, stamps, {"a_chunk_signals", -1, &args.a_chunk_signals});
}

}  // namespace

bool Implementation::accepts_async_input(const AsyncInputProblem&, std::string* why_not) const {
  if (why_not != nullptr) *why_not = "cannot take a left operand that still arrives";
  return false;
}

Result<void> Implementation::run_async_input(const AsyncInputProblem& problem, const AsyncInputMmArgs&,
                                             Stream&) const {
  return failf(ErrorCode::kInternal, "{}: asked for {}, which it does not accept", name(),
               to_string(problem));
}

std::int64_t num_patches(std::int64_t m, std::int64_t k) {
  return (m / PatchGrid::kRows) * (k / PatchGrid::kColumns);
}

std::string to_string(const AsyncInputProblem& problem) {
  return fmt::format("{} {}x{}x{} in {} chunks {} -> {}{}{}", kWho, problem.m, problem.n, problem.k,
                     problem.chunks, to_string(problem.in), to_string(problem.out),
                     problem.b_is_column_major ? ", b column-major" : "",
                     problem.patch_chunks == 0 ? "" : fmt::format(", {} in patches", problem.patch_chunks));
}

Result<AsyncInputProblem> problem_of(const AsyncInputMmArgs& args) {
  TANDEM_TRY(check_matrices(kWho, args.a, args.b, args.out));
  TANDEM_TRY(check_strides(args));
  TANDEM_TRY(check_signals(args));
  if (args.complete) TANDEM_TRY(check_complete(args));
  return AsyncInputProblem{.m = args.a.size(0),
                           .n = args.b.size(1),
                           .k = args.a.size(1),
                           .chunks = args.a_chunk_signals.size(0),
                           .chunks_together = args.chunks_together,
                           .patch_chunks = patch_chunks_of(args),
                           .in_order = args.in_order,
                           .in = args.a.dtype,
                           .out = args.out.dtype,
                           .b_is_column_major = !args.b.is_contiguous(),
                           .is_aligned = is_aligned_async_input(args.a) && is_aligned_async_input(args.b) &&
                                         is_aligned_async_input(args.out) &&
                                         (!args.complete || is_aligned_async_input(args.complete->rows))};
}

Support can_run(const AsyncInputProblem& problem, const Device& device) {
  constexpr std::int64_t kMostChunks = std::numeric_limits<int>::max();
  if (problem.chunks < 1 || problem.chunks > kMostChunks || problem.chunks_together < 1) {
    return Support::no(fmt::format("{} chunks, {} of them together: need 1 to {}, and 1 or more",
                                   problem.chunks, problem.chunks_together, kMostChunks));
  }
  return support_of(problem, device, &Implementation::accepts_async_input);
}

Result<void> async_input_mm(const AsyncInputMmArgs& args, Stream& stream) {
  TANDEM_TRY(check_memory(args, stream.device()));
  TANDEM_ASSIGN(const AsyncInputProblem problem, problem_of(args));
  TANDEM_TRY(check_out_apart(args));
  if (args.senders) TANDEM_TRY(check_senders(args, stream));
  if (args.patches) {
    TANDEM_TRY(check_patches(args));
    TANDEM_TRY(check_stamps_apart(args));
  }
  TANDEM_ASSIGN(const Implementation* implementation,
                chosen(problem, stream.device(), &Implementation::accepts_async_input));
  if (problem.m == 0 || (problem.n == 0 && !args.patches)) return {};
  if (args.senders) TANDEM_TRY(args.senders->handle->watch(stream));
  return implementation->run_async_input(problem, args, stream);
}

}  // namespace tandem::gemm
