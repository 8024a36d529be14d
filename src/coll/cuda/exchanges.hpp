#pragma once

#include <tandem/base/error.hpp>
#include <tandem/coll/collectives.hpp>

#include "coll/backend.hpp"

namespace tandem::coll::cuda {

// Collectives of what fits into mailboxes; see Backend for what they promise.

[[nodiscard]] Result<bool> exchange_gather(const AllGatherArgs& args, const EndBarrier& end, Stream& stream);
[[nodiscard]] Result<bool> exchange_sum(const ReduceScatterArgs& args, Group& group, Stream& stream);

}  // namespace tandem::coll::cuda
