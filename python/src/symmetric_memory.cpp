#include "symmetric_memory.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <mutex>
#include <tandem/symm/symmetric_memory.hpp>

#include "group.hpp"

namespace tandem::python {
namespace {

using HandlePointer = std::shared_ptr<symm::Handle>;
using Seconds = std::optional<double>;

/// The symmetric blocks of this process. Other libraries' views of one do not carry its owner, which
/// rendezvous() asks for.
class Blocks {
 public:
  static Blocks& all() {
    static Blocks blocks;
    return blocks;
  }
  void add(const Tensor& tensor) {
    const auto begin = reinterpret_cast<std::uintptr_t>(tensor.view().data);
    const std::lock_guard lock(mutex_);
    std::erase_if(by_begin_, [](const auto& entry) { return entry.second.owner.expired(); });
    by_begin_[begin] = {begin + static_cast<std::uintptr_t>(tensor.view().size_bytes()), tensor.owner()};
  }
  /// The owner of the block that this address is in; null if there is none.
  [[nodiscard]] std::shared_ptr<void> find(const void* data) const {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    const std::lock_guard lock(mutex_);
    const auto after = by_begin_.upper_bound(address);
    if (after == by_begin_.begin()) return nullptr;
    const auto& [begin, block] = *std::prev(after);
    return address < block.end || address == begin ? block.owner.lock() : nullptr;
  }

 private:
  struct Block {
    std::uintptr_t end = 0;
    std::weak_ptr<void> owner;
  };
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, Block> by_begin_;
};

Array empty(PyGroup& group, const std::vector<std::int64_t>& shape, const std::string& dtype) {
  const Dims sizes = to_dims(shape, "shape");
  const DType type = parse_type(dtype);
  Device& device = *group.device()->device();
  const Tensor tensor = take_unlocked([&] { return symm::empty(sizes, type, device); }, group.rank());
  Blocks::all().add(tensor);
  return {tensor.view(), tensor.owner()};
}

HandlePointer rendezvous(PyGroup& group, nb::handle array) {
  const Operand operand = take_array(array, "tensor", group.device()->main_stream()->place());
  std::shared_ptr<void> owner = Blocks::all().find(operand.view.data);
  const Tensor tensor(operand.view, owner ? std::move(owner) : operand.owner);
  return group.run([&](Group& of) { return symm::rendezvous(tensor, of); });
}

symm::Timeout timeout_of(Seconds seconds) {
  if (!seconds) return std::nullopt;
  return std::chrono::milliseconds(static_cast<std::int64_t>(*seconds * 1e3));
}

Array buffer(const HandlePointer& handle, int rank, const std::vector<std::int64_t>& shape,
             const std::string& dtype, std::int64_t storage_offset) {
  const auto view = take(handle->get_buffer(rank, to_dims(shape, "shape"), parse_type(dtype), storage_offset),
                         handle->rank());
  return {view, handle};
}

Array signal_pad(const HandlePointer& handle, int rank) {
  return {take(handle->get_signal_pad(rank), handle->rank()), handle};
}

Array remote_tensor(const HandlePointer& handle, int peer, const std::vector<std::int64_t>& shape,
                    const std::string& dtype) {
  const auto view =
      take(handle->get_remote_tensor(peer, to_dims(shape, "shape"), parse_type(dtype)), handle->rank());
  return {view, handle};
}

/// Runs `enqueue` as one call on the stream.
template <class F>
void enqueue(const HandlePointer& handle, PyStream& stream, F&& work) {
  Call call(stream, handle->rank());
  call.keep(handle);
  call.run([&] { return work(stream.stream()); });
  call.finish();
}

void put_signal(const HandlePointer& handle, PyStream& stream, int dst_rank, int channel, Seconds timeout) {
  enqueue(handle, stream,
          [&](Stream& on) { return handle->put_signal(on, dst_rank, channel, timeout_of(timeout)); });
}

void wait_signal(const HandlePointer& handle, PyStream& stream, int src_rank, int channel, Seconds timeout) {
  enqueue(handle, stream,
          [&](Stream& on) { return handle->wait_signal(on, src_rank, channel, timeout_of(timeout)); });
}

void barrier(const HandlePointer& handle, PyStream& stream, int channel, Seconds timeout) {
  enqueue(handle, stream, [&](Stream& on) { return handle->barrier(on, channel, timeout_of(timeout)); });
}

void get(const HandlePointer& handle, PyStream& stream, nb::handle to, int peer, std::int64_t offset) {
  Call call(stream, handle->rank());
  call.keep(handle);
  const TensorView target = call.take(to, "to");
  call.run([&] { return handle->get(stream.stream(), target, peer, offset); });
  call.finish();
}

void put(const HandlePointer& handle, PyStream& stream, nb::handle from, int peer, std::int64_t offset) {
  Call call(stream, handle->rank());
  call.keep(handle);
  const TensorView source = call.take(from, "from_");
  call.run([&] { return handle->put(stream.stream(), source, peer, offset); });
  call.finish();
}

}  // namespace

void bind_symmetric_memory(nb::module_& module) {
  auto handle = nb::class_<symm::Handle>(
      module, "Handle",
      "A rank's access to the memory and the signal pads of one rendezvous: those of all\n"
      "ranks are mapped here. It keeps the memory alive. Close its group last.");
  refuse_pickling(handle, "Send copies of its buffers.");
  handle.def_prop_ro("rank", &symm::Handle::rank)
      .def_prop_ro("world_size", &symm::Handle::world_size)
      .def_prop_ro("buffer_size_bytes", &symm::Handle::buffer_size_bytes)
      .def_prop_ro("signal_pad_size_bytes", &symm::Handle::signal_pad_size_bytes)
      .def_prop_ro("offset_bytes", &symm::Handle::offset_bytes,
                   "The offset of the tensor of the rendezvous in its block.")
      .def_prop_ro("num_channels", &symm::Handle::num_channels)
      .def("buffer", &buffer, nb::arg("rank"), nb::arg("shape"), nb::arg("dtype"),
           nb::arg("storage_offset") = 0)
      .def("signal_pad", &signal_pad, nb::arg("rank"))
      .def("remote_tensor", &remote_tensor, nb::arg("peer"), nb::arg("shape"), nb::arg("dtype"))
      .def("put_signal", &put_signal, nb::arg("stream"), nb::arg("dst_rank"), nb::arg("channel"),
           nb::arg("timeout").none())
      .def("wait_signal", &wait_signal, nb::arg("stream"), nb::arg("src_rank"), nb::arg("channel"),
           nb::arg("timeout").none())
      .def("barrier", &barrier, nb::arg("stream"), nb::arg("channel"), nb::arg("timeout").none())
      .def("get", &get, nb::arg("stream"), nb::arg("to").none(), nb::arg("peer"), nb::arg("offset"))
      .def("put", &put, nb::arg("stream"), nb::arg("from_").none(), nb::arg("peer"), nb::arg("offset"));
  module.def("symm_empty", &empty, nb::arg("group"), nb::arg("shape"), nb::arg("dtype"));
  module.def("symm_rendezvous", &rendezvous, nb::arg("group"), nb::arg("tensor").none());
  module.def(
      "set_signal_pad_size",
      [](PyGroup& group, std::int64_t num_bytes) {
        take(symm::set_signal_pad_size(group.group(), num_bytes), group.rank());
      },
      nb::arg("group"), nb::arg("num_bytes"));
}

}  // namespace tandem::python
