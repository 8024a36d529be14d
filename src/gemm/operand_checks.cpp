#include "gemm/operand_checks.hpp"

#include "base/format.hpp"

namespace tandem::gemm {

Result<void> check_is_injective(std::string_view who, const TensorView& out) {
  if (out.numel() == 0) return {};
  for (int d = 0; d < out.dim(); ++d) {
    if (out.size(d) == 1) continue;
    std::int64_t reached = 0;  // by the dims of smaller strides; of equal strides by the later ones
    for (int other = 0; other < out.dim(); ++other) {
      const bool is_smaller =
          out.stride(other) < out.stride(d) || (out.stride(other) == out.stride(d) && other > d);
      if (is_smaller) reached += (out.size(other) - 1) * out.stride(other);
    }
    if (out.stride(d) <= reached) {
      return failf(ErrorCode::kInvalidArgument, "{}: out is {}, whose elements overlap", who, to_string(out));
    }
  }
  return {};
}

}  // namespace tandem::gemm
