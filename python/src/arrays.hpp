#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tandem/base/tensor.hpp>
#include <vector>

namespace tandem::python {

namespace nb = nanobind;

/// An array of a call: a view of its memory, and what keeps that memory alive.
struct Operand {
  TensorView view;
  std::shared_ptr<void> owner;
};

/// A tensor of the library, as Python sees it: tandem.Array.
using Array = Operand;

/// Where the arrays of a call have to be, and the stream that uses them.
struct Place {
  DeviceId device;
  std::optional<std::int64_t> dlpack_stream;  ///< what __dlpack__(stream=...) gets; none on CPUs
};

/// Takes an array of any library without a copy: tandem.Array, NumPy by its array interface, all others by
/// DLPack. `name` is the argument's, for errors.
/// Errors:  TypeError for what is no array; Raised for a wrong device, type or stride.
[[nodiscard]] Operand take_array(nb::handle array, const std::string& name, const Place& place);

/// The DType of a name: "bf16", "bfloat16", "float32".
[[nodiscard]] DType parse_type(const std::string& name);

[[nodiscard]] Dims to_dims(const std::vector<std::int64_t>& sizes, const char* name);
[[nodiscard]] nb::tuple to_tuple(const Dims& dims);

void bind_arrays(nb::module_& module);

}  // namespace tandem::python
