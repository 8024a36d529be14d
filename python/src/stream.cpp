#include "stream.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <tandem/backend/backend.hpp>
#ifdef TANDEM_HAS_CUDA
#include <tandem/cuda/native_stream.hpp>
#endif

namespace tandem::python {
namespace {

/// Whether the event was reached, or the work before it has failed.
bool wait_a_while(Event& event) {
  const Deadline deadline = Deadline::after(InterruptCheck::kInterval);
  const auto result = event.synchronize(deadline);
  return result.has_value() || !deadline.expired();
}

/// The same however long it takes, or until `interrupt` comes: then false. Called without Python's lock.
bool wait_for(Event& event, Interrupt& interrupt) {
  while (!wait_a_while(event)) {
    if (interrupt.look()) return false;
  }
  return true;
}

nb::handle at(nb::handle sequence, std::size_t idx, std::vector<nb::object>& held) {
  held.push_back(nb::steal(PySequence_GetItem(sequence.ptr(), static_cast<Py_ssize_t>(idx))));
  if (!held.back().is_valid()) throw nb::python_error();
  return held.back();
}

void check_sequence(nb::handle arrays, const std::string& name) {
  if (nb::isinstance<nb::list>(arrays) || nb::isinstance<nb::tuple>(arrays)) return;
  throw nb::type_error((name + ": need a list or a tuple of arrays").c_str());
}

}  // namespace

PyStream::~PyStream() {
  {
    const nb::gil_scoped_release unlocked;
    static_cast<void>(stream_->synchronize());
    stream_.reset();
  }
  kept_.clear();
}

std::uintptr_t PyStream::native() const {
#ifdef TANDEM_HAS_CUDA
  if (device_->id().kind == DeviceKind::kCuda) {
    return reinterpret_cast<std::uintptr_t>(take(cuda::native_stream(*stream_)));
  }
#endif
  return 0;
}

Place PyStream::place() const {
  Place place{device_->id(), std::nullopt};
  // The caller's own stream needs no order with itself: -1 asks for none.
  if (place.device.kind == DeviceKind::kCuda) {
    place.dlpack_stream = adopted_ ? -1 : static_cast<std::int64_t>(native());
  }
  return place;
}

Result<std::unique_ptr<Event>> PyStream::record() {
  auto mark = device_->create_mark();
  if (!mark) return mark;
  if (auto recorded = stream_->record(**mark); !recorded) return tl::unexpected<Error>(recorded.error());
  return mark;
}

void PyStream::finish(std::vector<std::shared_ptr<void>> owners, int rank) {
  if (adopted_) return;  // libraries of GPUs free memory in the order of the stream
  Kept kept{take(record(), rank), std::move(owners)};
  kept_.push_back(std::move(kept));
  if (waits_) return synchronize(rank);
  while (kept_.front().mark->is_done() && kept_.size() > 1) kept_.pop_front();
}

bool PyStream::is_idle() {
  while (!kept_.empty() && kept_.front().mark->is_done()) kept_.pop_front();
  return kept_.empty();
}

bool PyStream::await(Interrupt& interrupt) {
  const nb::gil_scoped_release unlocked;
  const auto mark = record();
  return !mark || wait_for(**mark, interrupt);  // without a mark, the error comes with the stream's
}

void PyStream::synchronize(int rank) {
  Interrupt interrupt;
  if (!await(interrupt)) interrupt.raise();
  const auto result = [&] {
    const nb::gil_scoped_release unlocked;
    return stream_->synchronize();
  }();
  static_cast<void>(is_idle());  // drops what is done: other threads may have made calls meanwhile
  take(result, rank);
}

void PyEvent::synchronize() {
  Interrupt interrupt;
  const auto result = [&]() -> Result<void> {
    const nb::gil_scoped_release unlocked;
    if (!wait_for(*mark_, interrupt)) return {};
    return mark_->synchronize(Deadline::never());  // it was reached
  }();
  interrupt.raise();
  static_cast<void>(stream_->is_idle());  // drops what is done
  take(result);
}

PyDevice::PyDevice(DeviceId id, const Config& config)
    : PyDevice(take_unlocked([&] { return open_device(id, config); })) {}

PyDevice::PyDevice(std::shared_ptr<Device> device) : device_(std::move(device)) {
  const bool waits = device_->id().kind == DeviceKind::kCpu;
  main_stream_ = std::make_shared<PyStream>(device_, take(device_->create_stream()), waits, false);
}

std::shared_ptr<PyStream> PyDevice::create_stream(int priority) {
  auto stream = std::make_shared<PyStream>(device_, take(device_->create_stream(priority)), false, false);
  // One that Python has dropped ends here once it is idle: a wait for its work at its end would not look for ^C.
  const auto is_used = [](const auto& made) { return made.use_count() > 1 || !made->is_idle(); };
  const auto unused = std::partition(made_.begin(), made_.end(), is_used);
  const std::vector<std::shared_ptr<PyStream>> ended(unused,
                                                     made_.end());  // their ends let other threads run
  made_.erase(unused, made_.end());
  made_.push_back(stream);
  return stream;
}

std::shared_ptr<PyStream> PyDevice::adopt(std::uintptr_t native) {
#ifdef TANDEM_HAS_CUDA
  std::shared_ptr<PyStream>& adopted = adopted_[native];
  if (!adopted) {
    auto stream = take(cuda::adopt_stream(*device_, reinterpret_cast<CUstream_st*>(native)));
    adopted = std::make_shared<PyStream>(device_, std::move(stream), false, true);
  }
  return adopted;
#else
  static_cast<void>(native);
  throw Raised(Error(ErrorCode::kUnsupported, "this build of tandem has no CUDA part"));
#endif
}

std::vector<std::shared_ptr<PyStream>> PyDevice::streams() const {
  std::vector<std::shared_ptr<PyStream>> streams{main_stream_};
  for (const auto& [native, stream] : adopted_) streams.push_back(stream);
  streams.insert(streams.end(), made_.begin(), made_.end());
  return streams;
}

bool PyDevice::drain(Interrupt& interrupt) {
  const auto all = streams();
  return std::all_of(all.begin(), all.end(), [&](const auto& stream) { return stream->await(interrupt); });
}

void PyDevice::drain() {
  const auto all = streams();
  const nb::gil_scoped_release unlocked;
  for (const auto& stream : all) static_cast<void>(stream->stream().synchronize());
}

DeviceId parse_device(const std::string& text, int index) {
  if (text == "cpu" || text == "cpu:0") return {DeviceKind::kCpu, 0};
  if (text == "cuda") return {DeviceKind::kCuda, index};
  constexpr std::string_view kCuda = "cuda:";
  int number = 0;
  if (text.starts_with(kCuda)) {
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data() + kCuda.size(), end, number);
    if (parsed.ec == std::errc() && parsed.ptr == end && number >= 0) return {DeviceKind::kCuda, number};
  }
  refuse("device '" + text + "', need cpu, cuda or cuda:<index>");
}

