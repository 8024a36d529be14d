#include "gemm/operand_checks.hpp"

#include "base/format.hpp"
#include "base/try.hpp"

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

}  // namespace

Result<void> check_matrices(std::string_view who, const TensorView& a, const TensorView& b,
                            const TensorView& out) {
  TANDEM_TRY(check_matrix(who, "a", a));
  TANDEM_TRY(check_matrix(who, "b", b));
  TANDEM_TRY(check_matrix(who, "out", out));
  TANDEM_TRY(check_types(who, a.dtype, b.dtype, out.dtype));
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

}  // namespace tandem::gemm
