#include "symm/cuda/handle.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/word_kernel.hpp"
#include "symm/cuda/signal_kernels.hpp"

namespace tandem::symm::cuda {
namespace {

using tandem::cuda::check_cuda;
using tandem::cuda::CudaStream;
using tandem::cuda::launch_store_word;
using tandem::cuda::Waits;

}  // namespace

Result<CudaStream*> CudaHandle::watched(Stream& stream, std::string_view who) const {
  TANDEM_ASSIGN(CudaStream* const own, tandem::cuda::cuda_stream(stream, who));
  own->add_watch(std::static_pointer_cast<CudaPeers>(peers()));
  return own;
}

std::uint32_t* CudaHandle::slot(int owner, int channel, int source) const {
  return peers()->pads[static_cast<std::size_t>(owner)] +
         static_cast<std::int64_t>(peers()->world_size) * channel + source;
}

// Faults are met while a call is enqueued, on the host: the work itself runs on no thread that could be
// delayed or killed. What corrupts is enqueued behind.
Result<void> CudaHandle::do_put_signal(Stream& stream, int dst_rank, int channel, Timeout timeout) {
  TANDEM_ASSIGN(CudaStream* const own, watched(stream, "put_signal"));
  const FaultAction fault = fault_at(*peers(), "put");
  std::uint32_t* const word = slot(dst_rank, channel, rank());
  return own->enqueue("put_signal", Waits::kForPeers, [&](cudaStream_t on) -> Result<void> {
    TANDEM_TRY(
        check_cuda("put_signal", launch_put_signal(kernel_handle(timeout), word, dst_rank, channel, on)));
    if (fault != FaultAction::kCorrupt) return {};
    return check_cuda("put_signal (corrupted)", launch_store_word(word, ~0U, on));
  });
}

Result<void> CudaHandle::do_wait_signal(Stream& stream, int src_rank, int channel, Timeout timeout) {
  TANDEM_ASSIGN(CudaStream* const own, watched(stream, "wait_signal"));
  fault_at(*peers(), "wait");
  return own->enqueue("wait_signal", Waits::kForPeers, [&](cudaStream_t on) {
    return launch_wait_signal(kernel_handle(timeout), slot(rank(), channel, src_rank), src_rank, channel, on);
  });
}

Result<void> CudaHandle::do_barrier(Stream& stream, int channel, Timeout timeout) {
  TANDEM_ASSIGN(CudaStream* const own, watched(stream, "barrier"));
  fault_at(*peers(), "barrier");
  if (world_size() == 1) return {};
  return own->enqueue("barrier", Waits::kForPeers,
                      [&](cudaStream_t on) { return launch_barrier(kernel_handle(timeout), channel, on); });
}

Result<void> CudaHandle::do_barrier_aside(Stream& stream, int channel, int turn) {
  if (world_size() == 1 || !meets_on_stream()) return do_barrier(stream, channel, {});
  TANDEM_ASSIGN(CudaStream* const own, watched(stream, "barrier"));
  fault_at(*peers(), "barrier");
  return cuda_peers().stream_barriers().enqueue(*own, turn);
}

Result<void> CudaHandle::reset_words(Stream& stream, const TensorView& words, int channel) {
  TANDEM_ASSIGN(CudaStream* const own, tandem::cuda::cuda_stream(stream, "reset_words"));
  fault_at(*peers(), "barrier");
  return own->enqueue("reset_words", Waits::kForPeers, [&](cudaStream_t on) {
    return launch_reset_words(kernel_handle({}), words.data_as<std::uint32_t>(), words.numel(), channel, on);
  });
}

Result<void> CudaHandle::do_get(Stream& stream, const TensorView& from, const TensorView& to, int peer) {
  return copy(stream, "get", from, to, peer);
}

Result<void> CudaHandle::do_put(Stream& stream, const TensorView& from, const TensorView& to, int peer) {
  return copy(stream, "put", from, to, peer);
}

Result<void> CudaHandle::copy(Stream& stream, std::string_view point, const TensorView& from,
                              const TensorView& to, int peer) {
  TANDEM_ASSIGN(CudaStream* const own, watched(stream, point));
  const FaultAction fault = fault_at(*peers(), point);
  const auto link_delay = peers()->group->config().link_delay;
  if (peer != rank() && link_delay.count() > 0) TANDEM_TRY(stream.sleep(link_delay));
  if (to.numel() == 0) return {};
  TANDEM_TRY(own->copy_by_engine(from, to));
  if (fault != FaultAction::kCorrupt) return {};
  return own->enqueue("copy (corrupted)", Waits::kForNobody, [&](cudaStream_t on) {
    return launch_flip_bit(to.data_as<std::uint8_t>(), 0x40U, on);
  });
}

Result<void> CudaHandle::do_watch(Stream& stream) const {
  TANDEM_TRY(watched(stream, "watch"));
  return {};
}

}  // namespace tandem::symm::cuda
