#include "fused/gather/chunks.hpp"

#include <algorithm>
#include <optional>

#include "base/format.hpp"
#include "cost/transfers.hpp"
#include "fused/call/host_chunks.hpp"
#include "fused/call/scaled_checks.hpp"

namespace tandem::fused {
namespace {

/// Rows of a chunk, where a shard travels in several.
constexpr std::int64_t kChunkRows = 512;
/// Below this the copies of a GPU take longer to start than the products do: shards go in pieces, or the
/// gather is not native.
constexpr std::int64_t kFewestRowsByCopies = 512;

std::int64_t shard_rows(const GatherProblem& problem) {
  return shard_stride(problem.total(), problem.world) * problem.unit_rows();
}

// Chunks of p rows, the last one perhaps shorter, are the shard rule's over their number C = ceil(rows / p)
// if ceil(rows / C) = p. It is at most p, as rows <= C * p. It is p if rows > C * (p - 1): if the last chunk
// lacks fewer than C rows. Ranks fill up to fewer than W units, so where a unit is one row and no shard is
// empty (W <= C) it always holds; where units are thick it may not.
NativeChunks cut(const GatherProblem& problem, std::int64_t chunk_rows) {
  NativeChunks chunks{.rows = chunk_rows, .per_rank = shard_rows(problem) / chunk_rows};
  // A chunk a rank, also where the last ranks have no rows.
  chunks.count = chunks.per_rank == 1 ? problem.world : (problem.rows() + chunk_rows - 1) / chunk_rows;
  chunks.by_shard_rule = shard_stride(problem.rows(), static_cast<int>(chunks.count)) == chunk_rows;
  return chunks;
}

/// As many as let a product begin with what has come of a shard while the link brings the rest.
NativeChunks over_a_link(const GatherProblem& problem) {
  constexpr std::int64_t kMostChunks = 8;
  constexpr std::int64_t kFewestRows = 64;
  const std::int64_t whole = shard_rows(problem);
  for (std::int64_t count = std::min(kMostChunks, whole / kFewestRows); count > 1; --count) {
    if (whole % count != 0) continue;
    const NativeChunks chunks = cut(problem, whole / count);
    if (chunks.by_shard_rule) return chunks;
  }
  return cut(problem, whole);
}

/// Whether all ranks multiply in blocks. Where a host has one rank, that is its own affair.
bool needs_blocks(const GatherProblem& problem) {
  return problem.num_hosts > 1 && problem.ranks_per_host() > 1;
}

NativeBlock all_rows(const GatherProblem& problem, const NativeChunks& chunks) {
  return {{0, chunks.count}, {0, problem.total()}, chunks.per_rank};
}

NativeBlock rows_of_host(const GatherProblem& problem, const NativeChunks& chunks, int idx) {
  const int ranks = problem.ranks_per_host();
  const std::int64_t first = idx * ranks * chunks.per_rank;
  const std::int64_t begin = problem.part_of(idx * ranks).offset;
  const Shard last = problem.part_of((idx + 1) * ranks - 1);
  return {{first, std::min(ranks * chunks.per_rank, chunks.count - first)},
          {begin, last.offset + last.size - begin},
          chunks.per_rank};
}

/// Whether the chunks of each host are cut by the shard rule, too. All but the last one are full.
bool is_cut_by_hosts(const GatherProblem& problem, const NativeChunks& chunks) {
  const NativeBlock last = rows_of_host(problem, chunks, problem.num_hosts - 1);
  const std::int64_t rows = last.units.size * problem.unit_rows();
  return last.chunks.size > 0 && shard_stride(rows, static_cast<int>(last.chunks.size)) == chunks.rows;
}

/// The chunks in which shards cross to other hosts, or as many as the shard rule can tell apart. A product
/// that waits for chunks loses less by small ones than products of a chunk each.
NativeChunks between_hosts(const GatherProblem& problem) {
  const bool is_gpu = problem.device.kind == DeviceKind::kCuda;
  const std::int64_t whole = shard_rows(problem);
  const HostChunks wanted = HostChunks::of(whole / problem.unit_rows(), problem.unit_rows(),
                                           problem.unit_elements() * size_bytes(problem.dtype),
                                           is_gpu ? HostChunks::Least{.rows = 512} : HostChunks::Least{});
  for (std::int64_t count = wanted.count; count > 1; --count) {
    if (whole % count != 0) continue;
    const NativeChunks chunks = cut(problem, whole / count);
    if (chunks.by_shard_rule && (!needs_blocks(problem) || is_cut_by_hosts(problem, chunks))) return chunks;
  }
  NativeChunks chunks = cut(problem, whole);
  if (needs_blocks(problem)) chunks.by_shard_rule = chunks.by_shard_rule && is_cut_by_hosts(problem, chunks);
  return chunks;
}

/// By sizes alone: whether a copy engine brings a whole shard in time. Smaller chunks would only keep the
/// host longer: each is two calls of the driver's for each peer.
bool comes_whole_in_time(const GatherProblem& problem) {
  return problem.device.kind == DeviceKind::kCuda && problem.plan_n > 0 &&
         cost::copies_keep_pace(problem.plan_n);
}

/// In either memory order of b, which is each rank's own affair. Allocates nothing.
bool is_taken(gemm::Product product, const Device& device) {
  for (const bool by_columns : {false, true}) {
    product.b_is_column_major = by_columns;
    if (gemm::choose(product, device) != nullptr) return true;
  }
  return false;
}

bool has_few_rows(const GatherProblem& problem) {
  return problem.device.kind == DeviceKind::kCuda && problem.rows() < kFewestRowsByCopies;
}

/// Whether all of the shards of few rows can go in pieces to all ranks.
bool goes_in_pieces(const GatherProblem& problem, const Device& device) {
  const int others = problem.world - 1;
  if (problem.rows() == 0 || device.config().native_pieces.value_or(others) < others) return false;
  if (!native_chunks(problem).by_shard_rule) return false;
  // Scales that travel are those of tiles of one shard.
  return !problem.has_sharded_scale() || !shares_tiles(agreed_product(problem, others));
}

gemm::Scale scale_of_a(const GatherProblem& problem) {
  switch (problem.scale_mode) {
    case ScaleMode::kTensorwise:
      return gemm::Scale::kTensor;
    case ScaleMode::kRowwiseSharded:
    case ScaleMode::kRowwiseReplicated:
      return gemm::Scale::kRow;
    case ScaleMode::kBlockwiseSharded:
    case ScaleMode::kBlockwiseReplicated:
      return gemm::Scale::kVector128;
    case ScaleMode::kDetect:
    case ScaleMode::kNone:
      break;
  }
  return gemm::Scale::kNone;
}

}  // namespace

NativeChunks native_chunks(const GatherProblem& problem) {
  if (problem.num_hosts > 1) return between_hosts(problem);
  const std::int64_t whole = shard_rows(problem);
  if (problem.pulls) return problem.has_link ? over_a_link(problem) : cut(problem, whole);
  if (whole % kChunkRows == 0 && !comes_whole_in_time(problem)) {
    const NativeChunks chunks = cut(problem, kChunkRows);
    if (chunks.by_shard_rule) return chunks;
  }
  return cut(problem, whole);
}

int num_native_blocks(const GatherProblem& problem) {
  if (problem.num_hosts == 1) return 1;
  if (needs_blocks(problem)) return problem.num_hosts;
  return problem.num_b > 1 && is_cut_by_hosts(problem, native_chunks(problem)) ? problem.num_hosts : 1;
}

NativeBlock native_block(const GatherProblem& problem, int idx) {
  const NativeChunks chunks = native_chunks(problem);
  return num_native_blocks(problem) == 1 ? all_rows(problem, chunks) : rows_of_host(problem, chunks, idx);
}

gemm::Product planned_product(const GatherProblem& problem) {
  return {.m = problem.rows(),
          .n = problem.planned_n(),
          .k = problem.k(),
          .a = problem.factor(),
          .b = problem.factor(),
          .out = problem.is_scaled ? DType::kBF16 : problem.dtype,
          .a_scale = scale_of_a(problem),
          .b_scale = scale_of_b(scale_of_a(problem)),
          .fast_accum = problem.fast_accum && !problem.is_scaled_by_blocks()};
}

gemm::Product agreed_product(const GatherProblem& problem, int piece_peers) {
  const NativeChunks chunks = native_chunks(problem);
  return agreed_product(problem, piece_peers,
                        needs_blocks(problem) ? rows_of_host(problem, chunks, 0) : all_rows(problem, chunks));
}

gemm::Product agreed_product(const GatherProblem& problem, int piece_peers, const NativeBlock& block) {
  const std::int64_t per_rank = block.chunks_per_rank;
  gemm::Product product = planned_product(problem);
  if (!problem.gathers_last()) product.m = block.units.size * problem.unit_rows();
  product.arrival = gemm::Chunks{.count = block.chunks.size,
                                 .together = problem.num_hosts > 1 ? 1 : per_rank,
                                 .complete = per_rank,
                                 .in_pieces = piece_peers * per_rank,
                                 .in_order = false,
                                 .held = problem.pulls};
  return product;
}

Support can_run_native(const GatherProblem& problem, const Device& device) {
  if (problem.num_also_gathered > 0) return Support::no("it gathers nothing beside a and its scale");
  if (problem.quantize)
    return Support::no("it multiplies what peers send, and here a is quantised in between");
  if (problem.gathers_last()) return Support::no("it gathers rows, and here columns are gathered");
  const int others = problem.world - 1;
  const bool is_few = has_few_rows(problem);
  if (is_few && others > 0 && piece_peers(problem, device) == others) return Support::yes();
  if (problem.part_of(others).size == 0 || problem.unit_rows() == 0) {
    return Support::no(fmt::format("every rank has to have rows, and of {} at dim {} rank {} has none",
                                   to_string(problem.sizes), problem.dim, others));
  }
  if (is_few && problem.num_hosts > 1) {
    return Support::no(
        fmt::format("{} rows, and across hosts it takes {} or more", problem.rows(), kFewestRowsByCopies));
  }
  if (is_few) {
    return Support::no(fmt::format("{} rows, and fewer than {} have to go in pieces to all ranks",
                                   problem.rows(), kFewestRowsByCopies));
  }
  if (problem.num_hosts > 1 && !native_chunks(problem).by_shard_rule)
    return Support::no("shards are uneven, and hosts have several ranks or units several rows");
  if (const gemm::Product product = agreed_product(problem, 0); !is_taken(product, device))
    return gemm::can_run(product, device);
  if (!needs_blocks(problem)) return Support::yes();
  const NativeBlock last = rows_of_host(problem, native_chunks(problem), problem.num_hosts - 1);
  const gemm::Product product = agreed_product(problem, 0, last);
  return is_taken(product, device) ? Support::yes() : gemm::can_run(product, device);
}

bool pieces_keep_pace(const GatherProblem& problem) {
  return cost::pieces_keep_pace({.world = problem.world,
                                 .rows = problem.rows() / problem.world,
                                 .n = problem.planned_n(),
                                 .k = problem.k(),
                                 .element_bytes = size_bytes(problem.dtype)});
}

int piece_peers(const GatherProblem& problem, const Device& device) {
  if (device.id().kind != DeviceKind::kCuda || problem.world == 1 || problem.world > gemm::kMostPieceRanks ||
      problem.num_hosts > 1 || problem.num_also_gathered > 0 || problem.gathers_last()) {
    return 0;
  }
  const int others = problem.world - 1;
  int peers = 0;
  if (has_few_rows(problem)) {
    peers = goes_in_pieces(problem, device) ? others : 0;
  } else if (problem.total() % problem.world == 0) {
    const std::optional<int> asked = device.config().native_pieces;
    peers = asked ? std::min(*asked, others) : pieces_keep_pace(problem) ? others : 0;
  }
  return peers > 0 && is_taken(agreed_product(problem, peers), device) ? peers : 0;
}

}  // namespace tandem::fused
