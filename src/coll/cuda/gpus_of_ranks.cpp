#include "coll/cuda/gpus_of_ranks.hpp"

#include <algorithm>
#include <cstring>

#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"

namespace tandem::coll::cuda {

Result<Place> place_of(int gpu) {
  cudaDeviceProp properties = {};
  TANDEM_TRY(tandem::cuda::check_cuda("collectives: which GPU", cudaGetDeviceProperties(&properties, gpu)));
  return Place{properties.uuid, properties.multiProcessorCount};
}

int num_ranks_on(const Place& place, std::span<const Place> places) {
  return static_cast<int>(std::count_if(places.begin(), places.end(), [&](const Place& other) {
    return std::memcmp(&place.gpu, &other.gpu, sizeof(cudaUUID_t)) == 0;
  }));
}

bool has_each_its_own(std::span<const Place> places) {
  return std::all_of(places.begin(), places.end(),
                     [&](const Place& place) { return num_ranks_on(place, places) == 1; });
}

}  // namespace tandem::coll::cuda
