#pragma once

#include <optional>
#include <tandem/base/error.hpp>
#include <tandem/symm/kernel_control.hpp>

namespace tandem::symm::cuda {

/// Owns one KernelFault in pinned host memory, at an address that is the same on every GPU. The memory is
/// taken from the driver piece by piece, reused, and never given back: that would wait for every kernel of
/// the GPU, also for those that wait for a signal of this very thread.
class FaultRecord {
 public:
  FaultRecord() = default;
  /// An empty one.
  [[nodiscard]] static Result<FaultRecord> take();
  FaultRecord(FaultRecord&& other) noexcept;
  FaultRecord& operator=(FaultRecord&& other) noexcept;
  /// No kernel may write it any more.
  ~FaultRecord();

  [[nodiscard]] KernelFault* address() const { return fault_; }
  /// What a kernel has left there, if any.
  [[nodiscard]] std::optional<KernelFault> read() const;

 private:
  explicit FaultRecord(KernelFault* fault) : fault_(fault) {}
  KernelFault* fault_ = nullptr;
};

}  // namespace tandem::symm::cuda
