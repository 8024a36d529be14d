#pragma once

#include <optional>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/store.hpp>

namespace tandem::bootstrap {

// How a rank's error travels to the launcher: through the job's store.

/// An error as a store carries it; its text is cut where it is too long.
[[nodiscard]] Store::Bytes to_bytes(const Error& error);
/// Nothing if these bytes are no error.
[[nodiscard]] std::optional<Error> error_of(const Store::Bytes& bytes);

[[nodiscard]] Result<void> write_failure(Store& store, int rank, const Error& error);
/// Nothing if the rank has not reported one.
[[nodiscard]] std::optional<Error> read_failure(Store& store, int rank);

}  // namespace tandem::bootstrap
