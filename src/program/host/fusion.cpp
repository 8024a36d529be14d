#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cassert>
#include <numeric>
#include <tandem/program/host/fusion.hpp>

#include "base/format.hpp"

namespace tandem::program::host {
namespace {

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float";
    case DType::kF64:
      return "double";
    case DType::kF16:
      return "__half";
    case DType::kBF16:
      return "__bfloat";
    case DType::kF8E4M3:
      return "__e4m3";
    case DType::kF8E5M2:
      return "__e5m2";
    case DType::kU8:
      return "uint8_t";
    case DType::kU32:
      return "uint32_t";
    case DType::kI8:
      return "int8_t";
    case DType::kI32:
      return "int";
    case DType::kI64:
      return "int64_t";
    case DType::kBool:
      return "bool";
  }
  return "";
}

char kind_letter(DomainKind kind) {
  switch (kind) {
    case DomainKind::kIteration:
      return 'i';
    case DomainKind::kReduction:
      return 'r';
    case DomainKind::kBroadcast:
      return 'b';
  }
  return '?';
}

/// Axes that the tensor has when it is stored.
std::vector<IterDomain> stored_axes(const SymbolicTensor& tensor) {
  std::vector<IterDomain> axes;
  for (const IterDomain& axis : tensor.axes()) {
    if (!axis.is_reduction()) axes.push_back(axis);
  }
  return axes;
}

}  // namespace

std::string to_string(ParallelType type) {
  switch (type) {
    case ParallelType::kSerial:
      return "S";
    case ParallelType::kDIDx:
      return "deviceIdx.x";
    case ParallelType::kStream:
      return "Stream";
  }
  return "";
}

std::string to_string(OpKind kind) {
  switch (kind) {
    case OpKind::kMatmul:
      return "matmul";
    case OpKind::kLinear:
      return "linear";
    case OpKind::kSum:
      return "sum";
  }
  return "";
}

std::string IterDomain::to_string() const {
  return fmt::format("{}{}{}{{{}}}", kind_letter(kind_), host::to_string(parallel_type_), id_,
                     extent_.to_string());
}

DeviceMesh DeviceMesh::create_for_num_devices(int num_devices) {
  std::vector<int> devices(static_cast<std::size_t>(std::max(num_devices, 0)));
  std::iota(devices.begin(), devices.end(), 0);
  return DeviceMesh(std::move(devices));
}

std::string DeviceMesh::to_string() const {
  return fmt::format("DeviceMesh{{{}}}", fmt::join(devices_, " "));
}

IterDomain& SymbolicTensor::axis(int idx) {
  assert(idx >= 0 && idx < dim());
  return axes_[static_cast<std::size_t>(idx)];
}

const IterDomain& SymbolicTensor::axis(int idx) const {
  assert(idx >= 0 && idx < dim());
  return axes_[static_cast<std::size_t>(idx)];
}

bool SymbolicTensor::is_sharded() const {
  return std::any_of(axes_.begin(), axes_.end(), [](const IterDomain& axis) { return axis.is_sharded(); });
}

std::string SymbolicTensor::to_string() const {
  std::vector<std::string> axes;
  for (const IterDomain& axis : axes_) axes.push_back(axis.to_string());
  const std::string mesh = mesh_.empty() ? "" : fmt::format(" ({})", mesh_.to_string());
  return fmt::format("T{}_{}_{}[{}]{}", id_, memory_ == MemoryType::kGlobal ? 'g' : 'l', dtype_name(dtype_),
                     fmt::join(axes, ", "), mesh);
}

IterDomain Fusion::symbolic_axis() {
  return {num_axes_++, Scalar::named(fmt::format("i{}", num_symbols_++))};
}

IterDomain Fusion::axis_like(const IterDomain& other, DomainKind kind) {
  return {num_axes_++, other.extent(), kind};
}

SymbolicTensor* Fusion::add(DType dtype, std::vector<IterDomain> axes) {
  return &tensors_.emplace_back(static_cast<int>(tensors_.size()), dtype, MemoryType::kGlobal,
                                std::move(axes));
}

SymbolicTensor* Fusion::refuse(std::string text) {
  if (!fault_) fault_ = Error(ErrorCode::kInvalidArgument, std::move(text));
  return add(DType::kF32, {});
}

bool Fusion::owns(const SymbolicTensor* tensor) const {
  return tensor != nullptr && tensor->id() < static_cast<int>(tensors_.size()) &&
         &tensors_[static_cast<std::size_t>(tensor->id())] == tensor;
}

Result<void> Fusion::status() const {
  if (fault_) return tl::unexpected(*fault_);
  return {};
}

SymbolicTensor* Fusion::make_contig_tensor(int num_dims, DType dtype) {
  if (num_dims < 1) return refuse(fmt::format("make_contig_tensor: got {} axes, need at least 1", num_dims));
  std::vector<IterDomain> axes;
  axes.reserve(static_cast<std::size_t>(num_dims));
  for (int i = 0; i < num_dims; ++i) axes.push_back(symbolic_axis());
  return add(dtype, std::move(axes));
}

SymbolicTensor* Fusion::make_contig_concrete_tensor(std::initializer_list<std::int64_t> sizes, DType dtype) {
  std::vector<IterDomain> axes;
  for (const std::int64_t size : sizes) {
    if (size < -1) {
      return refuse(
          fmt::format("make_contig_concrete_tensor: got size {}, need -1 (symbolic) or at least 0", size));
    }
    if (size == -1) {
      axes.push_back(symbolic_axis());
    } else {
      axes.emplace_back(num_axes_++, Scalar(size),
                        size == 1 ? DomainKind::kBroadcast : DomainKind::kIteration);
    }
  }
  if (axes.empty()) return refuse("make_contig_concrete_tensor: got no sizes, need at least 1");
  return add(dtype, std::move(axes));
}

