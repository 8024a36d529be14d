#include <tandem/gemm/packed_b.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/check_view.hpp"
#include "gemm/backend.hpp"
#include "gemm/operand_checks.hpp"
#include "gemm/packed_operand.hpp"

namespace tandem::gemm {

std::int64_t PackedB::k() const {
  return packed_->like().size(0);
}
std::int64_t PackedB::n() const {
  return packed_->like().size(1);
}
DType PackedB::dtype() const {
  return packed_->like().dtype;
}
std::int64_t PackedB::num_bytes() const {
  return packed_->num_bytes();
}
const std::string& PackedB::implementation() const {
  return packed_->implementation();
}

Result<PackedB> pack_b(const TensorView& b, const Device& device) {
  TANDEM_TRY(check_right_operand("pack_b", b));
  TANDEM_TRY(check_view("pack_b", "b", b, device));
  const Problem problem{.m = 1, .n = b.size(1), .k = b.size(0), .in = b.dtype, .out = DType::kF32};
  TANDEM_ASSIGN(const Implementation* const implementation, chosen(product_of(problem), device));
  TANDEM_ASSIGN(auto packed, implementation->pack(b));
  return PackedB(std::move(packed));
}

}  // namespace tandem::gemm
