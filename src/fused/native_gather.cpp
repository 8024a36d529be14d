#include "fused/native_gather.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/format.hpp"
#include "base/try.hpp"
#include "fused/hopper_rates.hpp"
#include "symm/chunk_words.hpp"

namespace tandem::fused {
namespace {

/// Rows of a copy, and of what one word guards, where a shard travels in pieces.
constexpr std::int64_t kPieceRows = 512;
/// Below this the copies of a GPU take longer to start than the products do.
constexpr std::int64_t kFewestRowsOnGpu = 512;

std::int64_t shard_rows(const GatherProblem& problem) {
  return shard_stride(problem.total(), problem.world) * problem.unit_rows();
}

// Chunks of p rows, the last one perhaps shorter, are the shard rule's over their number C = ceil(rows / p)
// if ceil(rows / C) = p. It is at most p, as rows <= C * p. It is p if rows > C * (p - 1): if the last chunk
// lacks fewer than C rows. Ranks fill up to fewer than W units, so where a unit is one row and no shard is
// empty (W <= C) it always holds; where units are thick it may not.
NativeChunks cut(const GatherProblem& problem, std::int64_t piece_rows) {
  NativeChunks chunks{.rows = piece_rows, .per_rank = shard_rows(problem) / piece_rows};
  chunks.count = (problem.rows() + piece_rows - 1) / piece_rows;
  chunks.by_shard_rule = shard_stride(problem.rows(), static_cast<int>(chunks.count)) == piece_rows;
  return chunks;
}

/// By sizes alone: whether a copy engine brings a whole shard while the one before it is multiplied, with
/// time to spare. Pieces would only keep the host longer: each is two calls of the driver's for each peer.
bool comes_whole_in_time(const GatherProblem& problem) {
  if (problem.device.kind != DeviceKind::kCuda || problem.plan_n == 0) return false;
  constexpr double kSpare = 1.25;
  // Of an element of a, which the rows cancel down to.
  const double multiplied_us = 2.0 * static_cast<double>(problem.plan_n) / kHopperFlopsPerUs;
  const double copied_us = static_cast<double>(size_bytes(problem.dtype)) / kHopperCopyBytesPerUs;
  return multiplied_us > kSpare * copied_us;
}

/// In either memory order of b, which is each rank's own affair. Allocates nothing.
bool is_taken(gemm::Product product, const Device& device) {
  for (const bool by_columns : {false, true}) {
    product.b_is_column_major = by_columns;
    if (gemm::choose(product, device) != nullptr) return true;
  }
  return false;
}

/// To one peer, piece by piece; each word behind its piece.
Result<void> push_to(int peer, const NativePush& push, int rank, Stream& side) {
  const TensorView& shard = push.shard;
  const NativeChunks& chunks = push.chunks;
  TANDEM_ASSIGN(const TensorView words, push.slot.words(peer));
  const std::int64_t slot = push.slot.data_bytes / size_bytes(shard.dtype);
  std::int64_t chunk = rank * chunks.per_rank;
  for (std::int64_t row = 0; row < shard.size(0); row += chunks.rows, ++chunk) {
    const TensorView piece = shard.narrow(0, row, std::min(chunks.rows, shard.size(0) - row));
    TANDEM_TRY(push.slot.handle->put(side, piece, peer, slot + chunk * chunks.rows * shard.size(1)));
    TANDEM_TRY(side.stream_write_value32(words, chunk, push.slot.epoch));
  }
  return {};
}

}  // namespace

NativeChunks native_chunks(const GatherProblem& problem) {
  const std::int64_t whole = shard_rows(problem);
  if (whole % kPieceRows == 0 && !comes_whole_in_time(problem)) {
    const NativeChunks pieces = cut(problem, kPieceRows);
    if (pieces.by_shard_rule) return pieces;
  }
  return cut(problem, whole);
}

gemm::Product agreed_product(const GatherProblem& problem, int patch_peers) {
  const NativeChunks chunks = native_chunks(problem);
  return {.m = problem.rows(),
          .n = problem.planned_n(),
          .k = problem.k(),
          .a = problem.dtype,
          .b = problem.dtype,
          .out = problem.dtype,
          .arrival = gemm::Chunks{.count = chunks.count,
                                  .together = chunks.per_rank,
                                  .complete = chunks.per_rank,
                                  .patched = patch_peers * chunks.per_rank,
                                  .in_order = false}};
}

Support can_run_native(const GatherProblem& problem, const Device& device) {
  if (problem.gathers_last()) return Support::no("it gathers rows, and here columns are gathered");
  if (problem.is_capturing) return Support::no("capture of native does not exist yet");
  if (problem.part_of(problem.world - 1).size == 0 || problem.unit_rows() == 0) {
    return Support::no(fmt::format("every rank has to have rows, and of {} at dim {} rank {} has none",
                                   to_string(problem.sizes), problem.dim, problem.world - 1));
  }
  if (device.id().kind == DeviceKind::kCuda && problem.rows() < kFewestRowsOnGpu) {
    return Support::no(fmt::format("{} rows, and fewer than {} are not made for a GPU yet", problem.rows(),
                                   kFewestRowsOnGpu));
  }
  const gemm::Product product = agreed_product(problem, 0);
  return is_taken(product, device) ? Support::yes() : gemm::can_run(product, device);
}

bool patches_keep_pace(const GatherProblem& problem) {
  // An H200, in products of 128 x 224 tiles; what its multiprocessors send while they multiply, with what is
  // lost at the beginning, and later.
  constexpr double kWave = 132 * 128 * 224;
  constexpr double kFirstBytesPerUs = 160e3;
  constexpr double kLaterBytesPerUs = 200e3;
  // Of a shard: less of the next one in the first wave makes no difference, nor does less before its wave.
  constexpr double kMuch = 0.2;
  constexpr double kLittle = 0.1;
  // Of the last wave: where more of it is empty narrower tiles are faster, whose first wave is the own shard.
  constexpr double kEmpty = 0.1;
  const std::int64_t shard_rows = problem.rows() / problem.world;
  const auto shard_size = static_cast<double>(shard_rows) * static_cast<double>(problem.planned_n());
  const auto shard_bytes = static_cast<double>(shard_rows * problem.k() * size_bytes(problem.dtype));
  if (shard_size == 0 || shard_bytes == 0) return false;
  const double shards = std::min(kWave / shard_size, static_cast<double>(problem.world));  // of a wave
  const double wave_us = 2.0 * shards * shard_size * static_cast<double>(problem.k()) / kHopperFlopsPerUs;
  const int at_once = std::max(static_cast<int>(std::round(shards)) - 1, 1);  // one of them is the own
  if (shards < 1 + kMuch || at_once * shard_bytes > kFirstBytesPerUs * wave_us) return false;
  if (std::round(shards) >= problem.world) return true;
  const double waves = problem.world / shards;
  if (std::ceil(waves) > (1 + kEmpty) * waves) return false;
  // The next ones begin to come when those before have been sent.
  for (int shard = 1 + at_once; shard < problem.world; ++shard) {
    const int sent = (shard - 1) / at_once * at_once;
    const double begin_us = wave_us * std::floor(shard / shards + kLittle);
    if (sent * shard_bytes > kLaterBytesPerUs * begin_us) return false;
  }
  return true;
}

int patch_peers(const GatherProblem& problem, const Device& device) {
  if (device.id().kind != DeviceKind::kCuda || problem.world == 1 || problem.world > gemm::kMostPatchRanks ||
      problem.gathers_last() || problem.is_capturing || problem.rows() < kFewestRowsOnGpu ||
      problem.total() % problem.world != 0) {
    return 0;
  }
  const std::optional<int> asked = device.config().native_patches;
  const int others = problem.world - 1;
  const int peers = asked ? std::min(*asked, others) : patches_keep_pace(problem) ? others : 0;
  return peers > 0 && is_taken(agreed_product(problem, peers), device) ? peers : 0;
}

Result<void> push_shard(const NativePush& push, const Group& group, Stream& side) {
  for (int step = 1 + push.patch_peers; step < group.size(); ++step) {
    TANDEM_TRY(push_to((group.rank() - step + group.size()) % group.size(), push, group.rank(), side));
  }
  return {};
}

Result<void> await_shard(const NativeSlot& slot, const NativeChunks& chunks, int source, Stream& stream) {
  if (source == slot.handle->rank()) return {};
  TANDEM_ASSIGN(const TensorView words, slot.words(slot.handle->rank()));
  const std::int64_t first = source * chunks.per_rank;
  return symm::await_chunks(*slot.handle,
                            {.words = words.data_as<const std::uint32_t>(),
                             .first = first,
                             .count = std::min(chunks.per_rank, chunks.count - first),
                             .chunks_per_rank = chunks.per_rank,
                             .expected = slot.epoch},
                            stream);
}

}  // namespace tandem::fused
