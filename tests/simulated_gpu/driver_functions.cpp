// The driver's functions, as far as tandem calls them: pieces of memory that other processes can map are
// files.

#include "driver_functions.hpp"

#include <cuda.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "gpu.hpp"
#include "stream.hpp"

namespace tandem::simulated {
namespace {

constexpr std::size_t kGranularity = std::size_t{2} << 20;

// A piece of memory's handle is its file. Its name says whose memory it is.
const std::string kFileName = "simulated_gpu_";

int gpu_of(int file) {
  std::array<char, 128> name{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  if (::readlink(link.c_str(), name.data(), name.size() - 1) < 0) return -1;
  const char* const at = std::strstr(name.data(), kFileName.c_str());
  return at == nullptr ? -1 : std::atoi(at + kFileName.size());
}

void* pointer(CUdeviceptr address) {
  return reinterpret_cast<void*>(address);
}

CUresult get_error_name(CUresult, const char** name) {
  *name = "CUDA_ERROR";
  return CUDA_SUCCESS;
}

CUresult get_error_string(CUresult, const char** text) {
  *text = "refused by the simulated GPU";
  return CUDA_SUCCESS;
}

CUresult get_current_context(CUcontext* context) {
  *context = reinterpret_cast<CUcontext>(1);
  return CUDA_SUCCESS;
}

CUresult get_pointer_attributes(unsigned count, CUpointer_attribute* names, void** values,
                                CUdeviceptr address) {
  const auto range = MemoryMap::instance().find(pointer(address));
  for (unsigned i = 0; i < count; ++i) {
    switch (names[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<CUmemorytype*>(values[i]) = range ? CU_MEMORYTYPE_DEVICE : CUmemorytype{};
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(values[i]) = range ? range->gpu : -1;
        break;
      case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *static_cast<CUmemoryPool*>(values[i]) =
            range && range->is_pooled ? reinterpret_cast<CUmemoryPool>(1) : nullptr;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult write_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  const auto range = MemoryMap::instance().find(pointer(address));
  if (!range || range->is_pooled || range->gpu != stream->gpu) return CUDA_ERROR_INVALID_VALUE;
  stream->enqueue(
      [=] { __atomic_store_n(static_cast<std::uint32_t*>(pointer(address)), value, __ATOMIC_RELEASE); });
  return CUDA_SUCCESS;
}

CUresult batch_mem_op(CUstream stream, unsigned count, CUstreamBatchMemOpParams* ops, unsigned) {
  for (unsigned i = 0; i < count; ++i) {
    const CUstreamBatchMemOpParams& op = ops[i];
    // Writes have no flags in this version of the function.
    if (op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 && op.writeValue.flags == 0) {
      auto* const word = static_cast<std::uint32_t*>(pointer(op.writeValue.address));
      stream->enqueue(
          [word, value = op.writeValue.value] { __atomic_store_n(word, value, __ATOMIC_RELEASE); });
    } else if (op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 && op.writeValue.flags == 0) {
      auto* const words = static_cast<std::uint64_t*>(pointer(op.writeValue.address));
      stream->enqueue(
          [words, value = op.writeValue.value64] { __atomic_store_n(words, value, __ATOMIC_RELEASE); });
    } else if (op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 &&
               op.waitValue.flags == CU_STREAM_WAIT_VALUE_EQ) {
      auto* const word = static_cast<std::uint32_t*>(pointer(op.waitValue.address));
      stream->enqueue([word, value = op.waitValue.value] {
        while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) std::this_thread::yield();
      });
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult get_granularity(std::size_t* granularity, const CUmemAllocationProp*,
                         CUmemAllocationGranularity_flags) {
  *granularity = kGranularity;
  return CUDA_SUCCESS;
}

CUresult create(CUmemGenericAllocationHandle* memory, std::size_t size, const CUmemAllocationProp* properties,
                unsigned long long) {
  const std::string name = kFileName + std::to_string(properties->location.id);
  const int file = ::memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file < 0 || size > kMemoryBytes || ::ftruncate(file, static_cast<off_t>(size)) != 0) {
    if (file >= 0) ::close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *memory = static_cast<CUmemGenericAllocationHandle>(file);
  return CUDA_SUCCESS;
}

CUresult release(CUmemGenericAllocationHandle memory) {
  return ::close(static_cast<int>(memory)) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult reserve(CUdeviceptr* address, std::size_t size, std::size_t, CUdeviceptr, unsigned long long) {
  void* const data = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(data);
  return CUDA_SUCCESS;
}

CUresult free_address(CUdeviceptr address, std::size_t size) {
  return ::munmap(pointer(address), size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult map(CUdeviceptr address, std::size_t size, std::size_t offset, CUmemGenericAllocationHandle memory,
             unsigned long long) {
  const int file = static_cast<int>(memory);
  struct stat of_file {};
  if (::fstat(file, &of_file) != 0 || offset + size > static_cast<std::size_t>(of_file.st_size))
    return CUDA_ERROR_INVALID_VALUE;
  // Nobody may touch it before access has been set.
  if (::mmap(pointer(address), size, PROT_NONE, MAP_SHARED | MAP_FIXED, file, static_cast<off_t>(offset)) ==
      MAP_FAILED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  MemoryMap::instance().add(pointer(address), {.size = size, .gpu = gpu_of(file), .is_pooled = false});
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr address, std::size_t size) {
  MemoryMap::instance().remove(pointer(address));
  const void* const data = ::mmap(pointer(address), size, PROT_NONE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return data == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr address, std::size_t size, const CUmemAccessDesc*, std::size_t) {
  return ::mprotect(pointer(address), size, PROT_READ | PROT_WRITE) == 0 ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
}

CUresult export_file(void* file, CUmemGenericAllocationHandle memory, CUmemAllocationHandleType,
                     unsigned long long) {
  const int copy = ::dup(static_cast<int>(memory));
  if (copy < 0) return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(file) = copy;
  return CUDA_SUCCESS;
}

CUresult import_file(CUmemGenericAllocationHandle* memory, void* file, CUmemAllocationHandleType) {
  const int copy = ::dup(static_cast<int>(reinterpret_cast<std::intptr_t>(file)));
  if (copy < 0) return CUDA_ERROR_INVALID_VALUE;
  *memory = static_cast<CUmemGenericAllocationHandle>(copy);
  return CUDA_SUCCESS;
}

template <class Function>
void* address_of(Function* function) {
  return reinterpret_cast<void*>(function);
}

}  // namespace

void* driver_function(const char* name) {
  static const std::map<std::string, void*> functions = {
      {"cuGetErrorName", address_of(get_error_name)},
      {"cuGetErrorString", address_of(get_error_string)},
      {"cuCtxGetCurrent", address_of(get_current_context)},
      {"cuPointerGetAttributes", address_of(get_pointer_attributes)},
      {"cuStreamWriteValue32", address_of(write_value)},
      {"cuStreamBatchMemOp", address_of(batch_mem_op)},
      {"cuMemGetAllocationGranularity", address_of(get_granularity)},
      {"cuMemCreate", address_of(create)},
      {"cuMemRelease", address_of(release)},
      {"cuMemAddressReserve", address_of(reserve)},
      {"cuMemAddressFree", address_of(free_address)},
      {"cuMemMap", address_of(map)},
      {"cuMemUnmap", address_of(unmap)},
      {"cuMemSetAccess", address_of(set_access)},
      {"cuMemExportToShareableHandle", address_of(export_file)},
      {"cuMemImportFromShareableHandle", address_of(import_file)}};
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : found->second;
}

}  // namespace tandem::simulated
