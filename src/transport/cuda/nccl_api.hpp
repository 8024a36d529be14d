#pragma once

#include <nccl.h>

#include <string>
#include <string_view>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>

#include "base/shared_library.hpp"

namespace tandem::transport::cuda {

/// The functions of NCCL that are called here, looked up at run time: nothing links the library.
struct NcclApi {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  int version = 0;  ///< NCCL_VERSION_CODE
  LibraryReport report;

  /// Loaded once a process and path, for as long as the process lives. Errors: kUnsupported.
  [[nodiscard]] static Result<const NcclApi*> load(const Config& config);

  /// Ok, or kDriver with the library's text of the result.
  [[nodiscard]] Result<void> check(std::string_view what, ncclResult_t result) const;
};

}  // namespace tandem::transport::cuda
