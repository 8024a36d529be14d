#pragma once

#include "coll/algorithms.hpp"
#include "coll/gpu_models.hpp"

namespace tandem::coll::cuda {

/// Those of GPUs.
[[nodiscard]] AlgorithmLists algorithms();

extern const GatherAlgorithm kGatherByMailboxes;
extern const ScatterAlgorithm kScatterByMailboxes;
extern const AllReduceAlgorithm kAllReduceByMailboxes;
extern const GatherAlgorithm kPublishedGather;
extern const GatherAlgorithm kGatherByNccl;

// For entries.

/// Whether so many ranks may have mailboxes.
[[nodiscard]] Answer may_have_mailboxes(const Problem& problem);
/// Collective at the group's first call; see mailboxes_of().
[[nodiscard]] Result<Answer> connect_mailboxes(const Problem& problem, Group& group, Stream& stream);

}  // namespace tandem::coll::cuda
