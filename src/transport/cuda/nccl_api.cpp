#include "transport/cuda/nccl_api.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::transport::cuda {
namespace {

/// The first whose communicators need not block.
constexpr int kOldestVersion = NCCL_VERSION(2, 14, 0);

Result<void> find_all(const SharedLibrary& library, NcclApi& api) {
  TANDEM_TRY(library.find("ncclGetVersion", api.get_version));
  TANDEM_TRY(library.find("ncclGetErrorString", api.get_error_string));
  TANDEM_TRY(library.find("ncclGetUniqueId", api.get_unique_id));
  TANDEM_TRY(library.find("ncclCommInitRankConfig", api.comm_init_rank_config));
  TANDEM_TRY(library.find("ncclCommGetAsyncError", api.comm_get_async_error));
  TANDEM_TRY(library.find("ncclCommFinalize", api.comm_finalize));
  TANDEM_TRY(library.find("ncclCommDestroy", api.comm_destroy));
  TANDEM_TRY(library.find("ncclCommAbort", api.comm_abort));
  TANDEM_TRY(library.find("ncclAllGather", api.all_gather));
  TANDEM_TRY(library.find("ncclGroupStart", api.group_start));
  TANDEM_TRY(library.find("ncclGroupEnd", api.group_end));
  TANDEM_TRY(library.find("ncclSend", api.send));
  return library.find("ncclRecv", api.recv);
}

Result<std::unique_ptr<NcclApi>> load_from(const std::optional<std::string>& path) {
  TANDEM_ASSIGN(const SharedLibrary library, SharedLibrary::load({.name = "NCCL",
                                                                  .soname = "libnccl.so.2",
                                                                  .variable = "TANDEM_NCCL_LIBRARY",
                                                                  .path = path,
                                                                  .folders = nvidia_library_folders()}));
  auto api = std::make_unique<NcclApi>();
  TANDEM_TRY(find_all(library, *api));
  TANDEM_TRY(api->check("version", api->get_version(&api->version)));
  const int version = api->version;
  api->report = {"NCCL", library.path(),
                 fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100)};
  if (version >= kOldestVersion) return api;
  return failf(ErrorCode::kUnsupported, "{} is NCCL {}, need 2.14 or later", library.path(),
               api->report.version);
}

}  // namespace

Result<const NcclApi*> NcclApi::load(const Config& config) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<NcclApi>> loaded;
  const std::lock_guard lock(mutex);
  std::unique_ptr<NcclApi>& api = loaded[config.nccl_library.value_or("")];
  if (!api) {
    TANDEM_ASSIGN(api, load_from(config.nccl_library));
  }
  return api.get();
}

Result<void> NcclApi::check(std::string_view what, ncclResult_t result) const {
  if (result == ncclSuccess) return {};
  return fail(ErrorCode::kDriver, fmt::format("NCCL: {}: {}", what, get_error_string(result)), result);
}

}  // namespace tandem::transport::cuda
