#include <array>
#include <cstddef>
#include <optional>
#include <tandem/dlpack.hpp>

#include "base/dlpack_abi.hpp"
#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem {
namespace {

// The public names are declared only; these are the structures that they point to.
dlpack::Managed* abi(DLManagedTensor* managed) {
  return reinterpret_cast<dlpack::Managed*>(managed);
}
dlpack::ManagedVersioned* abi(DLManagedTensorVersioned* managed) {
  return reinterpret_cast<dlpack::ManagedVersioned*>(managed);
}

struct TypePair {
  DType dtype;
  dlpack::DataType other;
};
constexpr TypePair kTypes[] = {
    {DType::kF32, {dlpack::kFloat, 32, 1}},        {DType::kF16, {dlpack::kFloat, 16, 1}},
    {DType::kBF16, {dlpack::kBfloat, 16, 1}},      {DType::kF8E4M3, {dlpack::kFloat8E4M3FN, 8, 1}},
    {DType::kF8E5M2, {dlpack::kFloat8E5M2, 8, 1}}, {DType::kU8, {dlpack::kUInt, 8, 1}},
    {DType::kU32, {dlpack::kUInt, 32, 1}},         {DType::kI8, {dlpack::kInt, 8, 1}},
    {DType::kI32, {dlpack::kInt, 32, 1}},          {DType::kI64, {dlpack::kInt, 64, 1}},
    {DType::kF64, {dlpack::kFloat, 64, 1}},        {DType::kBool, {dlpack::kBool, 8, 1}},
};
static_assert(std::size(kTypes) == kNumDTypes);

Result<DType> dtype_of(const dlpack::DataType& other) {
  for (const TypePair& pair : kTypes) {
    if (pair.other.code == other.code && pair.other.bits == other.bits && pair.other.lanes == other.lanes)
      return pair.dtype;
  }
  return failf(
      ErrorCode::kUnsupported,
      "from_dlpack: got a type of code {}, {} bits and {} lanes, need one that tandem has, of one lane",
      other.code, other.bits, other.lanes);
}

dlpack::DataType type_of(DType dtype) {
  for (const TypePair& pair : kTypes) {
    if (pair.dtype == dtype) return pair.other;
  }
  return {};
}

Result<DeviceId> device_of(const dlpack::Device& other) {
  const bool is_host = other.type == dlpack::kCpu || other.type == dlpack::kCudaHost;
  if (is_host) return DeviceId{DeviceKind::kCpu, 0};
  if (other.type == dlpack::kCuda && other.id >= 0) return DeviceId{DeviceKind::kCuda, other.id};
  return failf(ErrorCode::kUnsupported,
               "from_dlpack: got device type {} with index {}, need CPU (1), CUDA (2) or pinned memory (3)",
               other.type, other.id);
}

/// Sizes and strides; no memory yet.
Result<TensorView> shape_of(const dlpack::Tensor& tensor, DType dtype) {
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr)) {
    return failf(ErrorCode::kInvalidArgument, "from_dlpack: got {} dimensions{}, need a shape", tensor.ndim,
                 tensor.shape == nullptr ? " and no shape" : "");
  }
  if (tensor.ndim > kMaxDims) {
    return failf(ErrorCode::kUnsupported, "from_dlpack: got {} dimensions, need at most {}", tensor.ndim,
                 kMaxDims);
  }
  Dims sizes;
  std::int64_t num_bytes = size_bytes(dtype);
  for (int d = 0; d < tensor.ndim; ++d) {
    const std::int64_t size = tensor.shape[d];
    sizes.push_back(size);
    if (size < 0 || __builtin_mul_overflow(num_bytes, size == 0 ? 1 : size, &num_bytes) ||
        num_bytes > std::int64_t{1} << 62) {
      return failf(
          ErrorCode::kInvalidArgument,
          "from_dlpack: got size {} in dim {}, need sizes that are not negative and at most 2^62 bytes", size,
          d);
    }
  }
  TensorView view = TensorView::contiguous(nullptr, sizes, dtype);
  for (int d = 0; d < tensor.ndim && tensor.strides != nullptr; ++d) {
    view.strides[d] = tensor.strides[d];
    if (view.strides[d] < 0) {
      return failf(ErrorCode::kUnsupported, "from_dlpack: got stride {} in dim {}, need none below 0",
                   view.strides[d], d);
    }
  }
  return view;
}

