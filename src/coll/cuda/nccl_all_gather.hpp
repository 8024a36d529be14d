#pragma once

#include <tandem/base/error.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/stream.hpp>

#include "coll/backend.hpp"

namespace tandem::coll::cuda {

/// Enqueues the gather by NCCL, behind a barrier of the ranks: its kernels have no deadline, so a rank that
/// does not come has to be noticed before. False where there is none for it: unequal shards, ranks that share
/// a GPU, a rank without the library. The answer is the same on every rank. The group's first gather blocks
/// the host while its communicator is made; a gather that is captured before there is one gets false.
[[nodiscard]] Result<bool> nccl_all_gather(const AllGatherArgs& args, const EndBarrier& end, Stream& stream);

}  // namespace tandem::coll::cuda
