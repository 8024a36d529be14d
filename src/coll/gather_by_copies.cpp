#include <tandem/base/shard.hpp>

#include "base/try.hpp"
#include "coll/algorithms.hpp"

namespace tandem::coll {
namespace {

/// Publish the own shard, barrier, get the peers' shards (r+1, r+2, ...), barrier.
Result<void> run(const AllGatherArgs& args, const EndBarrier& end, Stream& stream) {
  symm::Handle& workspace = end.workspace;
  const int rank = workspace.rank();
  const int world = workspace.world_size();
  TANDEM_ASSIGN(const TensorView published, workspace.get_buffer(rank, args.input.sizes, args.input.dtype));
  TANDEM_TRY(stream.copy(args.input, published));
  TANDEM_TRY(workspace.barrier(stream, end.channel + 1));  // all are published
  const auto part_of = [&](int q) {
    const Shard part = shard_of(args.output.size(0), world, q);
    return args.output.narrow(0, part.offset, part.size);
  };
  for (int step = 1; step < world; ++step) {
    const int source = (rank + step) % world;
    const TensorView part = part_of(source);
    if (part.numel() > 0) TANDEM_TRY(workspace.get(stream, part, source));
  }
  TANDEM_TRY(stream.copy(args.input, part_of(rank)));
  return workspace.barrier(stream, end.channel);  // peers may use the workspace again
}

}  // namespace

const GatherAlgorithm kGatherByCopies = {
    .name = "copies", .can_run = &always, .workspace_bytes = &one_part_bytes, .run = &run};

}  // namespace tandem::coll
