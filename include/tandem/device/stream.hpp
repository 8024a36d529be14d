#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/event.hpp>
#include <tandem/device/graph.hpp>

namespace tandem {

class Device;

/// A queue of work on one device, done in order. Every call checks its arguments now, enqueues and returns; a
/// fault met while the work runs is returned by synchronize(), and what was queued behind it is skipped. One
/// host thread at a time may enqueue.
///
/// Queued work uses its tensors when it runs, not when it is enqueued. Memory of Device::allocate(),
/// Device::allocate_tensor() and symm::empty() stays until what was queued when its last owner went has run;
/// so do signals and copies of handles that went, and events: an early return with an error is safe. What
/// does not is Tensor::host(), tensors of files, the caller's memory behind a TensorView, and handles whose
/// KernelHandle or ChunkSenders is in use: synchronize() first. A Graph keeps no memory between its launches.
class Stream {
 public:
  /// Waits until all that is queued has run, however it ends; every wait in it has a deadline of its own. A
  /// stream that adopts one of the caller's (tandem/cuda/native_stream.hpp) does not wait.
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] Device& device() const { return device_; }
  /// A number of its own, which no other stream of the process ever has; never 0.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  /// Lower is more urgent, as in CUDA; 0 is the default.
  [[nodiscard]] int priority() const { return priority_; }

  /// Copies elements. Shapes: equal, any strides. Types: equal. Contiguous copies go by copy engine.
  /// Memory: `to` may be `from`, element for element: then nothing is done. No other overlap.
  /// Errors: kInvalidArgument for different shapes, types, memory this device cannot reach, or overlap.
  [[nodiscard]] Result<void> copy(const TensorView& from, const TensorView& to);

  /// Writes one word once everything earlier in this stream is done and visible to the whole system.
  /// Shapes: words [n], u32, contiguous, on this device, symmetric or not. Units: offset in words.
  /// Memory: contiguous words never overlap.
  /// Errors: kInvalidArgument for another type or shape, offset outside [0, n), value outside [0, 2^32).
  [[nodiscard]] Result<void> stream_write_value32(const TensorView& words, std::int64_t offset,
                                                  std::int64_t value);

  /// Sets words [offset, offset + count). Memory: as above. Errors: as above, and for count < 1.
  [[nodiscard]] Result<void> memset32(const TensorView& words, std::int64_t offset, std::int64_t value,
                                      std::int64_t count = 1);

  /// Keeps the stream, and nothing else, busy for at least this long.
  [[nodiscard]] Result<void> sleep(std::chrono::nanoseconds duration);

  [[nodiscard]] Result<void> record(Event& event);
  /// Later work here waits for the event's last record, and fails with the fault that the record is behind;
  /// no wait if it was never recorded. The wait takes place even behind a fault of this stream, so that
  /// memory that others still work on is not taken for free.
  [[nodiscard]] Result<void> wait(const Event& event);
  /// The same for all that is enqueued on `other` so far. Either stream may go before the other.
  [[nodiscard]] Result<void> wait(Stream& other);

  /// Blocks the host until all is done. Errors: the first fault since the last call; kTimeout. A fault that
  /// is returned is forgotten: here, by events, and by the streams whose fault this one met in a wait, unless
  /// they skipped more since. After kTimeout nothing is.
  [[nodiscard]] Result<void> synchronize(Deadline deadline = Deadline::never());

  /// While it lives, profilers show what its thread enqueues here under a label (NVTX on GPUs).
  class Range {
   public:
    Range(Stream& stream, std::string_view label) : stream_(stream) { stream_.do_begin_range(label); }
    ~Range() { stream_.do_end_range(); }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    Stream& stream_;
  };

  /// Whether work is being recorded for replay instead of run; allocation and rendezvous refuse then.
  [[nodiscard]] virtual bool is_capturing() const { return false; }
  /// From here on this stream, and every stream that waits for it, records. Streams that joined the recording
  /// must be joined back before its end. Errors: kUnsupported on a backend without graphs; kInvalidArgument
  /// while capturing.
  [[nodiscard]] Result<void> begin_capture() { return do_begin_capture(); }
  /// What was recorded. Errors: kInvalidArgument when not capturing; kDriver when the recording is broken.
  [[nodiscard]] Result<std::unique_ptr<Graph>> end_capture() { return do_end_capture(); }

 protected:
  Stream(Device& device, int priority);

  virtual Result<void> do_copy(const TensorView& from, const TensorView& to) = 0;
  virtual Result<void> do_write_value32(std::uint32_t* word, std::uint32_t value) = 0;
  virtual Result<void> do_memset32(std::uint32_t* words, std::uint32_t value, std::int64_t count) = 0;
  virtual Result<void> do_sleep(std::chrono::nanoseconds duration) = 0;
  virtual Result<void> do_record(Event& event) = 0;
  virtual Result<void> do_wait(const Event& event) = 0;
  virtual Result<void> do_wait(Stream& other) = 0;
  virtual Result<void> do_synchronize(Deadline deadline) = 0;
  virtual Result<void> do_begin_capture();
  virtual Result<std::unique_ptr<Graph>> do_end_capture();
  virtual void do_begin_range(std::string_view) {}
  virtual void do_end_range() {}

 private:
  Device& device_;
  int priority_;
  std::uint64_t id_;
};

}  // namespace tandem
