#include "gemm/planned_products.hpp"

#include <array>
#include <vector>

#include "gemm/library_share.hpp"
#include "gemm/native_acceptance.hpp"

namespace tandem::gemm {
namespace {

Result<void> not_there() {
  return fail(ErrorCode::kUnsupported, "mm: this GPU is planned with, and not there");
}

class PlannedNative final : public Implementation {
 public:
  explicit PlannedNative(int multiprocessors) {
    std::vector<ResidentKernel> kernels;
    for (const NativeKernel& kernel : native_kernels_of_hopper()) {
      const Tiling& tiling = kernel.tiling;
      kernels.push_back({&kernel, multiprocessors / (tiling.cluster_rows * tiling.cluster_columns)});
    }
    kernels_.assign(std::move(kernels));
  }
  [[nodiscard]] std::string_view name() const override { return "cuda/sm90"; }
  [[nodiscard]] bool accepts(const Product& product, std::string* why_not) const override {
    return accepts_natively(product, {kernels_, false, usable_}, why_not);
  }
  [[nodiscard]] Result<void> run(const Product&, const ProductArgs&, Stream&) const override {
    return not_there();
  }
  [[nodiscard]] std::optional<double> predicted_us(const Product& product,
                                                   const cost::GpuRates& gpu) const override {
    return native_product_us(product, kernels_, false, gpu);
  }

 private:
  KernelChoice kernels_;
  Support usable_ = Support::yes();
};

class PlannedLibrary final : public Implementation {
 public:
  [[nodiscard]] std::string_view name() const override { return "cuda/cublaslt"; }
  [[nodiscard]] bool accepts(const Product& product, std::string* why_not) const override {
    if (!is_there(product, why_not)) return false;
    const std::string_view refusal = library_refusal(product);
    return refusal.empty() || refuse(why_not, refusal);
  }
  [[nodiscard]] Result<void> run(const Product&, const ProductArgs&, Stream&) const override {
    return not_there();
  }
  [[nodiscard]] std::optional<double> predicted_us(const Product& product,
                                                   const cost::GpuRates& gpu) const override {
    return library_us(product, gpu);
  }
};

class PlannedBackend final : public Backend {
 public:
  explicit PlannedBackend(int multiprocessors) : native_(multiprocessors) {}
  [[nodiscard]] std::span<const Implementation* const> implementations() const override { return list_; }

 private:
  PlannedNative native_;
  PlannedLibrary library_;
  std::array<const Implementation*, 2> list_ = {&native_, &library_};
};

}  // namespace

std::shared_ptr<Backend> planned_products(int multiprocessors) {
  return std::make_shared<PlannedBackend>(multiprocessors);
}

}  // namespace tandem::gemm
