#pragma once

#include <memory>
#include <mutex>
#include <tandem/base/support.hpp>
#include <tandem/device/device.hpp>

#include "base/lru_cache.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "gemm/backend.hpp"
#include "gemm/cuda/sm90/async_input_kernel.hpp"
#include "gemm/cuda/sm90/lone_waits.hpp"
#include "gemm/cuda/stream_scratch.hpp"
#include "gemm/native_model.hpp"

namespace tandem::gemm::cuda {

/// Products that consume their left operand while it arrives, by the kernels of instances/; those whose rows
/// go to the ranks that own them; and those whose scales go along k. Other products go elsewhere, but where
/// Config::batch_invariant is set: every kernel adds each k of a sum in the same order, whatever its tiles.
/// Operands whose a is there may then lie anywhere: see PackedOperands.
class AsyncInputProducts final : public Implementation {
 public:
  explicit AsyncInputProducts(const Device& device);

  [[nodiscard]] std::string_view name() const override { return "cuda/sm90"; }
  [[nodiscard]] bool accepts(const Product& product, std::string* why_not) const override;
  [[nodiscard]] Result<void> prepare(const Product& product, const ProductArgs& like,
                                     Stream& stream) const override;
  [[nodiscard]] Result<void> run(const Product& product, const ProductArgs& args,
                                 Stream& stream) const override;
  [[nodiscard]] std::optional<double> predicted_us(const Product& product,
                                                   const cost::GpuRates& gpu) const override;

 private:
  Result<void> open(const Device& device);
  /// As gemm::as_arrived() says.
  [[nodiscard]] Product as_arrived(const Product& product) const;
  /// Such a product of packed operands.
  Result<void> multiply_packed(const Product& product, const ProductArgs& args,
                               tandem::cuda::CudaStream& stream) const;
  /// Of an arrival, with columns.
  Result<void> multiply(const Product& product, const ProductArgs& args, const symm::KernelHandle& waits,
                        tandem::cuda::CudaStream& stream) const;
  /// Of rows that go to their owners.
  Result<void> depart(const Product& product, const ProductArgs& args,
                      tandem::cuda::CudaStream& stream) const;
  /// With other ranks.
  [[nodiscard]] bool shares_gpu() const { return sharing_ != nullptr && sharing_->num_devices() > 1; }
  /// How many clusters of `kernel` run at one time, where other ranks on this GPU, and copies that are
  /// kernels, need room as well. Chunks of a group's peers come by a copy engine; where others come from
  /// nobody knows.
  [[nodiscard]] int share_of(const ResidentKernel& kernel, bool comes_by_copy_engine,
                             int left_free = 0) const;
  /// A product without columns that has pieces to send and to wait for.
  Result<void> exchange(const Product& product, const Arrival& arrival,
                        tandem::cuda::CudaStream& stream) const;
  /// What the waits of a product on `stream` look at: its group's, or the stream's own.
  Result<symm::KernelHandle> waits_of(const Arrival& arrival, tandem::cuda::CudaStream& stream) const;

  int gpu_;
  Support usable_;
  KernelChoice kernels_;
  int multiprocessors_ = 0;
  bool batch_invariant_;
  const tandem::cuda::SharedGpu* sharing_ = nullptr;
  mutable StreamScratch staged_;  ///< partials that wait to be pushed
  mutable StreamScratch packed_;  ///< copies of operands
  mutable std::mutex lone_waits_mutex_;
  mutable LruCache<std::uint64_t, std::shared_ptr<LoneWaits>> lone_waits_;  ///< by the stream's id
};

}  // namespace tandem::gemm::cuda
