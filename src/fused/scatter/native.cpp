#include "fused/scatter/native.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "coll/steps.hpp"
#include "fused/call/scaled_checks.hpp"
#include "fused/scatter/algorithms.hpp"
#include "fused/scatter/told.hpp"
#include "gemm/operand_checks.hpp"

namespace tandem::fused {

using program::all_of;
using program::kCurrent;
using program::Operand;
using program::RootId;

namespace {

gemm::Owners owners_of(const ScatterProblem& problem) {
  return {.count = problem.world, .own_all = exchanges_whole(problem)};
}

/// Of sizes and types that all ranks have; rank 0 stands for all of them.
gemm::Product departing_product(const ScatterProblem& problem, std::int64_t k) {
  return {.m = problem.rows(),
          .n = problem.n(),
          .k = k,
          .a = problem.factor(),
          .b = problem.factor(),
          .out = problem.partials,
          .a_scale = problem.a_scale,
          .b_scale = scale_of_b(problem.a_scale),
          .fast_accum = problem.is_scaled && problem.fast_accum,
          .owners = owners_of(problem)};
}

/// What of this call's product a kernel that gives its rows away cannot do; null if there is nothing.
const char* why_not_given(const ScatterProblem& problem, const ScatterCall& call) {
  if (problem.num_products > 1) return "there are several products";
  if (!problem.is_copied(0) && !front_of(call.a[0], problem.dim).is_contiguous())
    return "rows of a have holes between them";
  const TensorView* const scale = call.a_scale.at(0);
  if (scale != nullptr && scale->dim() > 2 && !front_of(*scale, problem.dim).can_flatten_rows())
    return "scales of a's rows have no common stride";
  return nullptr;
}

/// Of this call.
gemm::Product own_product(const ScatterProblem& problem, const ScatterCall& call) {
  const TensorView& b = call.b[0];
  gemm::Product product = gemm::product_of(gemm::ProductArgs{.a = call.a.data(),
                                                             .b = &b,
                                                             .out = &call.out,
                                                             .bias = call.product_bias.at(0),
                                                             .a_scale = call.a_scale.at(0),
                                                             .b_scale = call.b_scale.at(0),
                                                             .result_scale = call.result_scale.at(0),
                                                             .fast_accum = problem.fast_accum});
  product.is_matrix = true;
  product.owners = owners_of(problem);
  product.b_is_column_major = !b.is_contiguous();
  product.is_aligned =
      gemm::has_no_holes(b) && gemm::is_aligned_async_input(b) &&
      (problem.is_copied(0) || gemm::is_aligned_async_input(call.a[0])) &&
      (!problem.out_is_matrix() || gemm::is_aligned_async_input(call.out)) &&
      (!call.product || !problem.out_is_matrix() || gemm::is_aligned_async_input(*call.product));
  return product;
}

}  // namespace

bool exchanges_whole(const ScatterProblem& problem) {
  // Up to there the two waits of a scatter and a gather take longer than the bytes that they save.
  constexpr std::int64_t kMostSent = 512;
  return problem.gives_all && problem.rows() <= kMostSent / std::max(problem.world - 1, 1);
}

gemm::Product planned_departing_product(const ScatterProblem& problem, const Device& device) {
  // A rank whose own k no kernel takes makes its product before.
  constexpr std::int64_t kStep = 16;
  gemm::Product product = departing_product(problem, (problem.planned_k() + kStep - 1) / kStep * kStep);
  for (const bool by_columns : {false, true}) {
    product.b_is_column_major = by_columns;
    if (gemm::choose(product, device) != nullptr) break;
  }
  return product;
}

Support can_run_native_scatter(const ScatterProblem& problem, const Device& device) {
  if (problem.device.kind == DeviceKind::kCpu) return can_tell(problem);
  if (Support sends = can_send_rows(problem); !sends) return sends;
  if (!exchanges_whole(problem) && problem.part_of(problem.world - 1).size == 0)
    return Support::no("a rank owns no rows, and every rank has to wait for every other one");
  if (problem.unit_rows() > 1 && problem.total() % problem.world != 0)
    return Support::no("shards are uneven, and their units are several rows");
  return gemm::can_run(planned_departing_product(problem, device), device);
}

void ask_native(const ScatterCall& call, const Device& device, ScatterProblem& problem) {
  const bool may_run = problem.asked == Algorithm::kAuto || problem.asked == Algorithm::kNative;
  problem.gives_while_multiplying = may_run && problem.device.kind == DeviceKind::kCuda &&
                                    !problem.scatters_last() && why_not_given(problem, call) == nullptr &&
                                    gemm::choose(own_product(problem, call), device) != nullptr;
}

std::string why_made_before(const ScatterProblem& problem, const ScatterCall& call, const Device& device) {
  if (problem.gives_while_multiplying) return {};
  const char* const why = why_not_given(problem, call);
  return why != nullptr ? why : gemm::can_run(own_product(problem, call), device).why_not;
}

/// One step, but for copies, and for the gather of an all-reduce of many rows.
ScatterProgram build_native_scatter(const ScatterProblem& problem, int rank, const Device& device) {
  if (problem.tells) return build_told_scatter(problem, Algorithm::kNative, rank);
  ScatterBuilder scatter(problem, Algorithm::kNative, rank, 1);
  program::Builder& steps = scatter.steps();
  const gemm::PartialGrid grid = gemm::partial_grid_of(problem.rows(), problem.n(), owners_of(problem));
  steps.memory().kernel_inbox_bytes = grid.size() * gemm::PartialGrid::kBytes;
  steps.memory().kernel_inbox_words = grid.size();
  scatter.copy_operands();

  // What kernels write is a matrix.
  const bool is_matrix = problem.out_is_matrix();
  const bool gathers = problem.gives_all && !exchanges_whole(problem);
  const Operand out =
      gathers ? scatter.own_out(scatter.own())
      : is_matrix
          ? all_of(scatter.roots().out)
          : all_of(steps.scratch("out in order", problem.sizes_of(scatter.own().size), problem.dtype));
  Operand kept;
  if (problem.keeps_product) {
    kept = all_of(
        is_matrix ? scatter.roots().product
                  : steps.scratch("product in order", problem.sizes_of(problem.total()), problem.partials));
  }
  program::Product product;
  if (problem.gives_while_multiplying) {
    product = scatter.product(0, {0, problem.total()});
  } else {
    // Of scaled products there are more implementations that round.
    const bool rounds = problem.batch_invariant || problem.is_scaled;
    const DType made = rounds ? problem.partials : DType::kF32;
    product.a = all_of(steps.scratch("product of all rows", problem.sizes_of(problem.total()), made));
    const Shard rows = {0, problem.total()};
    if (rounds) {
      scatter.add_sums(kCurrent, rows.size);
      scatter.make_rounded(kCurrent, rows, product.a);
    } else {
      scatter.make_sums(kCurrent, rows, product.a, product.a);
    }
  }
  product.out = out;
  product.departure = program::Departure{.reduce_op = problem.reduce_op,
                                         .gives_all = exchanges_whole(problem),
                                         .bias = scatter.own_bias(),
                                         .kept = kept};
  steps.product_scatter(kCurrent, product);
  if (gathers) {
    const TensorView whole =
        TensorView::contiguous(nullptr, problem.sizes_of(problem.total()), problem.dtype, problem.device);
    steps.memory().workspace_bytes = coll::all_gather_workspace_bytes(whole, problem.world, device);
    steps.all_gather(kCurrent, out, all_of(scatter.roots().out));
  }
  if (!is_matrix) {
    steps.copy(kCurrent, out, all_of(scatter.roots().out));
    if (problem.keeps_product) steps.copy(kCurrent, kept, all_of(scatter.roots().product));
  }
  return {scatter.take(), scatter.roots()};
}

}  // namespace tandem::fused
