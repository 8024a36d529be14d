#include "symm/cuda/handle.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "symm/cuda/signal_kernels.hpp"

namespace tandem::symm::cuda {
namespace {

using tandem::cuda::check_cuda;
using tandem::cuda::CudaStream;
using tandem::cuda::CurrentDevice;

/// Passed while a call is enqueued, on the host: the work itself runs on no thread that could be delayed or
/// killed. What corrupts is enqueued behind.
FaultAction fault_at(const Peers& peers, std::string_view point) {
  return peers.group->faults().hit(point, peers.rank);
}

}  // namespace

Result<void> CudaHandle::check_usable(const Stream& stream) const {
  if (!peers_->group_alive.load(std::memory_order_acquire)) {
    return failf(ErrorCode::kInvalidArgument,
                 "the handle's group has been destroyed: only its memory is left");
  }
  if (&stream.device() != &device()) {
    return failf(ErrorCode::kInvalidArgument, "the stream belongs to {} ({}), the handle to {} ({})",
                 to_string(stream.device().id()), static_cast<const void*>(&stream.device()),
                 to_string(device().id()), static_cast<const void*>(&device()));
  }
  return peers_->group->status();
}

Result<cudaStream_t> CudaHandle::watched(Stream& stream, std::string_view who) const {
  TANDEM_ASSIGN(CudaStream* const own, tandem::cuda::cuda_stream(stream, who));
  own->add_watch(peers_);
  return own->native();
}

std::uint32_t* CudaHandle::slot(int owner, int channel, int source) const {
  return peers_->pads[static_cast<std::size_t>(owner)] +
         static_cast<std::int64_t>(peers_->world_size) * channel + source;
}

Result<void> CudaHandle::do_put_signal(Stream& stream, int dst_rank, int channel, Timeout timeout) {
  TANDEM_ASSIGN(const cudaStream_t native, watched(stream, "put_signal"));
  const CurrentDevice current(device().id().index);
  const FaultAction fault = fault_at(*peers_, "put");
  std::uint32_t* const word = slot(dst_rank, channel, rank());
  TANDEM_TRY(
      check_cuda("put_signal", launch_put_signal(kernel_handle(timeout), word, dst_rank, channel, native)));
  if (fault != FaultAction::kCorrupt) return {};
  return check_cuda("put_signal (corrupted)", launch_store_word(word, ~0U, native));
}

Result<void> CudaHandle::do_wait_signal(Stream& stream, int src_rank, int channel, Timeout timeout) {
  TANDEM_ASSIGN(const cudaStream_t native, watched(stream, "wait_signal"));
  const CurrentDevice current(device().id().index);
  fault_at(*peers_, "wait");
  return check_cuda("wait_signal", launch_wait_signal(kernel_handle(timeout), slot(rank(), channel, src_rank),
                                                      src_rank, channel, native));
}

Result<void> CudaHandle::do_barrier(Stream& stream, int channel, Timeout timeout) {
  TANDEM_ASSIGN(const cudaStream_t native, watched(stream, "barrier"));
  const CurrentDevice current(device().id().index);
  fault_at(*peers_, "barrier");
  if (world_size() == 1) return {};
  return check_cuda("barrier", launch_barrier(kernel_handle(timeout), channel, native));
}

Result<void> CudaHandle::do_get(Stream& stream, const TensorView& from, const TensorView& to, int peer) {
  TANDEM_ASSIGN(const cudaStream_t native, watched(stream, "get"));
  const CurrentDevice current(device().id().index);
  const FaultAction fault = fault_at(*peers_, "get");
  const auto link_delay = peers_->group->config().link_delay;
  if (peer != rank() && link_delay.count() > 0) TANDEM_TRY(stream.sleep(link_delay));
  if (to.numel() == 0) return {};
  TANDEM_TRY(stream.copy(from, to));
  if (fault != FaultAction::kCorrupt) return {};
  return check_cuda("get (corrupted)", launch_flip_bit(to.data_as<std::uint8_t>(), 0x40U, native));
}

Result<void> CudaHandle::do_watch(Stream& stream) const {
  TANDEM_TRY(watched(stream, "watch"));
  return {};
}

KernelHandle CudaHandle::kernel_handle(Timeout timeout) const {
  KernelHandle kernel;
  kernel.rank = rank();
  kernel.world_size = world_size();
  kernel.num_channels = num_channels();
  kernel.buffers = buffer_ptrs_dev();
  kernel.signal_pads = signal_pad_ptrs_dev();
  if (peers_->group_alive.load(std::memory_order_acquire)) {
    kernel.timeout_ns =
        std::chrono::nanoseconds(timeout.value_or(peers_->group->config().op_timeout)).count();
  }
  kernel.control = peers_->control_dev;
  return kernel;
}

}  // namespace tandem::symm::cuda
