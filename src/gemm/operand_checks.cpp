#include "gemm/operand_checks.hpp"

#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "device/check_view.hpp"

namespace tandem::gemm {
namespace {

Result<void> check_matrix(std::string_view who, const char* name, const TensorView& view) {
  if (view.dim() != 2 || view.strides.size() != 2) {
    return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, need two dimensions", who, name,
                 to_string(view));
  }
  for (int d = 0; d < 2; ++d) {
    if (view.size(d) < 0 || view.stride(d) < 0) {
      return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, need sizes and strides >= 0", who, name,
                   to_string(view));
    }
  }
  return {};
}

Result<void> check_types(std::string_view who, DType a, DType b, DType out) {
  if (!is_factor_type(a) || a != b) {
    return failf(ErrorCode::kInvalidArgument, "{}: a is {} and b is {}, need both f32, both bf16 or both f16",
                 who, to_string(a), to_string(b));
  }
  if (out != a && out != DType::kF32) {
    return failf(ErrorCode::kInvalidArgument, "{}: out is {}, need {} (as a and b) or f32", who,
                 to_string(out), to_string(a));
  }
  return {};
}

Result<void> check_sizes(std::string_view who, const TensorView& a, const TensorView& b,
                         const TensorView& out) {
  if (a.size(1) != b.size(0)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: a is {} and b is {}: {} columns of a, {} rows of b, need equal", who,
                 to_string(a.sizes), to_string(b.sizes), a.size(1), b.size(0));
  }
  const Dims want = {a.size(0), b.size(1)};
  if (out.sizes != want) {
    return failf(ErrorCode::kInvalidArgument, "{}: out is {}, need {}", who, to_string(out.sizes),
                 to_string(want));
  }
  return {};
}

Result<void> check_bias(std::string_view who, const ProductArgs& args) {
  if (args.bias == nullptr) return {};
  const TensorView& bias = *args.bias;
  const Dims want = {args.b->size(1)};
  if (bias.sizes != want || bias.strides.size() != 1 || bias.dtype != args.out->dtype || bias.stride(0) < 0) {
    return failf(ErrorCode::kInvalidArgument, "{}: bias is {}, need {} {}", who, to_string(bias),
                 to_string(args.out->dtype), to_string(want));
  }
  return {};
}

Result<void> check_addend(std::string_view who, const ProductArgs& args) {
  if (args.addend == nullptr) return {};
  if (args.accumulate)
    return failf(ErrorCode::kInvalidArgument, "{}: got an addend, what accumulates adds to out", who);
  TANDEM_TRY(check_matrix(who, "addend", *args.addend));
  if (args.addend->sizes == args.out->sizes && args.addend->dtype == args.out->dtype) return {};
  return failf(ErrorCode::kInvalidArgument, "{}: addend is {}, need {} {} as out", who,
               to_string(*args.addend), to_string(args.out->dtype), to_string(args.out->sizes));
}

/// Until one is refused.
template <class Check>
Result<void> for_each_input(const ProductArgs& args, Check check) {
  const auto check_given = [&](std::string_view name, const TensorView* view) -> Result<void> {
    return view == nullptr ? Result<void>() : check(name, *view);
  };
  TANDEM_TRY(check_given(args.packed == nullptr ? "a" : "input", args.a));
  TANDEM_TRY(check_given("b", args.b));
  TANDEM_TRY(check_given("a_scale", args.a_scale));
  TANDEM_TRY(check_given("b_scale", args.b_scale));
  TANDEM_TRY(check_given("bias", args.bias));
  TANDEM_TRY(check_given("result_scale", args.result_scale));
  TANDEM_TRY(check_given("addend", args.addend));
  if (args.arrival == nullptr) return {};
  if (args.arrival->complete) TANDEM_TRY(check("complete.rows", args.arrival->complete->rows));
  if (args.arrival->complete_scale) TANDEM_TRY(check("complete_scale", *args.arrival->complete_scale));
  return check("a_chunk_signals", args.arrival->signals);
}

