#include "arrays.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string_view>
#include <tandem/dlpack.hpp>
#include <tandem/graph/graph.hpp>
#include <utility>

#include "errors.hpp"

namespace tandem::python {
namespace {

constexpr int kDlpackCpu = 1, kDlpackCuda = 2, kDlpackCudaHost = 3;
constexpr const char* kOldCapsule = "dltensor";
constexpr const char* kVersionedCapsule = "dltensor_versioned";

/// By the name that NumPy, ml_dtypes and PyTorch have, or by tandem's own.
std::optional<DType> find_type(std::string_view name) {
  const auto found = graph::dtype_of(name);
  return found ? found : parse_dtype(name);
}

std::string class_of(nb::handle object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__qualname__")));
}

/// Keeps a Python object alive; its end takes Python's lock.
std::shared_ptr<void> keep(nb::handle object) {
  object.inc_ref();
  return {object.ptr(), [](void* pointer) {
            const nb::gil_scoped_acquire locked;
            nb::handle(static_cast<PyObject*>(pointer)).dec_ref();
          }};
}

void check_device(DeviceId got, const std::string& name, const Place& place) {
  if (got == place.device) return;
  refuse(name + " is on " + to_string(got) + ", need " + to_string(place.device) + ", the group's device");
}

void check_dims(std::size_t count, const std::string& name) {
  if (count <= static_cast<std::size_t>(kMaxDims)) return;
  refuse(name + " has " + std::to_string(count) + " dimensions, may have " + std::to_string(kMaxDims));
}

Operand take_numpy(nb::handle array, const std::string& name, const Place& place) {
  check_device({}, name, place);
  if (nb::hasattr(array, "mask")) {
    throw nb::type_error((name + ": got a masked array, need one without a mask: pass filled()").c_str());
  }
  const nb::object type = array.attr("dtype");
  const auto type_text = nb::cast<std::string>(type.attr("name"));
  const auto dtype = find_type(type_text);
  if (!dtype) throw Raised(Error(ErrorCode::kUnsupported, name + " is of NumPy's type " + type_text));
  if (!nb::cast<bool>(type.attr("isnative"))) refuse(name + " has its bytes in the other order");
  const auto interface = nb::cast<nb::dict>(array.attr("__array_interface__"));
  const auto data = nb::cast<nb::tuple>(interface["data"]);
  const auto shape = nb::cast<nb::tuple>(interface["shape"]);
  check_dims(nb::len(shape), name);

  Operand taken;
  taken.view.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(data[0]));
  taken.view.is_read_only = nb::cast<bool>(data[1]);
  taken.view.dtype = *dtype;
  for (const nb::handle size : shape) taken.view.sizes.push_back(nb::cast<std::int64_t>(size));
  taken.view.strides = contiguous_strides(taken.view.sizes);
  if (const nb::object strides = interface["strides"]; !strides.is_none()) {
    int d = 0;
    for (const nb::handle stride_object : strides) {
      const auto stride = nb::cast<std::int64_t>(stride_object);
      if (stride < 0) refuse(name + " has a negative stride: pass a copy");
      if (stride % size_bytes(*dtype) != 0) {
        refuse(name + " has a stride of " + std::to_string(stride) + " bytes, not a multiple of its element");
      }
      taken.view.strides[d++] = stride / size_bytes(*dtype);
    }
  }
  if (reinterpret_cast<std::uintptr_t>(taken.view.data) % static_cast<std::uintptr_t>(size_bytes(*dtype))) {
    refuse(name + " is not aligned to its elements: pass a copy");
  }
  taken.owner = keep(array);
  return taken;
}

DeviceId device_of(nb::handle array, const std::string& name) {
  const auto pair = nb::cast<nb::tuple>(array.attr("__dlpack_device__")());
  const auto kind = nb::cast<int>(nb::int_(pair[0]));
  if (kind == kDlpackCpu || kind == kDlpackCudaHost) return {DeviceKind::kCpu, 0};
  if (kind == kDlpackCuda) return {DeviceKind::kCuda, nb::cast<int>(nb::int_(pair[1]))};
  throw Raised(Error(ErrorCode::kUnsupported, name + " is on a device of DLPack's type " +
                                                  std::to_string(kind) + ", need a CPU or CUDA"));
}

nb::object ask_for_capsule(nb::handle array, const Place& place) {
  nb::dict options;
  if (place.dlpack_stream) options["stream"] = *place.dlpack_stream;
  const nb::object method = array.attr("__dlpack__");
  nb::dict versioned;
  versioned.update(options);
  versioned["max_version"] = nb::make_tuple(1, 1);
  try {
    return method(**versioned);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method(**options);  // a library from before DLPack 1
}

template <class Managed>
Operand take_over(const nb::object& capsule, const char* name, const char* used_name) {
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (managed == nullptr) throw nb::python_error();
  const Tensor tensor = take(from_dlpack(managed));
  PyCapsule_SetName(capsule.ptr(), used_name);
  return {tensor.view(), tensor.owner()};
}

Operand take_dlpack(nb::handle array, const std::string& name, const Place& place) {
  check_device(device_of(array, name), name, place);
  const nb::object capsule = ask_for_capsule(array, place);
  try {
    if (PyCapsule_IsValid(capsule.ptr(), kVersionedCapsule) != 0) {
      return take_over<DLManagedTensorVersioned>(capsule, kVersionedCapsule, "used_dltensor_versioned");
    }
    return take_over<DLManagedTensor>(capsule, kOldCapsule, "used_dltensor");
  } catch (const Raised& raised) {
    throw Raised(Error(raised.error().code(), name + ": " + raised.error().text()));
  }
}

// ---- DLPack's C interface, which needs no Python: an attribute of the array's type ----

constexpr const char* kExchangeAttribute = "__dlpack_c_exchange_api__";
constexpr const char* kExchangeCapsule = "dlpack_exchange_api";

/// The first members of DLPackExchangeAPI (DLPack 1.2).
struct ExchangeApi {
  std::uint32_t major;
  std::uint32_t minor;
  void* previous;
  void* allocate;
  int (*managed_tensor_from_object)(void* object, DLManagedTensorVersioned** out);
};

/// What is known of a type of arrays, by the type, which lives as long as the process.
struct ExchangeType {
  nb::handle type;
  const ExchangeApi* api;
  bool has_gradients;  ///< as PyTorch's, which it exports only by Python's interface, with an error
};

/// That of the type itself: types derived from it may have no memory of their own.
const ExchangeType* exchange_of(nb::handle array) {
  static std::vector<ExchangeType> known;  // under Python's lock
  const nb::handle type = array.type();
  for (const ExchangeType& one : known) {
    if (one.type.is(type)) return &one;
  }
  const nb::object own = type.attr("__dict__");
  if (!nb::cast<bool>(own.attr("__contains__")(kExchangeAttribute))) return nullptr;
  const nb::object capsule = own[kExchangeAttribute];
  if (PyCapsule_IsValid(capsule.ptr(), kExchangeCapsule) == 0) return nullptr;
  const auto* const api =
      static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), kExchangeCapsule));
  if (api->major != 1) return nullptr;
  type.inc_ref();
  return &known.emplace_back(ExchangeType{type, api, nb::hasattr(type, "requires_grad")});
}

