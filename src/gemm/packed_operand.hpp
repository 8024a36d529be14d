#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tandem/base/tensor.hpp>

namespace tandem::gemm {

/// What an Implementation made of a b. It derives its own.
class PackedOperand {
 public:
  PackedOperand(const TensorView& like, std::string_view implementation)
      : like_(TensorView::contiguous(nullptr, like.sizes, like.dtype)), implementation_(implementation) {}
  virtual ~PackedOperand() = default;
  PackedOperand(const PackedOperand&) = delete;
  PackedOperand& operator=(const PackedOperand&) = delete;

  /// Sizes, type and device are b's. Its memory is that of the packed form: for checks, not to be read.
  [[nodiscard]] const TensorView& like() const { return like_; }
  [[nodiscard]] const std::string& implementation() const { return implementation_; }
  [[nodiscard]] virtual std::int64_t num_bytes() const = 0;

 protected:
  void set_memory(void* memory) { like_.data = memory; }

 private:
  TensorView like_;
  std::string implementation_;
};

}  // namespace tandem::gemm
