#include "coll/cuda/gpus_of_ranks.hpp"

#include "device/cuda/cuda_error.hpp"

namespace tandem::coll::cuda {

Result<cudaUUID_t> name_of_gpu(int gpu) {
  cudaDeviceProp properties = {};
  TANDEM_TRY(
      tandem::cuda::check_cuda("collectives: the GPU's name", cudaGetDeviceProperties(&properties, gpu)));
  return properties.uuid;
}

bool has_each_its_own(std::span<const cudaUUID_t> gpus) {
  for (std::size_t r = 0; r < gpus.size(); ++r) {
    for (std::size_t q = 0; q < r; ++q) {
      if (std::memcmp(&gpus[q], &gpus[r], sizeof(cudaUUID_t)) == 0) return false;
    }
  }
  return true;
}

}  // namespace tandem::coll::cuda
