#pragma once

#include <cuda.h>

#include <string_view>
#include <tandem/base/error.hpp>

namespace tandem::cuda {

/// The driver's functions that the leaves call, looked up at run time: nothing links libcuda, so a program
/// starts on a machine that has no driver.
struct DriverApi {
  decltype(&cuGetErrorName) get_error_name = nullptr;
  decltype(&cuGetErrorString) get_error_string = nullptr;
  decltype(&cuCtxGetCurrent) ctx_get_current = nullptr;
  decltype(&cuPointerGetAttributes) pointer_get_attributes = nullptr;
  decltype(&cuStreamWriteValue32) stream_write_value32 = nullptr;
  decltype(&cuStreamBatchMemOp) stream_batch_mem_op = nullptr;
  decltype(&cuMemGetAllocationGranularity) mem_get_allocation_granularity = nullptr;
  decltype(&cuMemCreate) mem_create = nullptr;
  decltype(&cuMemRelease) mem_release = nullptr;
  decltype(&cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&cuMemAddressFree) mem_address_free = nullptr;
  decltype(&cuMemMap) mem_map = nullptr;
  decltype(&cuMemUnmap) mem_unmap = nullptr;
  decltype(&cuMemSetAccess) mem_set_access = nullptr;
  decltype(&cuMemExportToShareableHandle) mem_export_to_shareable_handle = nullptr;
  decltype(&cuMemImportFromShareableHandle) mem_import_from_shareable_handle = nullptr;

  /// Looked up once a process. Errors: kUnsupported when there is no driver, or none that has them all.
  [[nodiscard]] static Result<const DriverApi*> load();

  /// Ok, or kDriver (kOutOfMemory) with the name and text of the driver's code.
  [[nodiscard]] Result<void> check(std::string_view what, CUresult code) const;
};

}  // namespace tandem::cuda
