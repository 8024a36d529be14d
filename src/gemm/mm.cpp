#include <tandem/gemm/mm.hpp>

#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "device/check_view.hpp"
#include "gemm/backend.hpp"
#include "gemm/choose.hpp"
#include "gemm/operand_checks.hpp"

namespace tandem::gemm {
namespace {

Result<void> check_accumulation(const MmArgs& args) {
  if (!args.accumulate || args.out.dtype == DType::kF32) return {};
  return failf(ErrorCode::kInvalidArgument, "mm: out is {}, accumulating needs f32",
               to_string(args.out.dtype));
}

Result<void> check_bias(const MmArgs& args) {
  if (!args.bias) return {};
  const TensorView& bias = *args.bias;
  const Dims want = {args.b.size(1)};
  if (bias.sizes != want || bias.strides.size() != 1 || bias.dtype != args.out.dtype || bias.stride(0) < 0) {
    return failf(ErrorCode::kInvalidArgument, "mm: bias is {}, need {} {}", to_string(bias),
                 to_string(args.out.dtype), to_string(want));
  }
  return {};
}

Result<void> check_memory(const MmArgs& args, const Device& device) {
  TANDEM_TRY(check_view("mm", "a", args.a, device));
  TANDEM_TRY(check_view("mm", "b", args.b, device));
  TANDEM_TRY(check_view("mm", "out", args.out, device));
  const Named out{"out", -1, &args.out};
  TANDEM_TRY(check_apart("mm", out, {"a", -1, &args.a}));
  TANDEM_TRY(check_apart("mm", out, {"b", -1, &args.b}));
  if (!args.bias) return {};
  TANDEM_TRY(check_view("mm", "bias", *args.bias, device));
  return check_apart("mm", out, {"bias", -1, &*args.bias});
}

// The same for a product whose memory is not known yet.
Result<void> check_devices(const MmArgs& like, const Device& device) {
  for (const TensorView* view : {&like.a, &like.b, &like.out, like.bias ? &*like.bias : nullptr}) {
    if (view == nullptr || device.can_reach(view->device)) continue;
    return failf(ErrorCode::kInvalidArgument, "mm: prepare: {} is out of reach of {}", to_string(*view),
                 to_string(device.id()));
  }
  return {};
}

}  // namespace

Result<void> Implementation::prepare(const Problem&, const MmArgs&, Stream&) const {
  return {};
}

std::string to_string(const Problem& problem) {
  return fmt::format("mm {}x{}x{} {} -> {}{}{}", problem.m, problem.n, problem.k, to_string(problem.in),
                     to_string(problem.out), problem.bias ? " + bias" : "",
                     problem.accumulate ? " accumulated" : "");
}

Result<Problem> problem_of(const MmArgs& args) {
  TANDEM_TRY(check_matrices("mm", args.a, args.b, args.out));
  TANDEM_TRY(check_accumulation(args));
  TANDEM_TRY(check_bias(args));
  TANDEM_TRY(check_writable("mm", {"out", -1, &args.out}));
  if (args.heuristic < 0 || args.heuristic >= kMostHeuristics) {
    return failf(ErrorCode::kInvalidArgument, "mm: heuristic is {}, need 0 to {}", args.heuristic,
                 kMostHeuristics - 1);
  }
  return Problem{.m = args.a.size(0),
                 .n = args.b.size(1),
                 .k = args.a.size(1),
                 .in = args.a.dtype,
                 .out = args.out.dtype,
                 .bias = args.bias.has_value(),
                 .accumulate = args.accumulate,
                 .heuristic = args.heuristic};
}

bool has_heuristic(const Problem& problem, std::string* why_not) {
  if (problem.heuristic > 0 && why_not != nullptr) *why_not = "has no choice but one";
  return problem.heuristic == 0;
}

Support can_run(const Problem& problem, const Device& device) {
  return support_of(problem, device, &Implementation::accepts);
}

Result<Plan> plan(const Problem& problem, const Device& device) {
  TANDEM_ASSIGN(const Implementation* found, chosen(problem, device, &Implementation::accepts));
  return Plan(problem, found->name(), found);
}

Result<void> run(const Plan& plan, const MmArgs& args, Stream& stream) {
  TANDEM_ASSIGN(const Problem problem, problem_of(args));
  if (problem != plan.problem()) {
    return failf(ErrorCode::kInvalidArgument, "mm: the arguments are of {}, the plan of {}",
                 to_string(problem), to_string(plan.problem()));
  }
  TANDEM_TRY(check_memory(args, stream.device()));
  return static_cast<const Implementation*>(plan.leaf())->run(problem, args, stream);
}

Result<void> prepare(const MmArgs& like, Stream& stream) {
  TANDEM_ASSIGN(const Problem problem, problem_of(like));
  TANDEM_TRY(check_devices(like, stream.device()));
  TANDEM_ASSIGN(const Plan chosen, plan(problem, stream.device()));
  return static_cast<const Implementation*>(chosen.leaf())->prepare(problem, like, stream);
}

Result<void> mm(const MmArgs& args, Stream& stream) {
  TANDEM_ASSIGN(const Problem problem, problem_of(args));
  TANDEM_ASSIGN(const Plan chosen, plan(problem, stream.device()));
  return run(chosen, args, stream);
}

}  // namespace tandem::gemm