bool is_exported_by_python(nb::handle array) {
  return nb::cast<bool>(array.attr("requires_grad")) || nb::cast<bool>(array.attr("is_neg")()) ||
         nb::cast<bool>(array.attr("is_conj")());
}

/// Nothing where the type has no such interface, or it refuses: Python's interface says why.
std::optional<Operand> take_by_exchange(nb::handle array, const std::string& name, const Place& place) {
  const bool is_in_order = !place.dlpack_stream || *place.dlpack_stream == -1;
  const ExchangeType* const exchange = is_in_order ? exchange_of(array) : nullptr;
  if (exchange == nullptr || (exchange->has_gradients && is_exported_by_python(array))) return std::nullopt;
  DLManagedTensorVersioned* managed = nullptr;
  if (exchange->api->managed_tensor_from_object(array.ptr(), &managed) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  auto tensor = from_dlpack(managed);
  if (!tensor) {
    DlpackDeleter()(managed);
    return std::nullopt;
  }
  check_device(tensor->view().device, name, place);
  return Operand{tensor->view(), tensor->owner()};
}

// ---- tandem.Array ----

template <class Managed>
nb::object make_capsule(Managed managed, const char* name) {
  auto* const pointer = managed.get();
  // Whoever takes the structure over renames the capsule.
  PyObject* const capsule = PyCapsule_New(pointer, name, [](PyObject* object) {
    using Pointer = decltype(managed.get());
    for (const char* unused : {kOldCapsule, kVersionedCapsule}) {
      if (PyCapsule_IsValid(object, unused) == 0) continue;
      DlpackDeleter()(static_cast<Pointer>(PyCapsule_GetPointer(object, unused)));
    }
  });
  if (capsule == nullptr) throw nb::python_error();
  static_cast<void>(managed.release());
  return nb::steal(capsule);
}

nb::object to_capsule(const Array& array, nb::handle /*stream*/, nb::handle max_version) {
  const bool versioned = !max_version.is_none() && nb::cast<int>(max_version[0]) >= 1;
  if (versioned) return make_capsule(take(to_dlpack_versioned(array.view, array.owner)), kVersionedCapsule);
  return make_capsule(take(to_dlpack(array.view, array.owner)), kOldCapsule);
}

nb::tuple dlpack_device(const Array& array) {
  const DeviceId device = array.view.device;
  return nb::make_tuple(device.kind == DeviceKind::kCpu ? kDlpackCpu : kDlpackCuda, device.index);
}

/// The letter and size of NumPy's type strings. It has none for bf16 and f8, whose bits are told.
std::string type_string(DType dtype) {
  const char* const letter = dtype == DType::kBool                           ? "|b"
                             : dtype == DType::kI8                           ? "|i"
                             : dtype == DType::kU8 || is_f8(dtype)           ? "|u"
                             : dtype == DType::kI32 || dtype == DType::kI64  ? "<i"
                             : dtype == DType::kU32 || dtype == DType::kBF16 ? "<u"
                                                                             : "<f";
  return letter + std::to_string(size_bytes(dtype));
}

nb::dict array_interface(const Array& array, DeviceKind kind) {
  if (array.view.device.kind != kind) {
    throw nb::attribute_error(
        ("an array on " + to_string(array.view.device) + " has no such interface").c_str());
  }
  nb::list strides;
  for (const std::int64_t stride : array.view.strides) strides.append(stride * size_bytes(array.view.dtype));
  nb::dict interface;
  interface["shape"] = to_tuple(array.view.sizes);
  interface["typestr"] = type_string(array.view.dtype);
  interface["data"] =
      nb::make_tuple(reinterpret_cast<std::uintptr_t>(array.view.data), array.view.is_read_only);
  interface["strides"] = nb::tuple(strides);
  interface["version"] = 3;
  return interface;
}

}  // namespace

