#include "gemm/cuda/cublaslt_api.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "gemm/cuda/library_report.hpp"

namespace tandem::gemm::cuda {
namespace {

constexpr int kMajorVersion = CUBLAS_VER_MAJOR;

Result<void> find_all(const SharedLibrary& library, CublasLtApi& api) {
  TANDEM_TRY(library.find("cublasLtCreate", api.create));
  TANDEM_TRY(library.find("cublasLtGetProperty", api.get_property));
  TANDEM_TRY(library.find("cublasLtGetStatusName", api.get_status_name));
  TANDEM_TRY(library.find("cublasLtMatmul", api.matmul));
  TANDEM_TRY(library.find("cublasLtMatmulAlgoGetHeuristic", api.get_heuristic));
  TANDEM_TRY(library.find("cublasLtMatmulDescCreate", api.desc_create));
  TANDEM_TRY(library.find("cublasLtMatmulDescDestroy", api.desc_destroy));
  TANDEM_TRY(library.find("cublasLtMatmulDescSetAttribute", api.desc_set));
  TANDEM_TRY(library.find("cublasLtMatrixLayoutCreate", api.layout_create));
  TANDEM_TRY(library.find("cublasLtMatrixLayoutDestroy", api.layout_destroy));
  TANDEM_TRY(library.find("cublasLtMatmulPreferenceCreate", api.preference_create));
  TANDEM_TRY(library.find("cublasLtMatmulPreferenceDestroy", api.preference_destroy));
  return library.find("cublasLtMatmulPreferenceSetAttribute", api.preference_set);
}

Result<std::unique_ptr<CublasLtApi>> load_from(const std::optional<std::string>& path) {
  const std::string soname = fmt::format("libcublasLt.so.{}", kMajorVersion);
  TANDEM_ASSIGN(const SharedLibrary library, SharedLibrary::load({.name = "cuBLASLt",
                                                                  .soname = soname,
                                                                  .variable = "TANDEM_CUBLASLT_LIBRARY",
                                                                  .path = path,
                                                                  .folders = nvidia_library_folders()}));
  auto api = std::make_unique<CublasLtApi>();
  TANDEM_TRY(find_all(library, *api));
  int version[3] = {};
  for (const auto part : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL}) {
    TANDEM_TRY(api->check("version", api->get_property(part, &version[part])));
  }
  api->report = {"cuBLASLt", library.path(), fmt::format("{}.{}.{}", version[0], version[1], version[2])};
  if (version[0] == kMajorVersion) return api;
  return failf(ErrorCode::kUnsupported, "{} is cuBLASLt {}, need {}.x", library.path(), api->report.version,
               kMajorVersion);
}

}  // namespace

Result<const CublasLtApi*> CublasLtApi::load(const Config& config) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<CublasLtApi>> loaded;
  const std::lock_guard lock(mutex);
  std::unique_ptr<CublasLtApi>& api = loaded[config.cublaslt_library.value_or("")];
  if (!api) {
    TANDEM_ASSIGN(api, load_from(config.cublaslt_library));
  }
  return api.get();
}

Result<void> CublasLtApi::check(std::string_view what, cublasStatus_t status) const {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  return fail(ErrorCode::kDriver, fmt::format("cuBLASLt: {}: {}", what, get_status_name(status)), status);
}

Result<cublasLtHandle_t> shared_handle(const CublasLtApi& api, int index) {
  static std::mutex mutex;
  static std::map<std::pair<const CublasLtApi*, int>, cublasLtHandle_t> handles;
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[{&api, index}];
  if (handle == nullptr) TANDEM_TRY(api.check("create", api.create(&handle)));
  return handle;
}

Result<LibraryReport> library_report(const Config& config) {
  TANDEM_ASSIGN(const CublasLtApi* const api, CublasLtApi::load(config));
  return api->report;
}

}  // namespace tandem::gemm::cuda
