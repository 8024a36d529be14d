#include "fused/gather/call.hpp"

#include "fused/gather/scale_mode.hpp"

namespace tandem::fused {
namespace {

TensorView with_dim_in_front(const TensorView& view, const GatherProblem& problem) {
  return problem.gathers_last() ? view : view.movedim(problem.dim, 0);
}

/// Which of `also_gather` travelling tensor i is; negative: none of them.
int also_gathered_index(const GatherProblem& problem, int i) {
  return i - (num_travelling(problem) - problem.num_also_gathered);
}

}  // namespace

GatherCall GatherCall::of(const AllGatherMatmulArgs& args) {
  return {.a = args.a,
          .b = args.b,
          .out = args.out,
          .gathered = args.gathered,
          .bias = args.bias,
          .a_handle = args.a_handle,
          .trace = args.trace};
}

GatherCall GatherCall::of(const AllGatherScaledMatmulArgs& args, ScaleMode mode) {
  GatherCall call{.a = args.a,
                  .b = args.b,
                  .b_scale = args.b_scale,
                  .out = args.out,
                  .gathered = args.gathered,
                  .bias = args.bias,
                  .result_scale = args.result_scale,
                  .also_gather = args.also_gather,
                  .also_gathered = args.also_gathered,
                  .trace = args.trace};
  if (mode == ScaleMode::kTensorwise) call.a_scale = args.a_scale;
  if (args.a_scale && mode != ScaleMode::kTensorwise) call.a_scale = scale_of_rows(args, mode);
  return call;
}

TensorView GatherCall::front(const GatherProblem& problem, int i) const {
  if (i == 0) return with_dim_in_front(a, problem);
  const int also_idx = also_gathered_index(problem, i);
  return with_dim_in_front(also_idx < 0 ? *a_scale : also_gather[static_cast<std::size_t>(also_idx)],
                           problem);
}

std::optional<TensorView> GatherCall::whole(const GatherProblem& problem, int i) const {
  if (i == 0 && !gathered) return std::nullopt;
  if (i == 0) return with_dim_in_front(*gathered, problem);
  const int also_idx = also_gathered_index(problem, i);
  if (also_idx < 0) return std::nullopt;
  return with_dim_in_front(also_gathered[static_cast<std::size_t>(also_idx)], problem);
}

}  // namespace tandem::fused