TensorView Call::take(nb::handle array, const std::string& name) {
  Operand operand = take_array(array, name, stream_.place());
  owners_.push_back(std::move(operand.owner));
  return operand.view;
}

std::optional<TensorView> Call::take_if(nb::handle array, const std::string& name) {
  if (array.is_none()) return std::nullopt;
  return take(array, name);
}

std::vector<TensorView> Call::take_all(nb::handle arrays, const std::string& name) {
  std::vector<TensorView> views;
  if (arrays.is_none()) return views;
  check_sequence(arrays, name);
  std::vector<nb::object> held;
  for (std::size_t i = 0; i < nb::len(arrays); ++i) {
    views.push_back(take(at(arrays, i, held), name + "[" + std::to_string(i) + "]"));
  }
  return views;
}

std::vector<std::optional<TensorView>> Call::take_some(nb::handle arrays, const std::string& name) {
  std::vector<std::optional<TensorView>> views;
  if (arrays.is_none()) return views;
  check_sequence(arrays, name);
  std::vector<nb::object> held;
  for (std::size_t i = 0; i < nb::len(arrays); ++i) {
    views.push_back(take_if(at(arrays, i, held), name + "[" + std::to_string(i) + "]"));
  }
  return views;
}

TensorView Call::take_or_make(nb::handle given, const std::string& name, const Dims& sizes, DType dtype,
                              std::optional<Array>& made) {
  if (!given.is_none()) return take(given, name);
  const Tensor tensor = run([&] { return device().allocate_tensor(sizes, dtype); });
  made = add(tensor);
  return tensor.view();
}

Array Call::add(const Tensor& tensor) {
  owners_.push_back(tensor.owner());
  return {tensor.view(), tensor.owner()};
}

