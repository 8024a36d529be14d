#include "coll/cuda/published_gather.hpp"

#include <optional>

#include "base/try.hpp"
#include "coll/cuda/gather_kernel.hpp"
#include "coll/cuda/grid_barrier.hpp"
#include "coll/cuda/mailboxes.hpp"
#include "coll/cuda/vectors.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tandem::coll::cuda {

Result<bool> published_gather(const AllGatherArgs& args, const EndBarrier& end, Stream& stream) {
  const int world = end.group.size();
  const std::int64_t shard_bytes = args.output.size_bytes() / world;
  if (world == 1 || args.output.size(0) % world != 0 || shard_bytes % kVectorBytes != 0) return false;
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "all_gather"));
  TANDEM_ASSIGN(const std::optional<Mailboxes> boxes, mailboxes_of(end.group, *on));
  if (!boxes) return false;
  TANDEM_ASSIGN(const GridBarrier at_end, grid_barrier_of(end, *on));
  PublishedGather gather{.shard = args.input.data,
                         .out = args.output.data,
                         .shard_bytes = shard_bytes,
                         .by_vectors = is_aligned(args.input.data) && is_aligned(args.output.data)};
  for (int q = 0; q < world; ++q) {
    TANDEM_ASSIGN(const TensorView published,
                  end.workspace.get_buffer(q, args.input.sizes, args.input.dtype));
    gather.published[q] = published.data;
  }
  TANDEM_TRY(on->enqueue("all_gather", tandem::cuda::Waits::kForPeers, [&](cudaStream_t native) {
    return launch_published_gather(gather, *boxes, at_end, native);
  }));
  return true;
}

}  // namespace tandem::coll::cuda
