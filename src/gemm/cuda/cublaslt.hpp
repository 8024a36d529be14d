#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <tandem/base/support.hpp>
#include <tandem/device/device.hpp>

#include "base/lru_cache.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/internal_stream.hpp"
#include "gemm/backend.hpp"
#include "gemm/cuda/cublaslt_plan.hpp"
#include "gemm/cuda/max_products.hpp"
#include "gemm/cuda/operands.hpp"
#include "gemm/cuda/stream_scratch.hpp"

namespace tandem::gemm::cuda {

/// Products by cuBLASLt, and a pass of its own over f32 sums for what the library cannot do in one rounding.
/// Row-major and column-major operands are read in place, others are copied first; f8 factors that do not go
/// along k are copied too. The product is made in the output where that is row-major and there is no pass, or
/// where out is f32; else in scratch memory.
class CublasLt final : public Implementation {
 public:
  /// `fallback` runs what cuBLASLt finds no algorithm for, and outlives this.
  CublasLt(const Device& device, const Implementation& fallback);
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  [[nodiscard]] std::string_view name() const override { return "cuda/cublaslt"; }
  [[nodiscard]] bool accepts(const Product& product, std::string* why_not) const override;
  [[nodiscard]] Result<void> prepare(const Product& product, const ProductArgs& like,
                                     Stream& stream) const override;
  [[nodiscard]] Result<void> run(const Product& product, const ProductArgs& args,
                                 Stream& stream) const override;
  [[nodiscard]] std::optional<double> predicted_us(const Product& product,
                                                   const cost::GpuRates& gpu) const override;

 private:
  Result<void> open(const Device& device);
  /// The library's plan for a share of a product, on these operands.
  struct Planned {
    Operands operands;
    std::shared_ptr<LtPlan> plan;
    bool has_pass;
  };
  /// None: the library has no algorithm. Not in enqueue() of the stream.
  Result<std::optional<Planned>> plan_of(const Product& product, const ProductArgs& args,
                                         const tandem::cuda::CudaStream& stream) const;
  Result<std::shared_ptr<LtPlan>> plan_for(const LtProblem& key,
                                           const tandem::cuda::CudaStream& stream) const;
  Result<void> load(const LtPlan& plan, const Operands& operands, Device& device) const;

  const Implementation& fallback_;
  int gpu_;
  Support usable_;
  const CublasLtApi* api_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  std::shared_ptr<tandem::cuda::InternalStream> loading_;  ///< of load(), behind nobody's work
  mutable StreamScratch scratch_;
  mutable std::mutex plans_mutex_;
  mutable LruCache<LtProblem, std::shared_ptr<LtPlan>, HashLtProblem> plans_;
};

}  // namespace tandem::gemm::cuda
