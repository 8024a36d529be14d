#include "symm/cuda/service.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/capture_count.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_frees.hpp"
#include "symm/cuda/attach.hpp"
#include "symm/cuda/fault_record.hpp"
#include "symm/cuda/handle.hpp"
#include "symm/cuda/joining.hpp"
#include "symm/cuda/signal_kernels.hpp"

namespace tandem::symm {

Result<void> attach_cuda(Device& device) {
  TANDEM_ASSIGN(auto service, cuda::CudaService::make(device));
  device.attach(std::move(service));
  return {};
}

namespace cuda {

tandem::cuda::KernelList kernels() {
  return signal_kernels();
}

using tandem::cuda::CaptureCount;
using tandem::cuda::check_cuda;
using tandem::cuda::CurrentDevice;
using tandem::cuda::Waits;

Result<std::shared_ptr<Service>> CudaService::make(Device& device) {
  auto service = std::make_shared<CudaService>(device);
  const CurrentDevice current(service->device_idx_);
  TANDEM_TRY(check_cuda("loading the signal kernels", tandem::cuda::load_kernels(kernels())));
  TANDEM_ASSIGN(service->internal_, tandem::cuda::InternalStream::of(service->device_idx_));
  service->sharing_ = service->internal_->sharing();
  // Pinned memory is taken now rather than at the first wait without a group, when kernels may be waiting.
  TANDEM_TRY(FaultRecord::take());
  return service;
}

Result<std::shared_ptr<Block>> CudaService::allocate(std::int64_t num_bytes) {
  device_.service<tandem::cuda::CudaFrees>()->free_unused();
  TANDEM_ASSIGN(auto segment, Segment::create(device_idx_, num_bytes, *internal_));
  return freed_behind_work(std::make_unique<CudaBlock>(device_, std::move(segment)),
                           device_.service<tandem::cuda::CudaFrees>());
}

Result<std::unique_ptr<Joining>> CudaService::join(std::shared_ptr<Block> block, std::int64_t pad_bytes) {
  TANDEM_ASSIGN(auto pad, Segment::create(device_idx_, pad_bytes, *internal_));
  auto data = std::static_pointer_cast<CudaBlock>(std::move(block))->segment();
  return std::make_unique<CudaJoining>(device_, std::move(data), std::move(pad));
}

Result<std::shared_ptr<Peers>> CudaService::make_reporter(Group& group) {
  auto peers = std::make_shared<CudaPeers>();
  const auto world = static_cast<std::size_t>(group.size());
  peers->buffers.resize(world);
  peers->pads.resize(world);
  TANDEM_TRY(peers->prepare(device_, group));
  return peers;
}

std::shared_ptr<Handle> CudaService::make_handle(std::shared_ptr<Peers> peers, std::int64_t offset_bytes) {
  return std::make_shared<CudaHandle>(std::static_pointer_cast<CudaPeers>(std::move(peers)), offset_bytes);
}

Result<void> CudaService::enqueue_agreement(Stream& stream, Group& group, std::uint64_t sequence,
                                            const bootstrap::Fingerprint& fingerprint,
                                            std::chrono::milliseconds patience) {
  group.faults().hit("agree", group.rank());
  bootstrap::Control& control = bootstrap::control_of(group);
  if (stream.is_capturing()) {
    return control.agree(sequence, fingerprint, Deadline::after(group.config().rendezvous_timeout));
  }
  const auto deadline = Deadline::after(patience);
  return sharing_->is_shared() ? control.agree(sequence, fingerprint, deadline)
                               : control.announce(sequence, fingerprint, deadline);
}

Result<void> CudaService::end_call(Group& group) {
  bootstrap::Control& control = bootstrap::control_of(group);
  control.note_enqueued();  // also for ranks whose GPUs are shared where this one's is not
  if (!sharing_->is_shared()) return {};
  return control.wait_enqueued(Deadline::after(group.config().op_timeout));
}

Result<void> CudaService::enqueue_chunk_waits(const Handle& handle, const AwaitedChunks& chunks,
                                              Stream& stream) {
  TANDEM_ASSIGN(auto* const own, tandem::cuda::cuda_stream(stream, "await_chunks"));
  const ChunkRange range{.words = chunks.words,
                         .expected = chunks.expected,
                         .first = static_cast<int>(chunks.first),
                         .count = static_cast<int>(chunks.count),
                         .chunks_per_rank = static_cast<int>(chunks.chunks_per_rank)};
  return own->enqueue("await_chunks", Waits::kForPeers, [&](cudaStream_t on) {
    return launch_await_chunks(handle.kernel_handle(), range, on);
  });
}

Result<void> CudaService::enqueue_word_reset(Handle& handle, const TensorView& words, int channel,
                                             Stream& stream) {
  return static_cast<CudaHandle&>(handle).reset_words(stream, words, channel);
}

bool CudaService::is_capturing() const {
  const auto* captures = device_.service<CaptureCount>();
  return captures != nullptr && captures->is_capturing();
}

}  // namespace cuda
}  // namespace tandem::symm
