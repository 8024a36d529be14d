#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <vector>

#include "arrays.hpp"
#include "errors.hpp"

namespace tandem::python {

/// What one thread at a time may use. Python's lock guards it.
class OneUser {
 public:
  explicit OneUser(const char* refusal) : refusal_(refusal) {}

  /// Throws if another one lives. That is one of another thread, or of what a signal has interrupted.
  class Use {
   public:
    explicit Use(OneUser& used) : used_(used) {
      if (used.is_in_use_) refuse(used.refusal_);
      used.is_in_use_ = true;
    }
    ~Use() { used_.is_in_use_ = false; }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    OneUser& used_;
  };

 private:
  const char* refusal_;
  bool is_in_use_ = false;
};

/// A stream, and the arrays that queued work may still use.
class PyStream {
 public:
  /// `waits`: whether each call waits for its work. `adopted`: whether it is a stream of the caller's.
  PyStream(std::shared_ptr<Device> device, std::unique_ptr<Stream> stream, bool waits, bool adopted)
      : device_(std::move(device)), stream_(std::move(stream)), waits_(waits), adopted_(adopted) {}
  ~PyStream();

  [[nodiscard]] Stream& stream() const { return *stream_; }
  [[nodiscard]] Device& device() const { return *device_; }
  [[nodiscard]] OneUser& user() { return user_; }
  /// The `cudaStream_t` behind it, as a number; 0 on CPUs.
  [[nodiscard]] std::uintptr_t native() const;
  /// What arrays of a call on this stream have to be like.
  [[nodiscard]] Place place() const;
  /// Ends a call: keeps its arrays until their work is done, and waits for it where the stream's calls wait.
  void finish(std::vector<std::shared_ptr<void>> owners, int rank);
  /// Waits for all queued work, and looks for ^C meanwhile. Throws the work's error.
  void synchronize(int rank = -1);
  /// Whether the work of all calls has run.
  [[nodiscard]] bool is_idle();
  /// Waits until all queued work has run or failed, or `interrupt` comes. Whether it has run.
  bool await(Interrupt& interrupt);
  /// A mark behind all that is queued.
  [[nodiscard]] Result<std::unique_ptr<Event>> record();

 private:
  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  bool waits_;
  bool adopted_;
  OneUser user_{
      "the stream is in a call of another thread, need a stream for each thread: Group.create_stream()"};
  /// What the calls up to a mark use.
  struct Kept {
    std::unique_ptr<Event> mark;
    std::vector<std::shared_ptr<void>> owners;
  };
  std::deque<Kept> kept_;
};

/// A point in a stream: the end of all that was queued when it was made.
class PyEvent {
 public:
  PyEvent(std::shared_ptr<PyStream> stream, std::unique_ptr<Event> mark)
      : stream_(std::move(stream)), mark_(std::move(mark)) {}

  [[nodiscard]] bool is_done() const { return mark_->is_done(); }
  /// Waits until that work has run, and looks for ^C meanwhile. Throws its error, unless that was told.
  void synchronize();

 private:
  std::shared_ptr<PyStream> stream_;
  std::unique_ptr<Event> mark_;
};

/// A device of Python: opened once, with the stream on which calls run that name none.
class PyDevice {
 public:
  PyDevice(DeviceId id, const Config& config);
  /// The same device with streams of its own.
  explicit PyDevice(std::shared_ptr<Device> device);

  [[nodiscard]] const std::shared_ptr<Device>& device() const { return device_; }
  [[nodiscard]] const std::shared_ptr<PyStream>& main_stream() const { return main_stream_; }
  [[nodiscard]] std::shared_ptr<PyStream> create_stream(int priority);
  /// The stream that stands for the caller's `cudaStream_t`; the same for the same one.
  [[nodiscard]] std::shared_ptr<PyStream> adopt(std::uintptr_t native);
  /// Waits for the work of all streams, whatever becomes of it, or until `interrupt` comes. Whether it is
  /// done.
  bool drain(Interrupt& interrupt);
  void drain();

 private:
  [[nodiscard]] std::vector<std::shared_ptr<PyStream>> streams() const;

  std::shared_ptr<Device> device_;
  std::shared_ptr<PyStream> main_stream_;
  std::map<std::uintptr_t, std::shared_ptr<PyStream>> adopted_;
  std::vector<std::shared_ptr<PyStream>> made_;  ///< those that are in use, or have work
};

/// "cpu" or "cuda:3"; "cuda" is that of `index`. Throws for any other text.
[[nodiscard]] DeviceId parse_device(const std::string& text, int index);

/// One call: takes arrays, runs without Python's lock, and keeps what it took.
class Call {
 public:
  explicit Call(PyStream& stream, int rank = -1, OneUser* group = nullptr)
      : stream_(stream), group_(group), rank_(rank) {}

  [[nodiscard]] TensorView take(nb::handle array, const std::string& name);
  [[nodiscard]] std::optional<TensorView> take_if(nb::handle array, const std::string& name);
  /// The arrays of a sequence; none of None.
  [[nodiscard]] std::vector<TensorView> take_all(nb::handle arrays, const std::string& name);
  /// The same with gaps.
  [[nodiscard]] std::vector<std::optional<TensorView>> take_some(nb::handle arrays, const std::string& name);
  /// The array that is given, or a new one; `made` gets the new one.
  [[nodiscard]] TensorView take_or_make(nb::handle given, const std::string& name, const Dims& sizes,
                                        DType dtype, std::optional<Array>& made);
  /// A tensor that the library has made for this call, as Python gets it.
  [[nodiscard]] Array add(const Tensor& tensor);
  void keep(std::shared_ptr<void> owner) { owners_.push_back(std::move(owner)); }

  template <class F>
  auto run(F&& f) {
    std::optional<OneUser::Use> group_use;
    if (group_ != nullptr) group_use.emplace(*group_);
    if (!stream_use_) stream_use_.emplace(stream_.user());
    return take_unlocked(std::forward<F>(f), rank_);
  }
  void finish() { stream_.finish(std::move(owners_), rank_); }
  [[nodiscard]] PyStream& py_stream() const { return stream_; }
  [[nodiscard]] Stream& stream() const { return stream_.stream(); }
  [[nodiscard]] Device& device() const { return stream_.device(); }

 private:
  PyStream& stream_;
  OneUser* group_;
  int rank_;
  std::optional<OneUser::Use> stream_use_;  ///< until the call has finished
  std::vector<std::shared_ptr<void>> owners_;
};

void bind_streams(nb::module_& module);

}  // namespace tandem::python
