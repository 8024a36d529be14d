#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::coll::cuda {

/// What every rank says, by rank. Collective.
template <class T>
Result<std::vector<T>> told_by_all(const T& mine, Group& group, std::string_view what) {
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

/// A rank's GPU, in all processes the same.
struct Place {
  cudaUUID_t gpu = {};
  int num_multiprocessors = 0;
};
/// Of GPU number `gpu` of this process.
[[nodiscard]] Result<Place> place_of(int gpu);

/// How many of the ranks, whose places these are, have that GPU.
[[nodiscard]] int num_ranks_on(const Place& place, std::span<const Place> places);
/// Whether no two ranks share a GPU.
[[nodiscard]] bool has_each_its_own(std::span<const Place> places);

}  // namespace tandem::coll::cuda
