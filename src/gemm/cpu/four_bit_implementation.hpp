#pragma once

#include "gemm/backend.hpp"
#include "gemm/cpu/four_bit_rows.hpp"

namespace tandem::gemm::cpu {

/// Products by 4-bit weights, by the kernels of one instruction set.
class FourBitImplementation final : public Implementation {
 public:
  /// `usable`: whether the processor has the instruction set, and the configuration allows it.
  FourBitImplementation(std::string_view name, const FourBitKernels& kernels, Support usable)
      : name_(name), kernels_(kernels), usable_(std::move(usable)) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] bool accepts(const Product& product, std::string* why_not) const override;
  [[nodiscard]] Result<void> run(const Product& product, const ProductArgs& args,
                                 Stream& stream) const override;

 private:
  std::string_view name_;
  const FourBitKernels& kernels_;
  Support usable_;
};

/// `usable`, or not without AVX512_VNNI.
[[nodiscard]] Support with_vnni(Support usable);

}  // namespace tandem::gemm::cpu