SymbolicTensor* Fusion::matmul(SymbolicTensor* a, SymbolicTensor* b) {
  if (!owns(a) || !owns(b)) return refuse("matmul: an operand is null or another fusion's");
  const auto left = stored_axes(*a);
  const auto right = stored_axes(*b);
  if (left.size() < 2 || right.size() < 2 || left.size() < right.size()) {
    return refuse(fmt::format("matmul: got {} and {}, need a [..., m, k] and b [..., k, n] of no more axes",
                              a->to_string(), b->to_string()));
  }
  if (a->dtype() != b->dtype()) {
    return refuse(fmt::format("matmul: got {} and {}, need the same type", a->to_string(), b->to_string()));
  }
  std::vector<IterDomain> axes;
  const std::size_t shift = left.size() - right.size();
  for (std::size_t i = 0; i + 2 < left.size(); ++i) {
    const bool takes_right = left[i].is_broadcast() && i >= shift;
    const IterDomain& from = takes_right ? right[i - shift] : left[i];
    axes.push_back(axis_like(from, from.kind()));
  }
  axes.push_back(axis_like(left[left.size() - 2], DomainKind::kIteration));
  axes.push_back(axis_like(right.back(), DomainKind::kIteration));
  axes.push_back(axis_like(left.back(), DomainKind::kReduction));
  const int left_id = a->id();
  const int right_id = b->id();
  SymbolicTensor* const out = add(a->dtype(), std::move(axes));
  ops_.push_back({.kind = OpKind::kMatmul, .a = left_id, .b = right_id, .out = out->id()});
  return out;
}

SymbolicTensor* Fusion::linear(SymbolicTensor* a, SymbolicTensor* weight, SymbolicTensor* bias) {
  if (!owns(a) || !owns(weight) || (bias != nullptr && !owns(bias))) {
    return refuse("linear: an operand is null or another fusion's");
  }
  const auto left = stored_axes(*a);
  const auto right = stored_axes(*weight);
  if (left.size() < 2 || right.size() != 2 || (bias != nullptr && stored_axes(*bias).size() != 1)) {
    return refuse(fmt::format("linear: got {}, {}{}, need a [..., k], weight [n, k] and bias [n]",
                              a->to_string(), weight->to_string(),
                              bias == nullptr ? "" : " and " + bias->to_string()));
  }
  if (a->dtype() != weight->dtype() || (bias != nullptr && bias->dtype() != a->dtype())) {
    return refuse(fmt::format("linear: got {}, {}{}, need the same type", a->to_string(), weight->to_string(),
                              bias == nullptr ? "" : " and " + bias->to_string()));
  }
  std::vector<IterDomain> axes;
  for (std::size_t i = 0; i + 1 < left.size(); ++i) axes.push_back(axis_like(left[i], left[i].kind()));
  axes.push_back(axis_like(right.front(), DomainKind::kIteration));
  axes.push_back(axis_like(left.back(), DomainKind::kReduction));
  SymbolicTensor* const out = add(a->dtype(), std::move(axes));
  ops_.push_back({.kind = OpKind::kLinear,
                  .a = a->id(),
                  .b = weight->id(),
                  .bias = bias == nullptr ? -1 : bias->id(),
                  .out = out->id()});
  return out;
}

SymbolicTensor* Fusion::sum(SymbolicTensor* a, std::initializer_list<int> summed) {
  if (!owns(a)) return refuse("sum: the operand is null or another fusion's");
  const auto from = stored_axes(*a);
  const int num_axes = static_cast<int>(from.size());
  const bool fits =
      std::all_of(summed.begin(), summed.end(), [&](int axis) { return axis >= 0 && axis < num_axes; });
  if (!fits || summed.size() == 0) {
    return refuse(fmt::format("sum: got axes [{}] of {}, need axes in [0, {})",
                              fmt::join(summed.begin(), summed.end(), ", "), a->to_string(), num_axes));
  }
  std::vector<IterDomain> axes;
  for (int i = 0; i < num_axes; ++i) {
    const IterDomain& axis = from[static_cast<std::size_t>(i)];
    const bool is_summed = std::find(summed.begin(), summed.end(), i) != summed.end();
    axes.push_back(axis_like(axis, is_summed ? DomainKind::kReduction : axis.kind()));
  }
  SymbolicTensor* const out = add(a->dtype(), std::move(axes));
  ops_.push_back(
      {.kind = OpKind::kSum, .a = a->id(), .out = out->id(), .summed = {summed.begin(), summed.end()}});
  return out;
}

void Fusion::add_input(SymbolicTensor* tensor) {
  if (owns(tensor)) {
    inputs_.push_back(tensor->id());
  } else if (!fault_) {
    fault_ = Error(ErrorCode::kInvalidArgument, "add_input: the tensor is null or another fusion's");
  }
}

void Fusion::add_output(SymbolicTensor* tensor) {
  if (owns(tensor)) {
    outputs_.push_back(tensor->id());
  } else if (!fault_) {
    fault_ = Error(ErrorCode::kInvalidArgument, "add_output: the tensor is null or another fusion's");
  }
}

}  // namespace tandem::program::host
