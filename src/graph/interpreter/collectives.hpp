#pragma once

#include <optional>
#include <tandem/coll/collectives.hpp>

#include "graph/interpreter/call.hpp"

namespace tandem::graph::interpreter {

// Serial collectives along any dim: every rank blocks until its result is there.

/// The shards of all ranks along `dim`, each as large as this rank's. With `size`, the first so many of that.
[[nodiscard]] Result<HostTensor> gather(const HostTensor& shard, int dim, const Ranks& ranks,
                                        std::optional<std::int64_t> size = std::nullopt);
/// This rank's part, along `dim`, of the sum or mean over the ranks: f32 sums in rank order, one rounding.
/// A short part is padded().
[[nodiscard]] Result<HostTensor> reduce_scatter(const HostTensor& partial, int dim, coll::ReduceOp op,
                                                const Ranks& ranks);

/// A part along `dim` with rows of zeros behind it, as many as a full shard of `size` has.
[[nodiscard]] Result<HostTensor> padded(const HostTensor& part, int dim, std::int64_t size,
                                        const Ranks& ranks);

/// The same of all of it, for every rank.
[[nodiscard]] Result<HostTensor> all_reduce(const HostTensor& partial, coll::ReduceOp op, const Ranks& ranks);

/// "sum" or "avg". Errors: kUnsupported for another.
[[nodiscard]] Result<coll::ReduceOp> reduce_op_of(std::string_view name);
/// Refuses a collective of other ranks than those that run the program.
[[nodiscard]] Result<void> check_group(const Call& call, std::size_t group);

}  // namespace tandem::graph::interpreter
