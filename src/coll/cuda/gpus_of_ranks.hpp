#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <tandem/base/error.hpp>

namespace tandem::coll::cuda {

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
