#include "device/cuda/driver_api.hpp"

#include <cuda_runtime_api.h>

#include "base/format.hpp"

namespace tandem::cuda {
namespace {

constexpr unsigned kVersion = 12000;  // of the functions' forms, not of the driver

template <class Function>
void look_up(const char* name, Function& function, std::string& missing) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &address, kVersion, cudaEnableDefault, &found);
  if (code == cudaSuccess && found == cudaDriverEntryPointSuccess) {
    function = reinterpret_cast<Function>(address);
    return;
  }
  static_cast<void>(cudaGetLastError());
  if (missing.empty()) missing = fmt::format("{}: {}", name, cudaGetErrorString(code));
}

struct Loaded {
  DriverApi api;
  std::string missing;

  Loaded() {
    look_up("cuGetErrorName", api.get_error_name, missing);
    look_up("cuGetErrorString", api.get_error_string, missing);
    look_up("cuCtxGetCurrent", api.ctx_get_current, missing);
    look_up("cuPointerGetAttributes", api.pointer_get_attributes, missing);
    look_up("cuStreamWriteValue32", api.stream_write_value32, missing);
    look_up("cuStreamBatchMemOp", api.stream_batch_mem_op, missing);
    look_up("cuMemGetAllocationGranularity", api.mem_get_allocation_granularity, missing);
    look_up("cuMemCreate", api.mem_create, missing);
    look_up("cuMemRelease", api.mem_release, missing);
    look_up("cuMemAddressReserve", api.mem_address_reserve, missing);
    look_up("cuMemAddressFree", api.mem_address_free, missing);
    look_up("cuMemMap", api.mem_map, missing);
    look_up("cuMemUnmap", api.mem_unmap, missing);
    look_up("cuMemSetAccess", api.mem_set_access, missing);
    look_up("cuMemExportToShareableHandle", api.mem_export_to_shareable_handle, missing);
    look_up("cuMemImportFromShareableHandle", api.mem_import_from_shareable_handle, missing);
  }
};

}  // namespace

Result<const DriverApi*> DriverApi::load() {
  static const Loaded loaded;
  if (loaded.missing.empty()) return &loaded.api;
  return failf(ErrorCode::kUnsupported, "no usable CUDA driver: {}", loaded.missing);
}

Result<void> DriverApi::check(std::string_view what, CUresult code) const {
  if (code == CUDA_SUCCESS) return {};
  const char* name = "?";
  const char* text = "?";
  get_error_name(code, &name);
  get_error_string(code, &text);
  const ErrorCode kind = code == CUDA_ERROR_OUT_OF_MEMORY ? ErrorCode::kOutOfMemory : ErrorCode::kDriver;
  return fail(kind, fmt::format("{}: {}: {}", what, name, text), code);
}

}  // namespace tandem::cuda
