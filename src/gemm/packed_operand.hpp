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
      : like_(like), implementation_(implementation) {}
  virtual ~PackedOperand() = default;
  PackedOperand(const PackedOperand&) = delete;
  PackedOperand& operator=(const PackedOperand&) = delete;

  /// Sizes, type and device are b's. Its memory is that of the packed form: for checks, not to be read.
  [[nodiscard]] const TensorView& like() const { return like_; }
  [[nodiscard]] const std::string& implementation() const { return implementation_; }
  [[nodiscard]] virtual std::int64_t num_bytes() const = 0;

 protected:
  TensorView like_;

 private:
  std::string implementation_;
};

}  // namespace tandem::gemm
