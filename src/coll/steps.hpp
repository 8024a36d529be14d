#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

namespace tandem::coll {

// The collectives as steps inside an op that has checked its arguments and agreed already: no agreement of
// their own, the caller's workspace. The public ops are run_collective() around these.

/// The argument checks of the public ops. Errors: kInvalidArgument with the values.
[[nodiscard]] Result<void> check_all_gather(const AllGatherArgs& args, const Group& group,
                                            const Stream& stream);
[[nodiscard]] Result<void> check_reduce_scatter(const ReduceScatterArgs& args, const Group& group,
                                                const Stream& stream);

/// Workspace that the steps need, the same on every rank: of the gathered output, of the whole input.
[[nodiscard]] std::int64_t all_gather_workspace_bytes(const TensorView& output, int world);
[[nodiscard]] std::int64_t reduce_scatter_workspace_bytes(const TensorView& input, int world,
                                                          const Device& device);

// An op after which peers may still read a rank's workspace does not exist: each whose peers do ends with a
// barrier. So none begins with one.

/// In the backend's own way where it has one for this gather. Else publish the own shard, barrier, get the
/// peers' shards (r+1, r+2, ...), barrier. `workspace` may be null when it needs 0 bytes.
[[nodiscard]] Result<void> enqueue_all_gather(const AllGatherArgs& args, symm::Handle* workspace,
                                              Group& group, Stream& stream);
/// Where a scatter's input lies once it is published. An op may make it there.
[[nodiscard]] Result<TensorView> scatter_input(const symm::Handle& workspace, const Dims& sizes, DType dtype);
/// In the backend's own way where it has one for this scatter. Else publish the whole input unless it is
/// scatter_input(), barrier, get every rank's chunk for this rank, barrier, sum in rank order. Where kernels
/// can read memory of peers, the sum reads the chunks where they lie, and the last barrier comes behind it.
[[nodiscard]] Result<void> enqueue_reduce_scatter(const ReduceScatterArgs& args, symm::Handle* workspace,
                                                  Group& group, Stream& stream);

}  // namespace tandem::coll
