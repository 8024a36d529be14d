#include "fused/gather/plan.hpp"

#include <optional>
#include <tandem/gemm/mm.hpp>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/group_rates.hpp"
#include "fused/call/core_speeds.hpp"
#include "fused/call/make_plan.hpp"
#include "fused/call/scaled_checks.hpp"
#include "fused/gather/algorithms.hpp"
#include "fused/gather/chunks.hpp"
#include "fused/gather/workload.hpp"
#include "gemm/product.hpp"

namespace tandem::fused {
namespace {

/// As all ranks count it. `may_measure`: what is not known of their cores.
Result<Workload> workload_of(const GatherProblem& problem, Group& group, Device& device, bool may_measure) {
  Workload work = workload_of(problem, device, {group.config().link_delay, bootstrap::gpu_rates_of(group)});
  work.cores = bootstrap::cores_of(group);
  TANDEM_ASSIGN(work.core, core_speeds({.product = mm_rate_of(problem.factor()),
                                        .packing = pack_rate_of(problem.factor())},
                                       may_measure, group, device));
  return work;
}

/// "rows", "columns, rowwise_sharded": the scale mode decides on what travels and on the products, on which
/// Config::batch_invariant does too.
std::string layout_of(const GatherProblem& problem) {
  std::string layout = problem.gathers_last() ? "columns" : "rows";
  if (problem.is_scaled) layout += fmt::format(", {}", tandem::to_string(problem.scale_mode));
  if (problem.batch_invariant) layout += ", batch invariant";
  return layout;
}

/// What this rank multiplies; of slices the first one, which is rounded later, and the last one.
std::vector<gemm::Product> own_products(const GatherProblem& problem, const GatherCall& call) {
  std::vector<gemm::Product> products;
  for (int i = 0; i < problem.num_b; ++i) {
    gemm::Product product = own_product(planned_product(problem), problem, call, i);
    if (problem.gathers_last()) {
      product.k = shard_stride(problem.total(), problem.world);
      gemm::Product first = product;
      first.out = DType::kF32;
      first.epilogue = {};
      products.push_back(first);
      if (problem.world == 1 || !problem.is_scaled) continue;
      product.k = problem.part_of(problem.world - 1).size;
      product.epilogue.addend = DType::kF32;
    }
    products.push_back(product);
  }
  return products;
}

/// None where nobody tells n: the square b that stands in for it may be far from every rank's.
std::optional<cost::Key> key_of(const GatherProblem& problem, const Group& group) {
  if (problem.plan_n == 0) return std::nullopt;
  return cost::Key{.op = std::string(problem.op()),
                   .layout = layout_of(problem),
                   .dtype = problem.dtype,
                   .m = problem.rows(),
                   .n = problem.plan_n,
                   .k = problem.k(),
                   .world = problem.world,
                   .link = link_name(problem.device.kind, group.config().link_delay)};
}

/// Whether there are products of these types on this device; any sizes will do.
Result<void> check_products_run(const GatherProblem& problem, Device& device) {
  if (problem.is_scaled) {
    return check_runs({.m = problem.rows(), .n = problem.sum_n, .k = problem.k(), .a = problem.factor()},
                      device);
  }
  const auto plan = gemm::plan(
      {.m = problem.rows(), .n = problem.sum_n, .k = problem.k(), .in = problem.dtype, .out = problem.dtype},
      device);
  return plan ? Result<void>() : tl::unexpected(plan.error());
}

Result<GatherPlan> plan_for(const CheckedGather& checked, Group& group, Device& device) {
  const GatherProblem& problem = checked.problem;
  TANDEM_TRY(check_products_run(problem, device));
  std::optional<cost::Key> key = key_of(problem, group);
  const cost::Row* const measured = find_measured(group, key);
  const bool predicts = problem.asked == Algorithm::kAuto && measured == nullptr && problem.num_hosts == 1;
  TANDEM_ASSIGN(const Workload work, workload_of(problem, group, device, predicts));
  std::string reason = problem.copies_a() ? "; a is copied once for its strides" : "";
  if (problem.batch_invariant) reason += invariance_in_words(own_products(problem, checked.call), device);
  return make_plan<GatherPlan>(
      gather_algorithms(), problem,
      {.work = work,
       .tune_key = std::move(key),
       .measured = measured,
       .shape = {problem.rows(), problem.sum_n, problem.k()},
       .key = fmt::format("{} {}x{}x{} {} dim {} w{}", problem.op(), problem.rows(), problem.sum_n,
                          problem.k(), to_string(problem.dtype), problem.dim, problem.world),
       .reason = std::move(reason)},
      [&](const GatherAlgorithm& algorithm) { return algorithm.notes(problem, checked.call, device); }, group,
      device);
}

}  // namespace

Result<std::shared_ptr<GatherPlan>> plan_of(const CheckedGather& checked, Group& group, Device& device) {
  const GatherProblem& problem = checked.problem;
  auto& plans = plans_of<GatherProblem, GatherPlan>(group, "fused.gather");
  if (auto known = plans.find(problem)) return known;
  TANDEM_ASSIGN(GatherPlan plan, plan_for(checked, group, device));
  return plans.insert(problem, std::move(plan));
}

}  // namespace tandem::fused
