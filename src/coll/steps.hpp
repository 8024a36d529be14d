#pragma once

#include <cstdint>
#include <optional>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

#include "cost/transfers.hpp"

namespace tandem::coll {

// The collectives as steps inside an op that has checked its arguments and agreed already: no agreement of
// their own, the caller's workspace. The public ops are run_collective() around these.

/// The argument checks of the public ops. Errors: kInvalidArgument with the values.
[[nodiscard]] Result<void> check_all_gather(const AllGatherArgs& args, const Group& group,
                                            const Stream& stream);
[[nodiscard]] Result<void> check_reduce_scatter(const ReduceScatterArgs& args, const Group& group,
                                                const Stream& stream);
[[nodiscard]] Result<void> check_all_reduce(const AllReduceArgs& args, const Stream& stream);

/// Workspace that the steps need, the same on every rank: of the gathered output, of the whole input.
[[nodiscard]] std::int64_t all_gather_workspace_bytes(const TensorView& output, int world,
                                                      const Device& device);
[[nodiscard]] std::int64_t reduce_scatter_workspace_bytes(const TensorView& input, int world,
                                                          const Device& device);
[[nodiscard]] std::int64_t all_reduce_workspace_bytes(const TensorView& input, DType output, int world,
                                                      const Device& device);

using cost::Collective;
/// What a collective of equal parts takes between two products, in microseconds, by a model; nullopt where
/// there is none: on CPUs. `part_bytes`: of the largest shard, or of the largest rank's part of the input. It
/// follows from its arguments and the kind of device alone, so that all ranks find it alike.
[[nodiscard]] std::optional<double> predicted_us(Collective collective, std::int64_t part_bytes, int world,
                                                 const Device& device,
                                                 const cost::GpuRates& gpu = cost::kH200);

/// reduce_stack() over layers of which each rank has one, at the same place of its block, in the order of the
/// ranks. They are read there, once the stream knows that they are made.
struct ReduceRanksArgs {
  const symm::Handle* handle = nullptr;  ///< of the blocks; outlives the sum
  std::int64_t offset_bytes = 0;         ///< from a block's start to the layer, which has out's sizes
  DType dtype = DType::kF32;             ///< of the layers
  TensorView out;                        ///< any strides
  ReduceOp op = ReduceOp::kSum;
  std::optional<TensorView> bias = {};  ///< as in ReduceStackArgs
};
[[nodiscard]] Result<void> reduce_ranks(const ReduceRanksArgs& args, Stream& stream);

// Every op whose peers read a workspace ends with a barrier. So no op needs one at its start.

/// By the first algorithm of the device's list that can run; see algorithms.hpp. `workspace` may be null when
/// it needs 0 bytes.
[[nodiscard]] Result<void> enqueue_all_gather(const AllGatherArgs& args, symm::Handle* workspace,
                                              Group& group, Stream& stream);
/// The same. The input of the other two may lie at the start of the workspace already: an op may make it
/// there.
[[nodiscard]] Result<void> enqueue_reduce_scatter(const ReduceScatterArgs& args, symm::Handle* workspace,
                                                  Group& group, Stream& stream);
[[nodiscard]] Result<void> enqueue_all_reduce(const AllReduceArgs& args, symm::Handle* workspace,
                                              Group& group, Stream& stream);

}  // namespace tandem::coll
