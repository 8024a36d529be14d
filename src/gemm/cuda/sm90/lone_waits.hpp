#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/device/device.hpp>
#include <tandem/symm/kernel.hpp>

#include "device/cuda/stream_watch.hpp"
#include "symm/cuda/fault_record.hpp"

namespace tandem::gemm::cuda {

/// What the waits of kernels look at that belong to no group: nobody poisons them, only their deadline ends
/// them. Good for one fault; then there has to be another.
class LoneWaits final : public tandem::cuda::StreamWatch {
 public:
  [[nodiscard]] static Result<std::shared_ptr<LoneWaits>> make(Device& device);

  [[nodiscard]] const symm::KernelHandle& handle() const { return handle_; }
  [[nodiscard]] bool is_spent() const { return fault_.read().has_value(); }
  /// Ok, or kTimeout with the chunk, its signal as last seen and as expected.
  [[nodiscard]] Result<void> status() override;

 private:
  LoneWaits() = default;

  symm::cuda::FaultRecord fault_;
  Buffer words_;
  symm::KernelHandle handle_;
};

}  // namespace tandem::gemm::cuda
