#pragma once

#include <cublasLt.h>

#include <string>
#include <string_view>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>

#include "base/shared_library.hpp"

namespace tandem::gemm::cuda {

/// The functions of cuBLASLt that are called here, looked up at run time: nothing links the library.
struct CublasLtApi {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtGetProperty) get_property = nullptr;
  decltype(&cublasLtGetStatusName) get_status_name = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  LibraryReport report;

  /// Loaded once a process and path, for as long as the process lives. Errors: kUnsupported, also for another
  /// major version than the one whose header this was compiled with.
  [[nodiscard]] static Result<const CublasLtApi*> load(const Config& config);

  /// Ok, or kDriver with the library's name of the status.
  [[nodiscard]] Result<void> check(std::string_view what, cublasStatus_t status) const;
};

/// The handle of GPU `index`, which must be current. One a process and GPU, shared by all devices on it and
/// never destroyed: destroying one waits for the whole GPU, where another rank's kernel may wait for us.
[[nodiscard]] Result<cublasLtHandle_t> shared_handle(const CublasLtApi& api, int index);

}  // namespace tandem::gemm::cuda