Operand take_array(nb::handle array, const std::string& name, const Place& place) {
  if (nb::isinstance<Array>(array)) {
    Operand taken = nb::cast<Array&>(array);
    check_device(taken.view.device, name, place);
    return taken;
  }
  if (auto taken = take_by_exchange(array, name, place)) return *std::move(taken);
  const bool is_type = nb::isinstance<nb::type_object>(array);  // whose attributes are those of its objects
  if (!is_type && nb::hasattr(array, "__array_interface__")) return take_numpy(array, name, place);
  if (!is_type && nb::hasattr(array, "__dlpack__")) return take_dlpack(array, name, place);
  throw nb::type_error((name + ": got a " + class_of(array) + ", need an array: of NumPy, or of a library " +
                        "that speaks DLPack")
                           .c_str());
}

DType parse_type(const std::string& name) {
  const auto found = find_type(name);
  if (!found) refuse("unknown type '" + name + "', need bf16, f16, f32, f8e4m3, f8e5m2, ...");
  return *found;
}

Dims to_dims(const std::vector<std::int64_t>& sizes, const char* name) {
  check_dims(sizes.size(), name);
  return Dims(std::span(sizes));
}

nb::tuple to_tuple(const Dims& dims) {
  nb::list values;
  for (const std::int64_t value : dims) values.append(value);
  return nb::tuple(values);
}

void bind_arrays(nb::module_& module) {
  auto bound = nb::class_<Array>(
      module, "Array",
      "A tensor in memory of tandem. It speaks DLPack and, on CPUs, NumPy's array interface,\n"
      "which shows bf16 and f8 as unsigned integers. The memory lives as long as the array\n"
      "or any other library's view of it.");
  refuse_pickling(bound, "Send a copy: numpy.array(it), on CPUs.");
  bound.def_prop_ro("shape", [](const Array& array) { return to_tuple(array.view.sizes); })
      .def_prop_ro(
          "strides", [](const Array& array) { return to_tuple(array.view.strides); }, "In elements.")
      .def_prop_ro(
          "dtype", [](const Array& array) { return std::string(to_string(array.view.dtype)); },
          "The type's name: \"bf16\".")
      .def_prop_ro(
          "device", [](const Array& array) { return to_string(array.view.device); }, "\"cpu:0\", \"cuda:3\".")
      .def_prop_ro("nbytes", [](const Array& array) { return array.view.size_bytes(); })
      .def("__repr__", [](const Array& array) { return "tandem.Array(" + to_string(array.view) + ")"; })
      .def("__dlpack__", &to_capsule, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(),
           "The capsule of DLPack. Work that is queued on the memory must be ordered before the consumer's.")
      .def("__dlpack_device__", &dlpack_device)
      .def_prop_ro("__array_interface__",
                   [](const Array& array) { return array_interface(array, DeviceKind::kCpu); })
      .def_prop_ro("__cuda_array_interface__",
                   [](const Array& array) { return array_interface(array, DeviceKind::kCuda); });
}

}  // namespace tandem::python
