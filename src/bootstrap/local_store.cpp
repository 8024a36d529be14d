#include <tandem/bootstrap/local_store.hpp>

namespace tandem {

class LocalStoreServer::Impl {};

LocalStoreServer::~LocalStoreServer() = default;

Result<std::unique_ptr<LocalStoreServer>> LocalStoreServer::create() {
  return fail(ErrorCode::kUnsupported, "local store: being built");
}

std::shared_ptr<Store> LocalStoreServer::local() const { return nullptr; }

Result<LocalStoreAddress> LocalStoreServer::listen(int /*expected_clients*/) {
  return fail(ErrorCode::kUnsupported, "local store: being built");
}

Result<std::shared_ptr<Store>> open_local_store(const LocalStoreAddress& /*address*/, Deadline /*deadline*/) {
  return fail(ErrorCode::kUnsupported, "local store: being built");
}

}  // namespace tandem
