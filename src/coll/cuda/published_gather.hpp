#pragma once

#include <tandem/base/error.hpp>
#include <tandem/coll/collectives.hpp>

#include "coll/backend.hpp"

namespace tandem::coll::cuda {

/// Enqueues a gather of equal shards of whole vectors by one kernel: each rank publishes its shard in its
/// workspace, and reads the others' where they lie. False, on every rank, for others, and where there are no
/// mailboxes.
[[nodiscard]] Result<bool> published_gather(const AllGatherArgs& args, const EndBarrier& end, Stream& stream);

}  // namespace tandem::coll::cuda
