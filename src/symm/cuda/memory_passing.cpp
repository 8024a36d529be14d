#include "symm/cuda/memory_passing.hpp"

#include "base/try.hpp"
#include "symm/cuda/segment.hpp"

namespace tandem::symm::cuda {

Result<void> try_memory_passing(int gpu) {
  TANDEM_ASSIGN(const auto internal, tandem::cuda::InternalStream::of(gpu));
  TANDEM_ASSIGN(const auto mine, Segment::create(gpu, 1, *internal));
  TANDEM_ASSIGN(const UniqueFd file, mine->export_file());
  TANDEM_ASSIGN(const auto theirs, Segment::import(gpu, file, mine->name()));
  return theirs->allow_access(gpu);
}

}  // namespace tandem::symm::cuda
