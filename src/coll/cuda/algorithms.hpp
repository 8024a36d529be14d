#pragma once

#include "coll/algorithms.hpp"

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
/// By cost::collective_us(), which has one model for mailboxes and one for what is larger.
[[nodiscard]] double gather_us(const Problem& problem, const cost::GpuRates& gpu);
[[nodiscard]] double scatter_us(const Problem& problem, const cost::GpuRates& gpu);
[[nodiscard]] double all_reduce_us(const Problem& problem, const cost::GpuRates& gpu);

}  // namespace tandem::coll::cuda
