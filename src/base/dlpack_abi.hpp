#pragma once

#include <cstdint>

// The memory layout of DLPack's structures, as its specification has fixed it for version 1 and, without a
// version, for those before.
namespace tandem::dlpack {

enum DeviceType : std::int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3 };

struct Device {
  std::int32_t type;
  std::int32_t id;
};

enum TypeCode : std::uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kBool = 6,
  kFloat8E4M3FN = 10,
  kFloat8E5M2 = 12
};

struct DataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< in elements; null: row-major
  std::uint64_t byte_offset;
};

/// DLManagedTensor.
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed* self);
};

/// DLManagedTensorVersioned. Of another major version only what stands before `flags` may be read.
struct ManagedVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned* self);
  std::uint64_t flags;
  Tensor tensor;
};

inline constexpr std::uint64_t kReadOnly = 1;

static_assert(sizeof(Tensor) == 48 && sizeof(Managed) == 64 && sizeof(ManagedVersioned) == 80);

}  // namespace tandem::dlpack
