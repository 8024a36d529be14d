#include <tandem/gemm/async_input_mm.hpp>
#include <tandem/gemm/scaled_mm.hpp>

#include <algorithm>
#include <initializer_list>
#include <string>

#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "base/with_last.hpp"
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

Result<void> check_types(const ProductArgs& args) {
  const DType a = args.a->dtype;
  const DType b = args.b->dtype;
  if (!(is_f8(a) && is_f8(b)) && !(is_factor_type(a) && a == b)) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}: a is {} and b is {}, need both f8, or both f32, both bf16 or both f16", kWho,
                 to_string(a), to_string(b));
  }
  if (!is_f8(args.out->dtype) && !is_factor_type(args.out->dtype)) {
    return failf(ErrorCode::kInvalidArgument, "{}: out is {}, need f32, bf16, f16 or f8", kWho,
                 to_string(args.out->dtype));
  }
  return {};
}

Result<void> check_sizes(const ProductArgs& args) {
  if (args.a->dim() < 1 || args.b->dim() != 2 || args.a->sizes.back() != args.b->size(0)) {
    return failf(ErrorCode::kInvalidArgument, "{}: a is {} and b is {}, need [..., k] and [k, n]", kWho,
                 to_string(args.a->sizes), to_string(args.b->sizes));
  }
  const Dims want = with_last(args.a->sizes, args.b->size(1));
  if (args.out->sizes != want) {
    return failf(ErrorCode::kInvalidArgument, "{}: out is {}, need {}", kWho, to_string(args.out->sizes),
                 to_string(want));
  }
  return {};
}

/// f32 of one element, or of one of these sizes.
Result<void> check_scale(std::string_view name, const TensorView& scale, std::initializer_list<Dims> all) {
  TANDEM_TRY(check_strides(name, scale));
  const bool fits = scale.numel() == 1 || std::find(all.begin(), all.end(), scale.sizes) != all.end();
  if (scale.dtype == DType::kF32 && fits) return {};
  std::string need;
  for (const Dims* sizes = all.begin(); sizes != all.end(); ++sizes) {
    if (std::find(all.begin(), sizes, *sizes) == sizes) need += fmt::format(" or {}", to_string(*sizes));
  }
  return failf(ErrorCode::kInvalidArgument, "{}: {} is {} {}, need f32 of one element{}", kWho, name,
               to_string(scale.dtype), to_string(scale.sizes), need);
}

Result<void> check_scales(const ProductArgs& args) {
  const Dims& sizes = args.a->sizes;
  const std::int64_t rows = numel(with_last(sizes, 1));
  const std::int64_t n = args.b->size(1);
  const std::int64_t kb = num_scale_blocks(args.b->size(0));
  if (args.a_scale != nullptr) {
    TANDEM_TRY(check_scale("a_scale", *args.a_scale,
                           {with_last(sizes, 1), with_last(sizes, kb), {rows, 1}, {rows, kb}}));
  }
  if (args.b_scale != nullptr)
    TANDEM_TRY(check_scale("b_scale", *args.b_scale, {{1, n}, {kb, n}, {kb, num_scale_blocks(n)}}));
  if (args.result_scale != nullptr) TANDEM_TRY(check_scale("result_scale", *args.result_scale, {{1}}));
  return {};
}

Result<void> check_added(const ProductArgs& args) {
  if (args.accumulate)
    return failf(ErrorCode::kInvalidArgument, "{}: only plain products accumulate, others take an addend",
                 kWho);
  if (args.bias != nullptr) {
    TANDEM_TRY(check_strides("bias", *args.bias));
    const Dims want = {args.b->size(1)};
    if (args.bias->sizes != want || (!is_f8(args.bias->dtype) && !is_factor_type(args.bias->dtype))) {
      return failf(ErrorCode::kInvalidArgument, "{}: bias is {}, need f32, bf16, f16 or f8 {}", kWho,
                   to_string(*args.bias), to_string(want));
    }
  }
  if (args.addend != nullptr) {
    TANDEM_TRY(check_strides("addend", *args.addend));
    const DType dtype = args.addend->dtype;
    if (args.addend->sizes != args.out->sizes || (dtype != DType::kF32 && dtype != args.out->dtype)) {
      return failf(ErrorCode::kInvalidArgument, "{}: addend is {}, need f32 or out's type, {}", kWho,
                   to_string(*args.addend), to_string(args.out->sizes));
    }
  }
  return {};
}

const TensorView* given(const std::optional<TensorView>& view) {
  return view ? &*view : nullptr;
}
const TensorView* given(const TensorView& scale) {
  return is_left_out(scale) ? nullptr : &scale;
}

/// Without holes, from a multiple of kAsyncInputAlignment bytes on.
bool is_packed(const TensorView& view) {
  return view.is_contiguous() && is_aligned_async_input(view);
}

ProductArgs product_args(const ScaledMmArgs& args) {
  return {.a = &args.a,
          .b = &args.b,
          .out = &args.out,
          .bias = given(args.bias),
          .a_scale = given(args.a_scale),
          .b_scale = given(args.b_scale),
          .result_scale = given(args.result_scale),
          .addend = given(args.addend),
          .fast_accum = args.fast_accum,
          .heuristic = args.heuristic};
}

}  // namespace

std::string to_string(const ScaledProblem& problem) {
  return to_string(product_of(problem));
}

Product product_of(const ScaledProblem& problem) {
  return {.m = problem.m,
          .n = problem.n,
          .k = problem.k,
          .a = problem.a,
          .b = problem.b,
          .out = problem.out,
          .a_scale = Scale::kTensor,
          .b_scale = Scale::kTensor};
}

Result<Product> scaled_product(const ProductArgs& args) {
  TANDEM_TRY(check_heuristic(kWho, args.heuristic));
  TANDEM_TRY(check_strides("a", *args.a));
  TANDEM_TRY(check_strides("b", *args.b));
  TANDEM_TRY(check_strides("out", *args.out));
  TANDEM_TRY(check_types(args));
  TANDEM_TRY(check_sizes(args));
  TANDEM_TRY(check_scales(args));
  TANDEM_TRY(check_added(args));
  TANDEM_TRY(check_writable(kWho, {"out", -1, args.out}));
  Product product = product_of(args);
  if (!product.is_scaled_along_k() || args.arrival != nullptr) return product;
  const TensorView b_columns = args.b->movedim(0, 1);
  product.b_is_column_major = !args.b->is_contiguous();
  product.is_aligned = is_packed(*args.a) && is_packed(*args.out) &&
                       (is_packed(*args.b) || is_packed(b_columns)) &&
                       (args.a_scale == nullptr || args.a_scale->can_flatten_rows()) &&
                       (args.addend == nullptr || is_packed(*args.addend));
  return product;
}

Result<ScaledProblem> problem_of(const ScaledMmArgs& args) {
  TANDEM_ASSIGN(const Product product, scaled_product(product_args(args)));
  return ScaledProblem{
      .m = product.m, .n = product.n, .k = product.k, .a = product.a, .b = product.b, .out = product.out};
}

Support can_run(const ScaledProblem& problem, const Device& device) {
  return can_run(product_of(problem), device);
}

Result<void> scaled_matmul(const ScaledMmArgs& args, Stream& stream) {
  return run(kScaledMatmul, product_args(args), stream);
}

Result<void> prepare(const ScaledMmArgs& like, Stream& stream) {
  return prepare(kScaledMatmul, product_args(like), stream);
}

}  // namespace tandem::gemm
