// The runtime's functions for devices and memory, as far as tandem calls them.

#include <cstdlib>
#include <cstring>

#include "gpu.hpp"
#include "last_error.hpp"
#include "stream.hpp"

using tandem::simulated::kMemoryBytes;
using tandem::simulated::MemoryMap;
using tandem::simulated::num_gpus;
using tandem::simulated::status;

struct CUmemPoolHandle_st {
  int gpu = 0;
};

namespace {

thread_local int current_gpu = 0;

bool exists(int gpu) {
  return gpu >= 0 && gpu < num_gpus();
}

/// What nobody has written reads as it may on a GPU: as anything but zeros.
void* allocate(std::size_t size) {
  constexpr std::size_t kAlignment = 256;
  constexpr int kPoison = 0xcb;
  void* const data = std::aligned_alloc(kAlignment, (size + kAlignment - 1) / kAlignment * kAlignment);
  if (data != nullptr) std::memset(data, kPoison, size);
  return data;
}

cudaError_t allocate_on(void** data, std::size_t size, int gpu, bool is_pooled) {
  if (size > kMemoryBytes) return status(cudaErrorMemoryAllocation);
  *data = allocate(size);
  if (*data == nullptr) return status(cudaErrorMemoryAllocation);
  MemoryMap::instance().add(*data, {.size = size, .gpu = gpu, .is_pooled = is_pooled});
  return cudaSuccess;
}

/// Words that somebody polls are written as one.
void copy(void* to, const void* from, std::size_t size) {
  if (size == sizeof(std::uint32_t) && reinterpret_cast<std::uintptr_t>(to) % sizeof(std::uint32_t) == 0) {
    std::uint32_t value = 0;
    std::memcpy(&value, from, sizeof(value));
    __atomic_store_n(static_cast<std::uint32_t*>(to), value, __ATOMIC_RELEASE);
    return;
  }
  std::memmove(to, from, size);
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = num_gpus();
  return *count > 0 ? cudaSuccess : status(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) return status(cudaErrorInvalidDevice);
  current_gpu = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_gpu;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!exists(device)) return status(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = tandem::simulated::kMultiprocessors;
      return cudaSuccess;
    default:
      return status(cudaErrorInvalidValue);
  }
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!exists(device)) return status(cudaErrorInvalidDevice);
  *properties = {};
  std::strcpy(properties->name, "simulated GPU");
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  properties->major = 9;
  properties->minor = 0;
  properties->multiProcessorCount = tandem::simulated::kMultiprocessors;
  properties->totalGlobalMem = kMemoryBytes;
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int, int) {
  *value = 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* most) {
  *least = 0;
  *most = -5;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  *free_bytes = *total_bytes = kMemoryBytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, std::size_t size) {
  return allocate_on(data, size, current_gpu, false);
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  *pool = new CUmemPoolHandle_st{properties->location.id};
  return cudaSuccess;
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
  return cudaSuccess;
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete pool;
  return cudaSuccess;
}

cudaError_t cudaMallocFromPoolAsync(void** data, std::size_t size, cudaMemPool_t pool, cudaStream_t) {
  return allocate_on(data, size, pool->gpu, true);
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  stream->enqueue([data] {
    MemoryMap::instance().remove(data);
    std::free(data);
  });
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** data, std::size_t size, unsigned) {
  *data = allocate(size);
  return *data == nullptr ? status(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return cudaSuccess;
}

// GPUs see the host's memory where the host does.
cudaError_t cudaHostRegister(void*, std::size_t, unsigned) {
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void*) {
  return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void** on_device, void* on_host, unsigned) {
  *on_device = on_host;
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t size, cudaMemcpyKind,
                            cudaStream_t stream) {
  stream->enqueue([=] { copy(to, from, size); });
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return status(cudaErrorInvalidPitchValue);
  stream->enqueue([=] {
    for (std::size_t row = 0; row < height; ++row) {
      std::memmove(static_cast<std::byte*>(to) + row * to_pitch,
                   static_cast<const std::byte*>(from) + row * from_pitch, width);
    }
  });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t size, cudaStream_t stream) {
  stream->enqueue([=] { std::memset(data, value, size); });
  return cudaSuccess;
}

}  // extern "C"