Scale scale_of_a(const TensorView& scale) {
  if (scale.numel() == 1) return Scale::kTensor;
  return scale.sizes.back() == 1 ? Scale::kRow : Scale::kVector128;
}

}  // namespace

Scale scale_of_b(const TensorView& scale, std::int64_t n) {
  if (scale.numel() == 1) return Scale::kTensor;
  if (scale.size(1) != n) return Scale::kBlock128;
  return scale.size(0) == 1 ? Scale::kColumn : Scale::kVector128;
}

Product product_of(const ProductArgs& args) {
  const Scale a_scale = args.a_scale == nullptr ? Scale::kNone : scale_of_a(*args.a_scale);
  const Scale b_scale = args.b_scale == nullptr ? Scale::kNone : scale_of_b(*args.b_scale, args.b->size(1));
  Product product{
      .m = 1,
      .n = args.b->size(1),
      .k = args.b->size(0),
      .a = args.a->dtype,
      .b = args.b->dtype,
      .out = args.out->dtype,
      .a_scale = a_scale,
      .b_scale = b_scale,
      .fast_accum = args.fast_accum && is_f8(args.a->dtype) && !is_along_k(a_scale) && !is_along_k(b_scale),
      .is_matrix = args.a->dim() == 2,
      .epilogue = {.accumulate = args.accumulate,
                   .result_scale = args.result_scale != nullptr,
                   .addend = args.addend ? std::optional(args.addend->dtype) : std::nullopt,
                   .bias = args.bias ? std::optional(args.bias->dtype) : std::nullopt},
      .tells = args.telling != nullptr,
      .heuristic = args.heuristic};
  for (int d = 0; d < args.a->dim() - 1; ++d) product.m *= args.a->size(d);
  return product;
}

Result<void> check_right_operand(std::string_view who, const TensorView& b) {
  TANDEM_TRY(check_matrix(who, "b", b));
  if (is_factor_type(b.dtype)) return {};
  return failf(ErrorCode::kInvalidArgument, "{}: b is {}, need f32, bf16 or f16", who, to_string(b.dtype));
}

Result<void> check_matrices(std::string_view who, const ProductArgs& args) {
  TANDEM_TRY(check_matrix(who, "a", *args.a));
  TANDEM_TRY(check_matrix(who, "b", *args.b));
  TANDEM_TRY(check_matrix(who, "out", *args.out));
  TANDEM_TRY(check_types(who, args.a->dtype, args.b->dtype, args.out->dtype));
  TANDEM_TRY(check_sizes(who, *args.a, *args.b, *args.out));
  if (args.accumulate && args.out->dtype != DType::kF32) {
    return failf(ErrorCode::kInvalidArgument, "{}: out is {}, accumulating needs f32", who,
                 to_string(args.out->dtype));
  }
  TANDEM_TRY(check_addend(who, args));
  return check_bias(who, args);
}

Result<void> check_heuristic(std::string_view who, int heuristic) {
  if (heuristic >= 0 && heuristic < kMostHeuristics) return {};
  return failf(ErrorCode::kInvalidArgument, "{}: heuristic is {}, need 0 to {}", who, heuristic,
               kMostHeuristics - 1);
}

Result<void> check_views(std::string_view who, const ProductArgs& args, const Device& device) {
  TANDEM_TRY(check_view(who, "out", *args.out, device));
  return for_each_input(args, [&](std::string_view name, const TensorView& view) {
    return check_view(who, name, view, device);
  });
}

Result<void> check_out_apart(std::string_view who, const ProductArgs& args) {
  const Named out{"out", -1, args.out};
  return for_each_input(args, [&](std::string_view name, const TensorView& view) -> Result<void> {
    // A row of the addend is read before that row of out is written.
    if (&view == args.addend && is_same_memory(view, *args.out)) return {};
    return check_apart(who, out, {name, -1, &view});
  });
}

}  // namespace tandem::gemm
