#pragma once

#include <cstring>
#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <type_traits>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::bootstrap {

/// What every rank says, by rank. Collective.
template <class T>
Result<std::vector<T>> told_by_all(const T& mine, Group& group, std::string_view what) {
  static_assert(std::is_trivially_copyable_v<T>);
  TANDEM_ASSIGN(const auto gathered, group.all_gather(std::as_bytes(std::span(&mine, 1)), what));
  std::vector<T> all(gathered.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (gathered[r].size() != sizeof(T)) {
      return failf(ErrorCode::kMismatch, "{}: rank {} sent {} bytes, need {}", what, r, gathered[r].size(),
                   sizeof(T));
    }
    std::memcpy(&all[r], gathered[r].data(), sizeof(T));
  }
  return all;
}

}  // namespace tandem::bootstrap