namespace {

template <class F>
void on_words(PyStream& stream, nb::handle words, F&& enqueue) {
  Call call(stream);
  const TensorView view = call.take(words, "words");
  call.run([&] { return enqueue(view); });
  call.finish();
}

}  // namespace

void bind_streams(nb::module_& module) {
  auto stream = nb::class_<PyStream>(
      module, "Stream",
      "A queue of work on one device. Calls that get it as `stream` enqueue and return. Arrays\n"
      "of these calls stay alive until synchronize().");
  refuse_pickling(stream, "Make a stream in each process.");
  stream
      .def(
          "synchronize", [](PyStream& stream) { stream.synchronize(); },
          "Waits until all queued work is done. Raises the work's error.")
      .def(
          "record",
          [](std::shared_ptr<PyStream> stream) {
            auto mark = take(stream->record());
            return PyEvent(std::move(stream), std::move(mark));
          },
          "Makes an event behind all that is queued now.")
      .def_prop_ro("native", &PyStream::native, "The cudaStream_t behind it, as a number; 0 on CPUs.")
      .def(
          "wait", [](PyStream& stream, PyStream& other) { take(stream.stream().wait(other.stream())); },
          nb::arg("other"), "Makes later work of this stream wait for all that is queued on `other` now.")
      .def(
          "copy",
          [](PyStream& stream, nb::handle from, nb::handle to) {
            Call call(stream);
            const TensorView source = call.take(from, "from_");
            const TensorView target = call.take(to, "to");
            call.run([&] { return call.stream().copy(source, target); });
            call.finish();
          },
          nb::arg("from_").none(), nb::arg("to").none(),
          "Copies elements between arrays of equal shape and type, with any strides.")
      .def(
          "write_value32",
          [](PyStream& stream, nb::handle words, std::int64_t offset, std::int64_t value) {
            on_words(stream, words, [&](const TensorView& view) {
              return stream.stream().stream_write_value32(view, offset, value);
            });
          },
          nb::arg("words").none(), nb::arg("offset"), nb::arg("value"),
          "Writes one word of a contiguous u32 array [n] after all earlier work of this stream is visible.")
      .def(
          "memset32",
          [](PyStream& stream, nb::handle words, std::int64_t offset, std::int64_t value,
             std::int64_t count) {
            on_words(stream, words, [&](const TensorView& view) {
              return stream.stream().memset32(view, offset, value, count);
            });
          },
          nb::arg("words").none(), nb::arg("offset"), nb::arg("value"), nb::arg("count") = 1,
          "Sets words [offset, offset + count) of a contiguous u32 array.");

  auto event = nb::class_<PyEvent>(
      module, "Event", "A point in a stream: the end of all that was queued when Stream.record() made it.");
  refuse_pickling(event, "Make an event in each process.");
  event.def_prop_ro("is_done", &PyEvent::is_done, "Whether that work has run or failed.")
      .def("synchronize", &PyEvent::synchronize,
           "Waits until that work has run. Raises its error, unless another wait has.");

  auto device =
      nb::class_<PyDevice>(module, "Device", "A device of this process: the cores of this host, or a GPU.");
  refuse_pickling(device, "Make a device in each process.");
  device
      .def(
          "__init__",
          [](PyDevice* device, const std::string& text) {
            new (device) PyDevice(parse_device(text, 0), take(Config::from_environment()));
          },
          nb::arg("device") = "cpu")
      .def_prop_ro(
          "gpu",
          [](const PyDevice& device) -> std::optional<int> {
            const DeviceId id = device.device()->id();
            return id.kind == DeviceKind::kCuda ? std::optional(id.index) : std::nullopt;
          },
          "The number of the GPU, or None on CPUs.")
      .def_prop_ro(
          "name", [](const PyDevice& device) { return to_string(device.device()->id()); },
          "\"cpu:0\", \"cuda:3\".")
      .def_prop_ro(
          "description", [](const PyDevice& device) { return device.device()->description(); },
          "A text for people.")
      .def_prop_ro(
          "stream", [](const PyDevice& device) { return device.main_stream(); },
          "The stream of calls that name none. On CPUs these calls wait for their work.")
      .def("create_stream", &PyDevice::create_stream, nb::arg("priority") = 0,
           "Makes a stream. A lower priority number is more urgent.")
      .def("adopt", &PyDevice::adopt, nb::arg("native"),
           "The stream that stands for a cudaStream_t of the caller's, given as a number. It must outlive "
           "the\n"
           "device. The null stream is refused.");
}

}  // namespace tandem::python
