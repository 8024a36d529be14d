#include <tandem/gemm/scaled_mm.hpp>

#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "base/with_last.hpp"
#include "device/check_view.hpp"
#include "gemm/backend.hpp"
#include "gemm/choose.hpp"
#include "gemm/operand_checks.hpp"

namespace tandem::gemm {
namespace {

constexpr std::string_view kWho = "scaled_matmul";

Result<void> check_strides(std::string_view name, const TensorView& view) {
  bool is_sound = view.strides.size() == view.dim();
  for (int d = 0; is_sound && d < view.dim(); ++d) is_sound = view.size(d) >= 0 && view.stride(d) >= 0;
  if (is_sound) return {};
  return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, need sizes and strides >= 0", kWho, name,
               to_string(view));
}

Result<void> check_types(const ScaledMmArgs& args) {
  const DType a = args.a.dtype;
  const DType b = args.b.dtype;
  if (!(is_f8(a) && is_f8(b)) && !(is_factor_type(a) && a == b)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: a is {} and b is {}, need both f8, or both f32, both bf16 or both f16", kWho,
                 to_string(a), to_string(b));
  }
  if (!is_f8(args.out.dtype) && !is_factor_type(args.out.dtype)) {
    return failf(ErrorCode::kInvalidArgument, "{}: out is {}, need f32, bf16, f16 or f8", kWho,
                 to_string(args.out.dtype));
  }
  return {};
}

Result<void> check_sizes(const ScaledMmArgs& args) {
  if (args.a.dim() < 1 || args.b.dim() != 2 || args.a.sizes.back() != args.b.size(0)) {
    return failf(ErrorCode::kInvalidArgument, "{}: a is {} and b is {}, need [..., k] and [k, n]", kWho,
                 to_string(args.a.sizes), to_string(args.b.sizes));
  }
  const Dims want = with_last(args.a.sizes, args.b.size(1));
  if (args.out.sizes != want) {
    return failf(ErrorCode::kInvalidArgument, "{}: out is {}, need {}", kWho, to_string(args.out.sizes),
                 to_string(want));
  }
  return {};
}

/// f32 of one element, or of `each`.
Result<void> check_scale(std::string_view name, const TensorView& scale, const Dims& each) {
  TANDEM_TRY(check_strides(name, scale));
  if (scale.dtype == DType::kF32 && (scale.numel() == 1 || scale.sizes == each)) return {};
  return failf(ErrorCode::kInvalidArgument, "{}: {} is {} {}, need f32 of one element or {}", kWho, name,
               to_string(scale.dtype), to_string(scale.sizes), to_string(each));
}

Result<void> check_scales(const ScaledMmArgs& args) {
  TANDEM_TRY(check_scale("a_scale", args.a_scale, with_last(args.a.sizes, 1)));
  TANDEM_TRY(check_scale("b_scale", args.b_scale, {1, args.b.size(1)}));
  if (args.result_scale) TANDEM_TRY(check_scale("result_scale", *args.result_scale, {1}));
  return {};
}

Result<void> check_added(const ScaledMmArgs& args) {
  if (args.bias) {
    TANDEM_TRY(check_strides("bias", *args.bias));
    const Dims want = {args.b.size(1)};
    if (args.bias->sizes != want || (!is_f8(args.bias->dtype) && !is_factor_type(args.bias->dtype))) {
      return failf(ErrorCode::kInvalidArgument, "{}: bias is {}, need f32, bf16, f16 or f8 {}", kWho,
                   to_string(*args.bias), to_string(want));
    }
  }
  if (args.addend) {
    TANDEM_TRY(check_strides("addend", *args.addend));
    if (args.addend->sizes != args.out.sizes || args.addend->dtype != DType::kF32) {
      return failf(ErrorCode::kInvalidArgument, "{}: addend is {}, need f32 {}", kWho,
                   to_string(*args.addend), to_string(args.out.sizes));
    }
  }
  return {};
}

Result<void> check_memory(const ScaledMmArgs& args, const Device& device) {
  const Named out{"out", -1, &args.out};
  TANDEM_TRY(check_view(kWho, out.name, args.out, device));
  const Named inputs[] = {{"a", -1, &args.a},
                          {"b", -1, &args.b},
                          {"a_scale", -1, is_left_out(args.a_scale) ? nullptr : &args.a_scale},
                          {"b_scale", -1, is_left_out(args.b_scale) ? nullptr : &args.b_scale},
                          {"bias", -1, args.bias ? &*args.bias : nullptr},
                          {"result_scale", -1, args.result_scale ? &*args.result_scale : nullptr},
                          {"addend", -1, args.addend ? &*args.addend : nullptr}};
  for (const Named& input : inputs) {
    if (input.view == nullptr) continue;
    TANDEM_TRY(check_view(kWho, input.name, *input.view, device));
    // A row of the addend is read before that row of out is written.
    const bool is_in_place =
        args.addend && input.view == &*args.addend && is_same_memory(*input.view, args.out);
    if (!is_in_place) TANDEM_TRY(check_apart(kWho, out, input));
  }
  return {};
}

}  // namespace

bool Implementation::accepts_scaled(const ScaledProblem&, std::string* why_not) const {
  if (why_not != nullptr) *why_not = "has no scaled products yet";
  return false;
}

Result<void> Implementation::run_scaled(const ScaledProblem& problem, const ScaledMmArgs&, Stream&) const {
  return failf(ErrorCode::kInternal, "{}: asked for {}, which it does not accept", name(),
               to_string(problem));
}

std::string to_string(const ScaledProblem& problem) {
  return fmt::format("scaled_mm {}x{}x{} {} * {} -> {}", problem.m, problem.n, problem.k,
                     to_string(problem.a), to_string(problem.b), to_string(problem.out));
}

Result<ScaledProblem> problem_of(const ScaledMmArgs& args) {
  TANDEM_TRY(check_strides("a", args.a));
  TANDEM_TRY(check_strides("b", args.b));
  TANDEM_TRY(check_strides("out", args.out));
  TANDEM_TRY(check_types(args));
  TANDEM_TRY(check_sizes(args));
  TANDEM_TRY(check_scales(args));
  TANDEM_TRY(check_added(args));
  TANDEM_TRY(check_writable(kWho, {"out", -1, &args.out}));
  ScaledProblem problem{.m = 1,
                        .n = args.b.size(1),
                        .k = args.b.size(0),
                        .a = args.a.dtype,
                        .b = args.b.dtype,
                        .out = args.out.dtype};
  for (int d = 0; d < args.a.dim() - 1; ++d) problem.m *= args.a.size(d);
  return problem;
}

Support can_run(const ScaledProblem& problem, const Device& device) {
  return support_of(problem, device, &Implementation::accepts_scaled);
}

Result<void> scaled_matmul(const ScaledMmArgs& args, Stream& stream) {
  TANDEM_ASSIGN(const ScaledProblem problem, problem_of(args));
  TANDEM_TRY(check_memory(args, stream.device()));
  TANDEM_ASSIGN(const Implementation* implementation,
                chosen(problem, stream.device(), &Implementation::accepts_scaled));
  if (problem.m == 0 || problem.n == 0) return {};
  return implementation->run_scaled(problem, args, stream);
}

}  // namespace tandem::gemm
