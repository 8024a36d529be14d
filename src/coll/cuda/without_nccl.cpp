// In place of nccl_all_gather.cpp where the compiler has no nccl.h.
#include "coll/cuda/algorithms.hpp"

namespace tandem::coll::cuda {
namespace {

Answer can_run(const Problem&, const Device&) {
  return Answer::no("this build was made without NCCL's header");
}

}  // namespace

const GatherAlgorithm kGatherByNccl = {
    .name = "nccl", .can_run = &can_run, .workspace_bytes = &one_part_bytes, .run = nullptr};

}  // namespace tandem::coll::cuda
