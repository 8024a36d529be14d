#include <tandem/bootstrap/store.hpp>

#include "base/format.hpp"

namespace tandem {

Result<void> Store::set_file(std::string_view key, int /*fd*/) {
  return failf(ErrorCode::kUnsupported, "store: cannot carry the file '{}': ask carries_files() first", key);
}

Result<UniqueFd> Store::get_file(std::string_view key, Deadline /*deadline*/) {
  return failf(ErrorCode::kUnsupported, "store: cannot carry the file '{}': ask carries_files() first", key);
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep the object
Result<void> Store::set_object(std::string_view key, std::shared_ptr<void> /*object*/) {
  return failf(ErrorCode::kUnsupported, "store: cannot carry the object '{}': ask carries_objects() first",
               key);
}

Result<std::shared_ptr<void>> Store::get_object(std::string_view key, Deadline /*deadline*/) {
  return failf(ErrorCode::kUnsupported, "store: cannot carry the object '{}': ask carries_objects() first",
               key);
}

}  // namespace tandem
