#pragma once

#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

#include "gemm/backend.hpp"
#include "gemm/product.hpp"

namespace tandem::gemm {

/// What mm() multiplies as it is.
[[nodiscard]] constexpr bool is_factor_type(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

/// Whether no scale is given at all.
[[nodiscard]] inline bool is_left_out(const TensorView& scale) {
  return scale.data == nullptr && scale.dim() == 0;
}

/// What a product of these checked operands asks of an implementation, but for how they lie and arrive.
[[nodiscard]] Product product_of(const ProductArgs& args);

/// a [m, k], b [k, n], out and addend [m, n] with strides >= 0; a and b of one factor type, out of it or f32;
/// what is accumulated f32; addend, and bias [n], of out's type.
[[nodiscard]] Result<void> check_matrices(std::string_view who, const ProductArgs& args);

// The checks of each front but those of memory, and what the product asks of an implementation. Errors:
// kInvalidArgument with the values.
[[nodiscard]] Result<Product> mm_product(const ProductArgs& args);
[[nodiscard]] Result<Product> scaled_product(const ProductArgs& args);
[[nodiscard]] Result<Product> async_input_product(const ProductArgs& args);
[[nodiscard]] Result<Product> scaled_async_input_product(const ProductArgs& args);
[[nodiscard]] Result<Product> departing_product(const ProductArgs& args);
[[nodiscard]] Result<Product> matmul_4bit_product(const ProductArgs& args);

/// A public function: its name in errors, and its checks.
struct Front {
  std::string_view who;
  Result<Product> (*product_of)(const ProductArgs& args);
};
inline constexpr Front kMm = {"mm", mm_product};
inline constexpr Front kScaledMatmul = {"scaled_matmul", scaled_product};
inline constexpr Front kMatmul4bit = {"matmul_4bit", matmul_4bit_product};
inline constexpr Front kAsyncInputMm = {"async_input_mm", async_input_product};
/// For the fused ops alone.
inline constexpr Front kScaledAsyncInputMm = {"async_input_mm", scaled_async_input_product};
/// As well.
inline constexpr Front kDepartingMm = {"matmul_reduce_scatter", departing_product};

/// run() and prepare() of product.hpp by a front's checks.
[[nodiscard]] Result<void> run(const Front& front, const ProductArgs& args, Stream& stream);
[[nodiscard]] Result<void> prepare(const Front& front, const ProductArgs& like, Stream& stream);

/// The one that runs the product. Errors: kUnsupported with each one's reason.
[[nodiscard]] Result<const Implementation*> chosen(const Product& product, const Device& device);

/// The public plan() of a front.
template <class ProblemType>
Result<PlanOf<ProblemType>> plan_of(const ProblemType& problem, const Device& device) {
  const Product product = product_of(problem);
  std::string why_no_others;
  const Implementation* const found = choose(product, device, &why_no_others);
  if (found == nullptr) return tl::unexpected(chosen(product, device).error());
  return PlanOf<ProblemType>(problem, found->name(), std::move(why_no_others), found);
}

/// run() of product.hpp by what was planned for `planned`. Errors: kInvalidArgument for any other product.
[[nodiscard]] Result<void> run_planned(const Front& front, const Product& planned,
                                       const Implementation& implementation, const ProductArgs& args,
                                       Stream& stream);

/// The public run() of a front's plan.
template <class ProblemType>
Result<void> run_planned(const Front& front, const PlanOf<ProblemType>& plan, const ProductArgs& args,
                         Stream& stream) {
  return run_planned(front, product_of(plan.problem()), *static_cast<const Implementation*>(plan.leaf()),
                     args, stream);
}

/// Of pack_b(): what mm() takes as b.
[[nodiscard]] Result<void> check_right_operand(std::string_view who, const TensorView& b);

[[nodiscard]] Result<void> check_heuristic(std::string_view who, int heuristic);

/// Whether the device can work on every operand: check_view().
[[nodiscard]] Result<void> check_views(std::string_view who, const ProductArgs& args, const Device& device);
/// Whether out overlaps none of the others; the addend may be out.
[[nodiscard]] Result<void> check_out_apart(std::string_view who, const ProductArgs& args);

/// The arrival's senders and pieces. Needs an arrival that async_input_product() has checked.
[[nodiscard]] Result<void> check_senders_and_pieces(const ProductArgs& args, const Stream& stream);

}  // namespace tandem::gemm
