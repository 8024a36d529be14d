#include "device/cuda/cuda_stream.hpp"

#include <nvtx3/nvToolsExt.h>

#include <algorithm>
#include <array>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/copy_loops.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_event.hpp"
#include "device/cuda/cuda_graph.hpp"
#include "device/cuda/driver_api.hpp"
#include "device/cuda/host_wait.hpp"
#include "device/cuda/internal_stream.hpp"
#include "device/cuda/number_table.hpp"
#include "device/cuda/sleep_kernel.hpp"
#include "device/cuda/strided_copy.hpp"
#include "device/cuda/word_kernel.hpp"

namespace tandem::cuda {

Result<std::unique_ptr<CudaStream>> CudaStream::make(Device& device, int priority) {
  std::unique_ptr<CudaStream> stream(new CudaStream(device, priority));
  TANDEM_ASSIGN(stream->driver_, DriverApi::load());
  stream->captures_ = device.service<CaptureCount>();
  TANDEM_ASSIGN(stream->numbers_, NumberTable::of(device.id().index));
  TANDEM_ASSIGN(const auto internal, InternalStream::of(device.id().index));
  stream->sharing_ = internal->sharing();
  if (auto* const frees = device.service<CudaFrees>()) stream->frees_ = frees->shared_from_this();
  const CurrentDevice current(device.id().index);
  TANDEM_TRY(check_cuda("create_stream", cudaEventCreateWithFlags(&stream->joined_, cudaEventDisableTiming)));
  return stream;
}

Result<std::unique_ptr<Stream>> CudaStream::adopt(Device& device, cudaStream_t native) {
  if (device.id().kind != DeviceKind::kCuda || native == nullptr || native == cudaStreamLegacy) {
    return failf(
        ErrorCode::kInvalidArgument,
        "adopt_stream: stream {} on {}: need a stream of a GPU, and not the default one, which waits for all "
        "others",
        static_cast<const void*>(native), to_string(device.id()));
  }
  TANDEM_ASSIGN(auto stream, make(device, 0));
  stream->native_ = native;
  stream->is_adopted_ = true;
  if (stream->frees_) stream->frees_->add_queue(stream.get());
  return stream;
}

Result<std::unique_ptr<Stream>> CudaStream::create(Device& device, int priority) {
  TANDEM_ASSIGN(auto stream, make(device, priority));
  const CurrentDevice current(device.id().index);
  int least_urgent = 0;
  int most_urgent = 0;
  TANDEM_TRY(check_cuda("create_stream", cudaDeviceGetStreamPriorityRange(&least_urgent, &most_urgent)));
  TANDEM_TRY(check_cuda("create_stream",
                        cudaStreamCreateWithPriority(&stream->native_, cudaStreamNonBlocking,
                                                     std::clamp(priority, most_urgent, least_urgent))));
  if (stream->frees_) stream->frees_->add_queue(stream.get());
  return stream;
}

CudaStream::~CudaStream() {
  const CurrentDevice current(id_.index);
  if (native_ != nullptr && !is_adopted_) {
    if (has_own_capture_) {
      cudaGraph_t unfinished = nullptr;
      static_cast<void>(cudaStreamEndCapture(native_, &unfinished));
      if (unfinished != nullptr) static_cast<void>(cudaGraphDestroy(unfinished));
      end_own_capture();
    }
    // A fault that nobody asked for is not lost: its watch tells every other stream, and its group. A query
    // would break the recording that this stream has joined.
    if (!is_capturing()) {
      static_cast<void>(wait_until_done(native_, watches_, Deadline::never(), spin_));
    }
  }
  if (frees_) {
    frees_->remove_queue(this);
    frees_->free_unused();
  }
  if (native_ != nullptr && !is_adopted_) static_cast<void>(cudaStreamDestroy(native_));
  if (joined_ != nullptr) static_cast<void>(cudaEventDestroy(joined_));
}

void CudaStream::add_watch(const std::shared_ptr<StreamWatch>& watch) {
  // A stream that others wait for, and no host thread, would keep what it has used for ever.
  if (kept_.has_orphan() && !is_capturing() && cudaStreamQuery(native_) == cudaSuccess) {
    kept_.let_go(kept_.mark());
  }
  watches_.add(watch);
  kept_.add(watch);
}

bool CudaStream::is_capturing() const {
  const CurrentDevice current(id_.index);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(native_, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
}

void CudaStream::settle_before_load() const {
  if (!sharing_->is_shared() || is_capturing()) return;
  const CurrentDevice current(id_.index);
  sharing_->settle_before_load(native_, watches_, Deadline::after(device().config().op_timeout), spin_);
}

Result<void> CudaStream::copy_by_engine(const TensorView& from, const TensorView& to) const {
  if (from.data == to.data) return {};  // an own place; other overlap is refused before
  return enqueue("copy", Waits::kForNobody, [&](cudaStream_t on) {
    const CopyLoops loops = CopyLoops::between(from, to);
    return uses_copy_engines() ? enqueue_engine_copy(loops, from.data, to.data, on)
                               : enqueue_copy(loops, from.data, to.data, CopyBy::kKernel, on);
  });
}

Result<void> CudaStream::do_copy(const TensorView& from, const TensorView& to) {
  return enqueue("copy", Waits::kForNobody, [&](cudaStream_t on) {
    return enqueue_copy(CopyLoops::between(from, to), from.data, to.data, sharing_->copy_by(), on);
  });
}

namespace {

struct WordPlace {
  bool is_pooled = false;
  bool is_on_another_gpu = false;
};

WordPlace place_of(const void* word, int gpu, const DriverApi& driver) {
  CUmemorytype type{};
  int word_gpu = gpu;
  CUmemoryPool pool = nullptr;
  std::array names = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                      CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  std::array<void*, names.size()> values = {&type, &word_gpu, &pool};
  const CUresult code = driver.pointer_get_attributes(names.size(), names.data(), values.data(),
                                                      reinterpret_cast<CUdeviceptr>(word));
  if (code != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE) return {};
  return {.is_pooled = pool != nullptr, .is_on_another_gpu = word_gpu != gpu};
}

}  // namespace

Result<void> CudaStream::do_write_value32(std::uint32_t* word, std::uint32_t value) {
  return enqueue("stream_write_value32", Waits::kForNobody,
                 [&](cudaStream_t) { return enqueue_word(word, value); });
}

Result<void> CudaStream::enqueue_word(std::uint32_t* word, std::uint32_t value) const {
  const WordPlace place = place_of(word, id_.index, *driver_);
  // The driver takes no memory that came from a pool, such as Device::allocate() gives, nor what was mapped
  // from a peer, and perhaps other kinds; while recording it takes them all the same, and fails at the
  // launch.
  if (!place.is_pooled && !place.is_on_another_gpu && !is_capturing()) {
    // The default form comes behind a fence of the whole system: whoever sees the word, on any GPU, sees what
    // was written before it.
    const CUresult code = driver_->stream_write_value32(native_, reinterpret_cast<CUdeviceptr>(word), value,
                                                        CU_STREAM_WRITE_VALUE_DEFAULT);
    if (code != CUDA_ERROR_INVALID_VALUE) return driver_->check("stream_write_value32", code);
  }
  if (place.is_on_another_gpu && value < NumberTable::kSize && sharing_->copy_by() == CopyBy::kEngine) {
    // Behind what stands before it in the stream, which has been completed when this copy begins. A kernel
    // that stored the word would have to find room beside whatever fills the GPU.
    return check_cuda("stream_write_value32", cudaMemcpyAsync(word, numbers_ + value, sizeof(*word),
                                                              cudaMemcpyDeviceToDevice, native_));
  }
  return check_cuda("stream_write_value32", launch_store_word(word, value, native_));
}

Result<void> CudaStream::do_memset32(std::uint32_t* words, std::uint32_t value, std::int64_t count) {
  return enqueue("memset32", Waits::kForNobody,
                 [&](cudaStream_t on) { return launch_fill_words(words, value, count, on); });
}

Result<void> CudaStream::do_sleep(std::chrono::nanoseconds duration) {
  if (duration.count() == 0) return {};
  return enqueue("sleep", Waits::kForNobody,
                 [&](cudaStream_t on) { return launch_sleep(duration.count(), on); });
}

Result<void> CudaStream::do_record(Event& event) {
  auto* mark = dynamic_cast<CudaEvent*>(&event);
  if (mark == nullptr) return fail(ErrorCode::kInvalidArgument, "record: the event is not of a CUDA device");
  return mark->record_on(*this);
}

Result<void> CudaStream::do_wait(const Event& event) {
  const auto* mark = dynamic_cast<const CudaEvent*>(&event);
  if (mark == nullptr) return fail(ErrorCode::kInvalidArgument, "wait: the event is not of a CUDA device");
  return mark->make_wait(*this);
}

Result<void> CudaStream::do_wait(Stream& other) {
  TANDEM_ASSIGN(CudaStream * source, cuda_stream(other, "wait"));
  if (source == this) return {};
  return source->make_wait(*this);
}

Result<void> CudaStream::make_wait(CudaStream& waiter) {
  {
    const std::lock_guard lock(joined_mutex_);
    TANDEM_TRY(
        enqueue("wait", Waits::kForNobody, [&](cudaStream_t on) { return cudaEventRecord(joined_, on); }));
    TANDEM_TRY(waiter.enqueue("wait", Waits::kForNobody, [&](cudaStream_t on) {
      return cudaStreamWaitEvent(on, joined_, cudaEventWaitDefault);
    }));
  }
  waiter.inherit_watches(watches_);
  return {};
}

Result<void> CudaStream::do_synchronize(Deadline deadline) {
  if (is_capturing()) {
    return fail(ErrorCode::kInvalidArgument,
                "synchronize: the stream is recording a graph, there is nothing to wait for");
  }
  const CurrentDevice current(id_.index);
  const std::uint64_t enqueued = kept_.mark();
  const cudaError_t code = wait_until_done(native_, watches_, deadline, spin_);
  if (code == cudaErrorNotReady) {
    return failf(ErrorCode::kTimeout, "synchronize: the deadline passed with work of a stream of {} not done",
                 to_string(id_));
  }
  TANDEM_TRY(check_cuda("synchronize", code));
  auto result = watches_.take_fault();
  kept_.let_go(enqueued);
  if (frees_) frees_->free_unused();
  return result;
}

Result<void> CudaStream::do_begin_capture() {
  if (is_capturing())
    return fail(ErrorCode::kInvalidArgument, "begin_capture: the stream is recording already");
  const CurrentDevice current(id_.index);
  // The stricter modes make calls fail that have nothing to do with the recording: those of other host
  // threads, whose ranks run on, or this thread's allocations on the device's own stream; and they tie the
  // recording to one host thread.
  set_before_capture(make_mark(native_));
  TANDEM_TRY(check_cuda("begin_capture", cudaStreamBeginCapture(native_, cudaStreamCaptureModeRelaxed)));
  has_own_capture_ = true;
  if (captures_ != nullptr) captures_->begin();
  return {};
}

std::optional<StreamMark> CudaStream::before_capture() const {
  const std::lock_guard lock(before_capture_mutex_);
  return before_capture_;
}

void CudaStream::set_before_capture(std::optional<StreamMark> mark) {
  const std::lock_guard lock(before_capture_mutex_);
  before_capture_ = std::move(mark);
}

void CudaStream::end_own_capture() {
  has_own_capture_ = false;
  set_before_capture(std::nullopt);
  if (captures_ != nullptr) captures_->end();
}

Result<std::unique_ptr<Graph>> CudaStream::do_end_capture() {
  if (!has_own_capture_) {
    return failf(ErrorCode::kInvalidArgument, "end_capture: the stream is not recording{}",
                 is_capturing() ? ", it has joined the recording of another" : "");
  }
  const CurrentDevice current(id_.index);
  cudaGraph_t recorded = nullptr;
  const cudaError_t code = cudaStreamEndCapture(native_, &recorded);
  end_own_capture();
  if (code != cudaSuccess) {
    if (recorded != nullptr) static_cast<void>(cudaGraphDestroy(recorded));
    return tl::unexpected(cuda_error("end_capture", code));
  }
  auto graph = CudaGraph::instantiate(recorded, *this, CudaGraph::Of::kCaller);
  static_cast<void>(cudaGraphDestroy(recorded));  // the executable form has copies of all it needs
  return graph;
}

// NVTX wants an end of text, and ops allocate nothing on the repeat path.
void CudaStream::do_begin_range(std::string_view label) {
  char text[256];
  const std::size_t size = std::min(label.size(), sizeof(text) - 1);
  label.copy(text, size);
  text[size] = 0;
  nvtxRangePushA(text);
}

void CudaStream::do_end_range() {
  nvtxRangePop();
}

Result<CudaStream*> cuda_stream(Stream& stream, std::string_view who) {
  auto* own = dynamic_cast<CudaStream*>(&stream);
  if (own == nullptr)
    return failf(ErrorCode::kInvalidArgument, "{}: the stream is not of a CUDA device", who);
  return own;
}

}  // namespace tandem::cuda
