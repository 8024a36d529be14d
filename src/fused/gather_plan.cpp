#include "fused/gather_plan.hpp"

#include <optional>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/group_rates.hpp"
#include "coll/predict.hpp"
#include "fused/core_speeds.hpp"
#include "fused/native_gather.hpp"
#include "gemm/product.hpp"

namespace tandem::fused {
namespace {

/// As if every b were column-major, which is each rank's own affair.
void predict_on(const Device& device, const GatherProblem& problem, Workload& work) {
  predict_products({.m = problem.rows(),
                    .n = problem.planned_n(),
                    .k = problem.k(),
                    .in = problem.dtype,
                    .out = problem.dtype},
                   shard_stride(problem.total(), problem.world) * problem.unit_rows(), device, work);
  if (!work.native) return;
  gemm::Product native = agreed_product(problem, problem.patch_peers);
  native.b_is_column_major = true;
  work.native_us = gemm::predicted_us(native, device);
}

Result<Workload> workload_of(const GatherProblem& problem, const GatherPlanning& planning, Group& group,
                             Device& device, bool may_measure) {
  const std::int64_t chunk_elements = shard_stride(problem.total(), problem.world) * problem.unit_elements();
  const double b_elements = static_cast<double>(problem.k()) * static_cast<double>(problem.planned_n());
  Workload work{
      .kind = problem.device.kind,
      .world = problem.world,
      .cores = bootstrap::cores_of(group),
      .link = group.config().link_delay,
      .chunk_bytes = chunk_elements * size_bytes(problem.dtype) + planning.beside_bytes,
      .chunk_flops = 2.0 * static_cast<double>(chunk_elements) * static_cast<double>(problem.planned_n()),
      .b_elements = b_elements,
      .chunk_b_elements = problem.gathers_last() ? b_elements / problem.world : b_elements,
      .serial_copies = problem.world + 1,  // into the workspace, and all into one place
      .pipelined_barriers = 2,
      .serial_barriers = 2,
      .native = planning.native};
  TANDEM_ASSIGN(work.core,
                core_speeds({.product = mm_rate_of(problem.dtype), .packing = pack_rate_of(problem.dtype)},
                            may_measure, group, device));
  work.collective_us = coll::predicted_us(coll::Collective::kAllGather, work.chunk_bytes, work.world, device);
  if (!problem.gathers_last()) predict_on(device, problem, work);
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
  const tune::Row* const measured = find_measured(group, key);
  const bool predicts = problem.asked == Algorithm::kAuto && measured == nullptr;
  TANDEM_ASSIGN(const Workload work, workload_of(problem, planning, group, device, predicts));
  TANDEM_ASSIGN(Choice choice,
                choose(fmt::format("fused_{}", planning.op), problem.asked, work, measured, problem.device));
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
