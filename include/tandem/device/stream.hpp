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

/// A queue of work on one device. The work runs in order. Each call checks its arguments, enqueues and
/// returns. If the work fails, synchronize() returns the fault, and work that was queued later is skipped.
/// One host thread at a time may enqueue.
///
/// Queued work uses its tensors when it runs, not when it is enqueued. Memory of Device::allocate(),
/// Device::allocate_tensor() and symm::empty() is kept until the work has run that was queued when its last
/// owner went. The same holds for events, and for signals and copies of handles. So an early return with an
/// error is safe.
///
/// Other memory is not kept: Tensor::host(), tensors of files, from_dlpack() and the caller's memory behind a
/// TensorView. Neither are handles whose KernelHandle or ChunkSenders is in use. Call synchronize() before
/// these go. A Graph keeps no memory between its launches.
class Stream {
 public:
  /// Waits until all queued work has run or failed. Every wait in that work has a deadline. A stream that
  /// adopts one of the caller's (tandem/cuda/native_stream.hpp) does not wait.
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  [[nodiscard]] Device& device() const { return device_; }
  /// A number that no other stream of the process ever has. It is never 0.
  [[nodiscard]] std::uint64_t id() const { return id_; }
  /// A lower number is more urgent, as in CUDA. 0 is the default.
  [[nodiscard]] int priority() const { return priority_; }

  /// Copies elements. The copy engine does contiguous copies.
  /// Shapes:  equal; any strides.
  /// Types:   equal.
  /// Memory:  `to` may be `from`, element for element; nothing is done then. No other overlap is allowed.
  /// Errors:  kInvalidArgument for different shapes or types, memory that this device cannot reach, a
  ///          read-only `to`, or overlap.
  [[nodiscard]] Result<void> copy(const TensorView& from, const TensorView& to);

  /// Writes one word after all earlier work of this stream is done and visible to the whole system.
  /// Shapes:  words [n], u32, contiguous, on this device, symmetric or not.
  /// Units:   offset in words.
  /// Memory:  contiguous words never overlap.
  /// Errors:  kInvalidArgument for another type or shape, read-only words, an offset outside [0, n), or a
  ///          value outside [0, 2^32).
  [[nodiscard]] Result<void> stream_write_value32(const TensorView& words, std::int64_t offset,
                                                  std::int64_t value);

  /// Sets words [offset, offset + count).
  /// Memory:  as stream_write_value32().
  /// Errors:  as stream_write_value32(), and for count < 1.
  [[nodiscard]] Result<void> memset32(const TensorView& words, std::int64_t offset, std::int64_t value,
                                      std::int64_t count = 1);

  /// Keeps the stream busy for at least this long, and nothing else.
  /// Errors:  kInvalidArgument for a negative duration.
  [[nodiscard]] Result<void> sleep(std::chrono::nanoseconds duration);

  /// Marks the current end of this stream with the event.
  [[nodiscard]] Result<void> record(Event& event);
  /// Makes later work of this stream wait for the event's last record. There is no wait if it was never
  /// recorded. If a fault lies before the record, this stream fails with it. A stream that has failed already
  /// waits all the same, so that memory that others still use is not taken for free.
  [[nodiscard]] Result<void> wait(const Event& event);
  /// Makes later work of this stream wait for all that is enqueued on `other` now. Either stream may be
  /// destroyed before the other.
  [[nodiscard]] Result<void> wait(Stream& other);

  /// Blocks the host until all queued work is done. A fault that is returned is cleared: here, in events, and
  /// in the streams from which this one got it in a wait, unless they have skipped more work since. kTimeout
  /// clears nothing.
  /// Errors:  the first fault since the last call; kTimeout.
  [[nodiscard]] Result<void> synchronize(Deadline deadline = Deadline::never());

  /// A label for profilers (NVTX on GPUs). It covers what its thread enqueues here while it lives.
  class Range {
   public:
    Range(Stream& stream, std::string_view label) : stream_(stream) { stream_.do_begin_range(label); }
    ~Range() { stream_.do_end_range(); }
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    Stream& stream_;
  };

  /// Whether work is recorded now instead of run. Allocation and rendezvous are refused then.
  [[nodiscard]] virtual bool is_capturing() const { return false; }
  /// Starts a capture on this stream. Every stream that waits for it records too, and must be joined back
  /// before the end.
  /// Errors:  kUnsupported on a backend without graphs; kInvalidArgument while capturing.
  [[nodiscard]] Result<void> begin_capture() { return do_begin_capture(); }
  /// Ends the capture and returns the recording.
  /// Errors:  kInvalidArgument when not capturing; kDriver when the recording is broken.
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
