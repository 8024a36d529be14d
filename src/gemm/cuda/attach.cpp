#include "gemm/cuda/attach.hpp"

#include <array>
#include <memory>

#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "gemm/backend.hpp"
#include "gemm/cuda/cublaslt.hpp"
#include "gemm/cuda/epilogue_kernel.hpp"
#include "gemm/cuda/native.hpp"
#include "gemm/cuda/quantize_kernel.hpp"
#include "gemm/cuda/quantize_rows.hpp"
#include "gemm/cuda/reference.hpp"
#include "gemm/cuda/reference_kernel.hpp"
#include "gemm/cuda/scaled_reference_kernel.hpp"

namespace tandem::gemm {
namespace {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const Device& device)
      : cublaslt_(device, reference_), native_(cuda::make_native_products(device)) {}
  [[nodiscard]] std::span<const Implementation* const> implementations() const override { return list_; }

 private:
  cuda::Reference reference_;
  cuda::CublasLt cublaslt_;
  std::unique_ptr<Implementation> native_;
  std::array<const Implementation*, 3> list_ = {native_.get(), &cublaslt_, &reference_};
};

tandem::cuda::KernelList plain_kernels() {
  return tandem::cuda::joined({cuda::reference_kernels(), cuda::scaled_reference_kernels(),
                               cuda::epilogue_kernels(), cuda::quantize_kernels()});
}

}  // namespace

tandem::cuda::KernelList cuda::kernels() {
  return tandem::cuda::joined({plain_kernels(), native_kernels()});
}

Result<void> attach_cuda(Device& device) {
  const tandem::cuda::CurrentDevice current(device.id().index);
  // The native ones load those that may run.
  TANDEM_TRY(tandem::cuda::check_cuda("mm: load kernels", tandem::cuda::load_kernels(plain_kernels())));
  device.attach<Backend>(std::make_shared<CudaBackend>(device));
  device.attach<RowQuantizer>(std::make_shared<cuda::QuantizeRows>());
  return {};
}

}  // namespace tandem::gemm
