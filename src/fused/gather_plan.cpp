#include "fused/gather_plan.hpp"

#include <optional>

#include "base/format.hpp"
#include "base/try.hpp"
#include "base/usable_cores.hpp"
#include "fused/native_gather.hpp"

namespace tandem::fused {
namespace {

// From the native kernels (docs/design/native_all_gather_matmul.md): pairs of tile rows share what they load
// of b, and an odd number of them leaves one over; a shard's last tile may be short; the narrowest tile takes
// 48 us at k = 8192.
void describe_native(const GatherProblem& problem, Workload& work) {
  const NativeChunks chunks = native_chunks(problem);
  const std::int64_t shard_rows = chunks.rows * chunks.per_rank;
  const std::int64_t shard_tiles = (shard_rows + 127) / 128;
  const bool are_equal = problem.rows() % shard_rows == 0;
  const std::int64_t tile_rows = are_equal               ? shard_tiles * problem.world
                                 : shard_rows % 128 == 0 ? (problem.rows() + 127) / 128
                                                         : shard_tiles;
  work.native_pieces = static_cast<int>(chunks.per_rank);
  work.native_slowness = (tile_rows % 2 == 0 ? 1.0 : 1.25) * static_cast<double>(shard_tiles * 128) /
                         static_cast<double>(shard_rows);
  work.native_patch_peers = problem.patch_peers;
  work.native_tile_us = 48.0 * static_cast<double>(problem.k()) / 8192;
}

Workload workload_of(const GatherProblem& problem, const GatherPlanning& planning, const Group& group) {
  const std::int64_t chunk_elements = shard_stride(problem.total(), problem.world) * problem.unit_elements();
  Workload work{
      .kind = problem.device.kind,
      .world = problem.world,
      .cores = usable_cores(),
      .link = group.config().link_delay,
      .chunk_bytes = chunk_elements * size_bytes(problem.dtype) + planning.beside_bytes,
      .chunk_flops = 2.0 * static_cast<double>(chunk_elements) * static_cast<double>(problem.planned_n()),
      .pipelined_barriers = 2,
      .serial_barriers = 2,
      .native = planning.native};
  if (work.kind == DeviceKind::kCuda && work.native) describe_native(problem, work);
  return work;
}

/// None where nobody tells n: the square b that stands in for it may be far from every rank's.
std::optional<tune::Key> key_of(const GatherProblem& problem, const GatherPlanning& planning,
                                const Group& group) {
  if (problem.plan_n == 0) return std::nullopt;
  return tune::Key{.op = std::string(planning.op),
                   .layout = problem.gathers_last() ? "columns" : "rows",
                   .dtype = problem.dtype,
                   .m = problem.rows(),
                   .n = problem.plan_n,
                   .k = problem.k(),
                   .world = problem.world,
                   .link = link_name(problem.device.kind, group.config().link_delay)};
}

}  // namespace

Result<OpPlan> decide(const GatherProblem& problem, const GatherPlanning& planning, Group& group,
                      Device& device) {
  std::optional<tune::Key> key = key_of(problem, planning, group);
  TANDEM_ASSIGN(Choice choice,
                choose(fmt::format("fused_{}", planning.op), problem.asked,
                       workload_of(problem, planning, group), find_measured(group, key), problem.device));
  if (problem.copies_a) choice.reason += "; a is copied once for its strides";
  const bool is_native = choice.algorithm == Algorithm::kNative;
  const int patch_peers = is_native ? problem.patch_peers : 0;
  if (patch_peers > 0) {
    choice.reason += fmt::format("; products send the shards in patches to {} of {} ranks", patch_peers,
                                 problem.world - 1);
  }
  if (is_native) choice.reason += planning.native_note;
  if (choice.algorithm != Algorithm::kSerial) TANDEM_TRY(open_side_stream(group, device));
  return OpPlan{
      .algorithm = choice.algorithm,
      .reason = std::move(choice.reason),
      .key = fmt::format("{} {}x{}x{} {} dim {} w{}", planning.op, problem.rows(), problem.sum_n, problem.k(),
                         to_string(problem.dtype), problem.dim, problem.world),
      .label = fmt::format("{} [{},{},{}] {} {}", planning.op, problem.rows(), problem.sum_n, problem.k(),
                           to_string(problem.dtype), to_string(choice.algorithm)),
      .fingerprint = fmt::format("{} {}{} {}->{}{}", planning.op, to_string(problem), planning.agreed,
                                 to_string(problem.asked), to_string(choice.algorithm),
                                 patch_peers > 0 ? fmt::format(" in patches to {}", patch_peers) : ""),
      .candidates = std::move(choice.candidates),
      .tune_key = std::move(key)};
}

}  // namespace tandem::fused