Result<TensorView> view_of(const dlpack::Tensor& tensor) {
  TANDEM_ASSIGN(const DType dtype, dtype_of(tensor.dtype));
  TANDEM_ASSIGN(const DeviceId device, device_of(tensor.device));
  TANDEM_ASSIGN(TensorView view, shape_of(tensor, dtype));
  view.device = device;
  if (view.numel() == 0) return view;
  if (tensor.data == nullptr) {
    return failf(ErrorCode::kInvalidArgument, "from_dlpack: got no memory for sizes {}",
                 to_string(view.sizes));
  }
  view.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  if (address % static_cast<std::uintptr_t>(size_bytes(dtype)) != 0) {
    return failf(ErrorCode::kInvalidArgument,
                 "from_dlpack: got elements of {} at {:#x} (byte_offset {}), need a multiple of {}",
                 to_string(dtype), address, tensor.byte_offset, size_bytes(dtype));
  }
  return view;
}

template <class Managed>
void destroy(Managed* managed) {
  if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
}

/// A structure with what it points to.
template <class Managed>
struct Exported {
  Managed managed{};
  std::array<std::int64_t, kMaxDims> sizes{};
  std::array<std::int64_t, kMaxDims> strides{};
  std::shared_ptr<void> owner;
};

template <class Managed>
Managed* export_view(const TensorView& view, std::shared_ptr<void>&& owner) {
  auto exported = std::make_unique<Exported<Managed>>();
  exported->owner = std::move(owner);
  for (int d = 0; d < view.dim(); ++d) {
    exported->sizes[static_cast<std::size_t>(d)] = view.size(d);
    exported->strides[static_cast<std::size_t>(d)] = view.stride(d);
  }
  Managed& managed = exported->managed;
  managed.tensor = {
      .data = view.data,
      .device = {view.device.kind == DeviceKind::kCpu ? dlpack::kCpu : dlpack::kCuda, view.device.index},
      .ndim = view.dim(),
      .dtype = type_of(view.dtype),
      .shape = exported->sizes.data(),
      .strides = exported->strides.data(),
      .byte_offset = 0};
  managed.context = exported.get();
  managed.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->context); };
  return &exported.release()->managed;
}

}  // namespace

void DlpackDeleter::operator()(DLManagedTensor* managed) const {
  destroy(abi(managed));
}
void DlpackDeleter::operator()(DLManagedTensorVersioned* managed) const {
  destroy(abi(managed));
}

Result<Tensor> from_dlpack(DLManagedTensor* managed) {
  if (managed == nullptr) return fail(ErrorCode::kInvalidArgument, "from_dlpack: got a null pointer");
  TANDEM_ASSIGN(const TensorView view, view_of(abi(managed)->tensor));
  return Tensor(view, std::shared_ptr<void>(managed, [managed](void*) { DlpackDeleter()(managed); }));
}

Result<Tensor> from_dlpack(DLManagedTensorVersioned* managed) {
  if (managed == nullptr) return fail(ErrorCode::kInvalidArgument, "from_dlpack: got a null pointer");
  const dlpack::ManagedVersioned& other = *abi(managed);
  if (other.major != 1) {
    return failf(ErrorCode::kUnsupported, "from_dlpack: got version {}.{}, need version 1", other.major,
                 other.minor);
  }
  TANDEM_ASSIGN(TensorView view, view_of(other.tensor));
  view.is_read_only = (other.flags & dlpack::kReadOnly) != 0;
  return Tensor(view, std::shared_ptr<void>(managed, [managed](void*) { DlpackDeleter()(managed); }));
}

Result<Dlpack> to_dlpack(const Tensor& tensor) {
  return to_dlpack(tensor.view(), tensor.owner());
}

Result<Dlpack> to_dlpack(const TensorView& view, std::shared_ptr<void> owner) {
  if (view.is_read_only) {
    return failf(ErrorCode::kUnsupported,
                 "to_dlpack: {} is read-only, need to_dlpack_versioned(), which can say so", to_string(view));
  }
  return Dlpack(reinterpret_cast<DLManagedTensor*>(export_view<dlpack::Managed>(view, std::move(owner))));
}

Result<DlpackVersioned> to_dlpack_versioned(const Tensor& tensor) {
  return to_dlpack_versioned(tensor.view(), tensor.owner());
}

Result<DlpackVersioned> to_dlpack_versioned(const TensorView& view, std::shared_ptr<void> owner) {
  auto* const managed = export_view<dlpack::ManagedVersioned>(view, std::move(owner));
  managed->major = 1;
  managed->minor = 1;
  managed->flags = view.is_read_only ? dlpack::kReadOnly : 0;
  return DlpackVersioned(reinterpret_cast<DLManagedTensorVersioned*>(managed));
}

}  // namespace tandem
