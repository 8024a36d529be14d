#include "gemm/cuda/native.hpp"

namespace tandem::gemm::cuda {
namespace {

/// Refuses everything.
class NoNativeProducts final : public Implementation {
 public:
  [[nodiscard]] std::string_view name() const override { return "cuda/sm90"; }
  [[nodiscard]] bool accepts(const Product&, std::string* why_not) const override {
    return refuse(why_not, "built without CUTLASS, so without native kernels");
  }
  [[nodiscard]] Result<void> run(const Product&, const ProductArgs&, Stream&) const override {
    return fail(ErrorCode::kInternal, "cuda/sm90: asked for a product in a build without CUTLASS");
  }
};

}  // namespace

std::unique_ptr<Implementation> make_native_products(const Device&) {
  return std::make_unique<NoNativeProducts>();
}

tandem::cuda::KernelList native_kernels() {
  return {};
}

std::string_view native_name_of(const void*) {
  return {};
}

}  // namespace tandem::gemm::cuda
