#include "fused/scatter_plan.hpp"

#include <algorithm>
#include <optional>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/group_rates.hpp"
#include "coll/predict.hpp"
#include "fused/choose.hpp"
#include "fused/core_speeds.hpp"

namespace tandem::fused {
namespace {

/// Scaled ops multiply f8, whatever they give out.
DType factor_type(std::string_view op, const ScatterProblem& problem) {
  return op.starts_with("scaled") ? DType::kF8E4M3 : problem.dtype;
}

Result<Workload> workload_of(std::string_view op, const ScatterProblem& problem, Group& group, Device& device,
                             bool may_measure) {
  const std::int64_t chunk_elements = shard_stride(problem.total(), problem.world) * problem.unit_elements();
  const double b_elements = static_cast<double>(problem.n()) * static_cast<double>(problem.planned_k());
  Workload work{
      .kind = problem.device.kind,
      .world = problem.world,
      .cores = bootstrap::cores_of(group),
      .link = group.config().link_delay,
      .chunk_bytes = chunk_elements * size_bytes(problem.partials),
      .chunk_flops = 2.0 * static_cast<double>(chunk_elements) * static_cast<double>(problem.planned_k()),
      .b_elements = b_elements,
      .chunk_b_elements = problem.scatters_last() ? b_elements / problem.world : b_elements,
      .serial_copies = problem.world,  // from all ranks, the own part too
      .sums = true,
      .pipelined_barriers = std::max(2 * problem.world - 3, problem.world),
      .serial_barriers = 2};
  const DType factors = factor_type(op, problem);
  TANDEM_ASSIGN(work.core, core_speeds({.product = mm_rate_of(factors),
                                        .packing = pack_rate_of(factors),
                                        .sum = sum_rate_of(problem.partials)},
                                       may_measure, group, device));
  work.collective_us =
      coll::predicted_us(coll::Collective::kReduceScatter, work.chunk_bytes, work.world, device);
  if (problem.scatters_last()) return work;
  predict_products({.m = problem.rows(),
                    .n = problem.n(),
                    .k = problem.planned_k(),
                    .in = problem.dtype,
                    .out = problem.partials},
                   shard_stride(problem.total(), problem.world) * problem.unit_rows(), device, work);
  return work;
}

/// None where nobody tells k: the square b that stands in for it may be far from every rank's.
std::optional<tune::Key> key_of(std::string_view op, const ScatterProblem& problem, const Group& group) {
  if (problem.plan_k == 0) return std::nullopt;
  return tune::Key{.op = std::string(op),
                   .layout = fmt::format("{}, {} partials", problem.scatters_last() ? "columns" : "rows",
                                         to_string(problem.partials)),
                   .dtype = problem.dtype,
                   .m = problem.rows(),
                   .n = problem.n(),
                   .k = problem.plan_k,
                   .world = problem.world,
                   .link = link_name(problem.device.kind, group.config().link_delay)};
}

}  // namespace

Result<OpPlan> decide(std::string_view op, const ScatterProblem& problem, Group& group, Device& device) {
  std::optional<tune::Key> key = key_of(op, problem, group);
  const tune::Row* const measured = find_measured(group, key);
  const bool predicts = problem.asked == Algorithm::kAuto && measured == nullptr;
  TANDEM_ASSIGN(const Workload work, workload_of(op, problem, group, device, predicts));
  TANDEM_ASSIGN(Choice choice,
                choose(fmt::format("fused_{}", op), problem.asked, work, measured, problem.device));
  if (problem.num_copied > 0) {
    choice.reason +=
        fmt::format("; {} of {} a's copied once for their strides", problem.num_copied, problem.num_products);
  }
  if (choice.algorithm == Algorithm::kPipelined) TANDEM_TRY(open_side_stream(group, device));
  return OpPlan{
      .algorithm = choice.algorithm,
      .reason = std::move(choice.reason),
      .key = fmt::format("{} {}x{}x{} {} dim {} {} w{}", op, problem.rows(), problem.n(), problem.sum_k,
                         to_string(problem.dtype), problem.dim, to_string(problem.reduce_op), problem.world),
      .label = fmt::format("{} [{},{},{}] {} {}", op, problem.rows(), problem.n(), problem.sum_k,
                           to_string(problem.dtype), to_string(choice.algorithm)),
      .fingerprint = fmt::format("{} {} {}->{}", op, to_string(problem), to_string(problem.asked),
                                 to_string(choice.algorithm)),
      .candidates = std::move(choice.candidates),
      .tune_key = std::move(key)};
}

}  // namespace tandem::fused
