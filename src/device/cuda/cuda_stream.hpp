#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <type_traits>

#include "device/cuda/capture_count.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_frees.hpp"
#include "device/cuda/host_wait.hpp"
#include "device/cuda/kept_watches.hpp"
#include "device/cuda/shared_gpu.hpp"
#include "device/cuda/stream_watch.hpp"
#include "device/cuda/watch_list.hpp"

namespace tandem::cuda {

struct DriverApi;

/// A stream of one GPU. Its faults are those of its watches, and of the streams that it has waited for.
class CudaStream final : public Stream {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Stream>> create(Device& device, int priority);
  /// Over a stream of the caller's, which stays his.
  [[nodiscard]] static Result<std::unique_ptr<Stream>> adopt(Device& device, cudaStream_t native);
  /// Finishes the work first; a recording under way is dropped.
  ~CudaStream() override;

  [[nodiscard]] cudaStream_t native() const { return native_; }
  [[nodiscard]] int device_idx() const { return id_.index; }
  /// What was queued when the recording began that is under way here, if it began here. From any thread.
  [[nodiscard]] std::optional<StreamMark> before_capture() const;
  /// Before work of `watch` is enqueued: a fault of it is returned by synchronize() from now on, and it lives
  /// at least until a synchronize() has seen that work done. Adding one twice is adding it once.
  void add_watch(const std::shared_ptr<StreamWatch>& watch);
  void inherit_watches(const WatchList& watches) { watches_.add(watches); }
  void hand_watches_to(WatchList& watches) const { watches.assign(watches_); }
  [[nodiscard]] Watches watches() const { return watches_.copy(); }
  /// For a stream that has nothing to do, whose faults nobody asks for.
  void forget_watches() { watches_.clear(); }

  [[nodiscard]] bool is_capturing() const override;
  /// Whether what is recorded here is launched by the library, when a call comes again; see Recorder.
  [[nodiscard]] bool is_recorded_by_library() const { return is_recorded_by_library_; }
  void set_recorded_by_library(bool is) { is_recorded_by_library_ = is; }

  /// The door for all that is enqueued here. `enqueue(native())` runs while the stream's GPU is its thread's
  /// current one and, where ranks share that, in a turn (see SharedGpu). It returns either the runtime's
  /// code, which is told as check_cuda(what, code), or a Result<void>. Calls may be nested.
  template <class Enqueue>
  [[nodiscard]] Result<void> enqueue(std::string_view what, Waits waits, Enqueue enqueue) const {
    const CurrentDevice current(id_.index);
    return sharing_->in_turn(waits, native_, [&]() -> Result<void> {
      if constexpr (std::is_same_v<std::invoke_result_t<Enqueue&, cudaStream_t>, cudaError_t>) {
        return check_cuda(what, enqueue(native_));
      } else {
        return enqueue(native_);
      }
    });
  }
  /// copy() of views that can_copy_by_engine() takes and that were checked, by a copy engine. Where ranks
  /// share the GPU a kernel copies: see SharedGpu::copy_by().
  [[nodiscard]] Result<void> copy_by_engine(const TensorView& from, const TensorView& to) const;
  /// Whether engines do the copies of copy_by_engine() here.
  [[nodiscard]] bool uses_copy_engines() const { return sharing_->copy_by() == CopyBy::kEngine; }
  /// Before kernels are loaded, and not in enqueue(). Where ranks share the GPU it waits until this stream is
  /// done, for as long as an op may: see SharedGpu.
  void settle_before_load() const;

 private:
  CudaStream(Device& device, int priority)
      : Stream(device, priority), id_(device.id()), spin_(device.config().spin) {}
  /// All but the native stream.
  [[nodiscard]] static Result<std::unique_ptr<CudaStream>> make(Device& device, int priority);

  Result<void> do_copy(const TensorView& from, const TensorView& to) override;
  Result<void> do_write_value32(std::uint32_t* word, std::uint32_t value) override;
  /// In enqueue().
  Result<void> enqueue_word(std::uint32_t* word, std::uint32_t value) const;
  Result<void> do_memset32(std::uint32_t* words, std::uint32_t value, std::int64_t count) override;
  Result<void> do_sleep(std::chrono::nanoseconds duration) override;
  Result<void> do_record(Event& event) override;
  Result<void> do_wait(const Event& event) override;
  Result<void> do_wait(Stream& other) override;
  Result<void> do_synchronize(Deadline deadline) override;
  Result<void> do_begin_capture() override;
  Result<std::unique_ptr<Graph>> do_end_capture() override;
  void do_begin_range(std::string_view label) override;
  void do_end_range() override;

  void set_before_capture(std::optional<StreamMark> mark);
  /// The recording that began here is over.
  void end_own_capture();
  /// Later work of `waiter`, perhaps on another GPU, waits for all that is enqueued here.
  Result<void> make_wait(CudaStream& waiter);

  // Nothing that ends this stream looks at its device: a group may end after it, with a stream of its own.
  const DeviceId id_;
  const Spin spin_;
  const DriverApi* driver_ = nullptr;
  std::shared_ptr<SharedGpu> sharing_;
  cudaStream_t native_ = nullptr;
  // Recorded here for whoever waits for this stream: an event must be of its stream's GPU. A wait keeps the
  // record it saw, so one is enough; the mutex keeps two waiters in two threads to the record of their own.
  cudaEvent_t joined_ = nullptr;
  std::mutex joined_mutex_;
  CaptureCount* captures_ = nullptr;
  const std::uint32_t* numbers_ = nullptr;  ///< the NumberTable of the GPU
  bool is_adopted_ = false;
  bool has_own_capture_ = false;  ///< begun here, not joined
  bool is_recorded_by_library_ = false;
  std::optional<StreamMark> before_capture_;
  mutable std::mutex before_capture_mutex_;
  std::shared_ptr<CudaFrees> frees_;
  WatchList watches_;
  KeptWatches kept_;
};

/// `stream` as what it is, or kInvalidArgument with `who`.
[[nodiscard]] Result<CudaStream*> cuda_stream(Stream& stream, std::string_view who);

}  // namespace tandem::cuda
