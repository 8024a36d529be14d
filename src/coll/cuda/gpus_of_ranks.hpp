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
Result<std::vector<T>> exchange(const T& mine, Group& group, std::string_view what) {
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

/// The name of GPU number `gpu` of this process, in all processes the same.
[[nodiscard]] Result<cudaUUID_t> name_of_gpu(int gpu);

/// Of the GPUs of all ranks, whether no two are one.
[[nodiscard]] bool has_each_its_own(std::span<const cudaUUID_t> gpus);

}  // namespace tandem::coll::cuda
