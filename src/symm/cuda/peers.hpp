#pragma once

#include <memory>
#include <optional>
#include <tandem/device/device.hpp>
#include <tandem/symm/kernel_control.hpp>

#include "bootstrap/control_memory.hpp"
#include "device/cuda/stream_watch.hpp"
#include "symm/cuda/stream_barriers.hpp"
#include "symm/service.hpp"

namespace tandem::symm::cuda {

/// The peers of a rendezvous, with what kernels need of it: the tables of pointers, the words that end their
/// waits and the record that they leave. Streams hold it while their work may use it.
struct CudaPeers final : Peers, tandem::cuda::StreamWatch {
  CudaPeers() = default;
  CudaPeers(const CudaPeers&) = delete;
  CudaPeers& operator=(const CudaPeers&) = delete;
  ~CudaPeers() override;

  /// Puts the tables of `buffers` and `pads` into the memory of `on`.
  [[nodiscard]] Result<void> prepare(Device& on, Group& of);

  /// Turns the record of a kernel, of whatever rank, into the group's error, and lets the group compare the
  /// calls that its ranks have announced. Behind the group's end: what was known then, or this rank's record.
  [[nodiscard]] Result<void> status() override;
  [[nodiscard]] const void* source() const override { return control_memory_.get(); }
  void see_group_end() override { at_end_ = status(); }

  [[nodiscard]] StreamBarriers& stream_barriers() const { return *stream_barriers_; }

  KernelControl* control_dev = nullptr;
  void* const* buffers_dev = nullptr;
  std::uint32_t* const* pads_dev = nullptr;

 private:
  /// What a wait or a check of the rank's kernels has left, if any. Its peer is a rank, or -1.
  [[nodiscard]] std::optional<KernelFault> record_of(int of_rank) const;
  /// A kernel that was launched with a handle of a group that its rank had left: nobody else's affair.
  [[nodiscard]] bool is_misuse_behind_end(int of_rank, const KernelFault& found) const;
  void report(int of_rank, const KernelFault& found);
  [[nodiscard]] Error describe_alone(int of_rank, const KernelFault& found) const;

  Result<void> at_end_;  // of the group; written before group_alive turns false, read behind that
  std::shared_ptr<bootstrap::ControlMemory> control_memory_;  // kernels poll it also after the group's end
  std::shared_ptr<StreamBarriers> stream_barriers_;
  std::shared_ptr<Tensor> has_given_up_;  // the rank's word, which its other rendezvous have too
  Buffer tables_;
};

}  // namespace tandem::symm::cuda
