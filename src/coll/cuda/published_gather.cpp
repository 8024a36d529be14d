#include <optional>

#include "base/try.hpp"
#include "coll/cuda/algorithms.hpp"
#include "coll/cuda/gather_kernel.hpp"
#include "coll/cuda/grid_barrier.hpp"
#include "coll/cuda/mailboxes.hpp"
#include "coll/cuda/vectors.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tandem::coll::cuda {
namespace {

Answer can_run(const Problem& problem, const Device&) {
  if (const Answer may = may_have_mailboxes(problem); !may) return may;
  if (!problem.has_equal_parts) return Answer::no("the shards are not equal");
  if (problem.part_bytes % kVectorBytes != 0) return Answer::no("the shards are not whole 16 bytes");
  return Answer::yes();
}

/// By one kernel: each rank publishes its shard in its workspace, and reads the others' where they lie.
Result<void> run(const GatherCall& args, const EndBarrier& end, Stream& stream) {
  const int world = end.group.size();
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "all_gather"));
  TANDEM_ASSIGN(const std::optional<Mailboxes> boxes, mailboxes_of(end.group, *on));
  TANDEM_ASSIGN(const GridBarrier at_end, grid_barrier_of(end, *on));
  PublishedGather gather{.shard = args.input.data,
                         .out = args.output.data,
                         .shard_bytes = args.input.size_bytes(),
                         .by_vectors = is_aligned(args.input.data) && is_aligned(args.output.data)};
  for (int q = 0; q < world; ++q) {
    TANDEM_ASSIGN(const TensorView published,
                  end.workspace.get_buffer(q, args.input.sizes, args.input.dtype));
    gather.published[q] = published.data;
  }
  return on->enqueue("all_gather", tandem::cuda::Waits::kForPeers, [&](cudaStream_t native) {
    return launch_published_gather(gather, *boxes, at_end, native);
  });
}

}  // namespace

const GatherAlgorithm kPublishedGather = {.name = "published",
                                          .can_run = &can_run,
                                          .connect = &connect_mailboxes,
                                          .workspace_bytes = &one_part_bytes,
                                          .predicted_us = &gather_us,
                                          .run = &run};

}  // namespace tandem::coll::cuda
