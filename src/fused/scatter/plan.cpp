#include "fused/scatter/plan.hpp"

#include <algorithm>
#include <optional>
#include <tandem/gemm/mm.hpp>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/group_rates.hpp"
#include "fused/call/choose.hpp"
#include "fused/call/core_speeds.hpp"
#include "fused/call/make_plan.hpp"
#include "fused/call/scaled_checks.hpp"
#include "fused/scatter/algorithms.hpp"
#include "fused/scatter/native.hpp"
#include "fused/scatter/pushed.hpp"
#include "fused/scatter/told.hpp"
#include "fused/scatter/workload.hpp"
#include "gemm/operand_checks.hpp"

namespace tandem::fused {
namespace {

/// As all ranks count it. `may_measure`: what is not known of their cores.
Result<Workload> workload_of(const ScatterProblem& problem, Group& group, Device& device, bool may_measure) {
  Workload work = workload_of(problem, device, {group.config().link_delay, bootstrap::gpu_rates_of(group)});
  work.cores = bootstrap::cores_of(group);
  TANDEM_ASSIGN(work.core, core_speeds({.product = mm_rate_of(problem.factor()),
                                        .packing = pack_rate_of(problem.factor()),
                                        .sum = sum_rate_of(problem.partials)},
                                       may_measure, group, device));
  return work;
}

/// None where nobody tells k: the square b that stands in for it may be far from every rank's.
std::optional<cost::Key> key_of(const ScatterProblem& problem, const Group& group) {
  if (problem.plan_k == 0) return std::nullopt;
  return cost::Key{.op = std::string(problem.op()),
                   .layout = fmt::format("{}, {} partials{}{}", problem.scatters_last() ? "columns" : "rows",
                                         to_string(problem.partials), scale_in_words(problem),
                                         problem.batch_invariant ? ", batch invariant" : ""),
                   .dtype = problem.dtype,
                   .m = problem.rows(),
                   .n = problem.n(),
                   .k = problem.plan_k,
                   .world = problem.world,
                   .link = link_name(problem.device.kind, group.config().link_delay)};
}

/// What this rank multiplies.
std::vector<gemm::Product> own_products(const ScatterProblem& problem, const ScatterCall& call) {
  std::vector<gemm::Product> products;
  for (int j = 0; j < problem.num_products; ++j) {
    const auto idx = static_cast<std::size_t>(j);
    const bool is_last = j + 1 == problem.num_products;
    const bool rounds = !problem.sums_in_scratch() || (problem.is_scaled && is_last);
    const TensorView out = TensorView::contiguous(nullptr, problem.sizes_of(problem.part_of(0).size),
                                                  rounds ? problem.partials : DType::kF32);
    const gemm::ProductArgs args{.a = &call.a[idx],
                                 .b = &call.b[idx],
                                 .out = &out,
                                 .bias = call.product_bias.at(j),
                                 .a_scale = call.a_scale.at(j),
                                 .b_scale = call.b_scale.at(j),
                                 .result_scale = call.result_scale.at(j),
                                 .accumulate = !problem.is_scaled && j > 0,
                                 .fast_accum = problem.fast_accum};
    gemm::Product product = gemm::product_of(args);
    if (problem.scatters_last()) product.n = problem.part_of(0).size;
    if (problem.is_scaled && j > 0) product.epilogue.addend = DType::kF32;
    products.push_back(product);
  }
  return products;
}

/// Whether there are products of these types on this device; any sizes will do.
Result<void> check_products_run(const ScatterProblem& problem, Device& device) {
  if (problem.is_scaled) {
    return check_runs({.m = problem.rows(), .n = problem.n(), .k = problem.sum_k, .out = problem.partials},
                      device);
  }
  const auto plan = gemm::plan({.m = problem.rows(),
                                .n = problem.n(),
                                .k = problem.sum_k,
                                .in = problem.dtype,
                                .out = problem.partials},
                               device);
  return plan ? Result<void>() : tl::unexpected(plan.error());
}

/// Which form of `pipelined` or `native` it is, on GPUs.
Notes notes_of(const ScatterAlgorithm& algorithm, const ScatterProblem& problem, const ScatterCall& call,
               const Device& device) {
  const bool is_pipelined = algorithm.name == Algorithm::kPipelined;
  const bool tells =
      is_pipelined ? problem.pipelined_tells() : problem.tells && algorithm.name == Algorithm::kNative;
  const std::string in_rounds = problem.rounds > 1 ? fmt::format(" in {} rounds", problem.rounds) : "";
  if (tells) {
    return {.reason = fmt::format("; ranks add partials where they were made{}{}",
                                  problem.gives_all ? ", and sums are given to all" : "", in_rounds),
            .agreed = fmt::format(" as told{}{}", problem.has_link ? " over a link" : "", in_rounds)};
  }
  if (algorithm.name == Algorithm::kNative) {
    Notes notes;
    if (problem.gives_all)
      notes.reason = exchanges_whole(problem) ? "; each rank adds all rows of all" : "; sums are gathered";
    const std::string why = why_made_before(problem, call, device);
    if (!why.empty()) notes.reason += fmt::format("; the product is made before its rows are given: {}", why);
    return notes;
  }
  if (problem.num_hosts > 1)
    return {.reason = problem.gives_all ? "; owners send their sums to the other hosts" : ""};
  if (!is_pipelined || problem.world == 1) return {};
  if (problem.push_chunks > 0) {
    return {.reason = fmt::format("; ranks push partials in up to {} chunks a part, {} add them{}",
                                  problem.push_chunks, own_products_end(problem) ? "own products" : "sums",
                                  problem.gives_all ? ", and their sums are pushed to all" : ""),
            .agreed = fmt::format(" in {} chunks", problem.push_chunks)};
  }
  Notes notes;
  if (problem.rounds > 1) notes = {.reason = "; sums are given to all" + in_rounds, .agreed = in_rounds};
  if (problem.device.kind != DeviceKind::kCpu)
    notes.reason += fmt::format("; ranks get partials behind barriers: {}", can_push(problem).why_not);
  return notes;
}

/// How ranks on CPUs tell each other. Where each of a rank's two lanes has a core both multiply, and ranks
/// meet at little cost; else one lane multiplies all, and ranks do not wait for each other's turns.
void decide_telling(ScatterProblem& problem, Group& group) {
  if (!can_tell(problem)) return;
  problem.tells = true;
  problem.has_core_a_lane = bootstrap::cores_of(group) >= 2 * problem.world;
  problem.has_link = group.config().link_delay.count() > 0;
}

Result<ScatterPlan> plan_for(ScatterProblem problem, const ScatterCall& call, Group& group, Device& device) {
  TANDEM_TRY(check_products_run(problem, device));
  if (problem.push_chunks == 0 && can_push(problem))
    problem.push_chunks =
        choose_push_chunks(problem, group.config().link_delay, bootstrap::gpu_rates_of(group));
  decide_telling(problem, group);
  const bool hides_sums = !problem.tells || problem.has_core_a_lane || problem.has_link;
  if (problem.gives_all && problem.num_hosts == 1 && problem.push_chunks == 0 && problem.rounds == 1 &&
      hides_sums)
    problem.rounds = choose_rounds(problem);
  std::optional<cost::Key> key = key_of(problem, group);
  const cost::Row* const measured = find_measured(group, key);
  const bool predicts = problem.asked == Algorithm::kAuto && measured == nullptr && problem.num_hosts == 1;
  TANDEM_ASSIGN(const Workload work, workload_of(problem, group, device, predicts));
  PlanFacts facts{.work = work,
                  .tune_key = std::move(key),
                  .measured = measured,
                  .shape = {problem.rows(), problem.n(), problem.sum_k},
                  .key = fmt::format("{} {}x{}x{} {}{} {} w{}", problem.op(), problem.rows(), problem.n(),
                                     problem.sum_k, to_string(problem.dtype), dim_in_words(problem),
                                     to_string(problem.reduce_op), problem.world)};
  if (problem.num_copied > 0) {
    facts.reason =
        fmt::format("; {} of {} a's copied once for their strides", problem.num_copied, problem.num_products);
  }
  if (problem.batch_invariant) facts.reason += invariance_in_words(own_products(problem, call), device);
  return make_plan<ScatterPlan>(
      problem.gives_all ? all_reduce_algorithms() : scatter_algorithms(), problem, std::move(facts),
      [&](const ScatterAlgorithm& algorithm) { return notes_of(algorithm, problem, call, device); }, group,
      device);
}

}  // namespace

Result<std::shared_ptr<ScatterPlan>> plan_of(const CheckedScatter& checked, Group& group, Device& device) {
  const ScatterProblem& problem = checked.problem;
  auto& plans = plans_of<ScatterProblem, ScatterPlan>(group, "fused.scatter");
  if (auto known = plans.find(problem)) return known;
  TANDEM_ASSIGN(ScatterPlan plan, plan_for(problem, checked.call, group, device));
  return plans.insert(problem, std::move(plan));
}

}  // namespace tandem::fused
