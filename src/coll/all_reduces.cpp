#include <algorithm>
#include <tandem/base/shard.hpp>

#include "base/alignment.hpp"
#include "base/try.hpp"
#include "coll/algorithms.hpp"
#include "coll/steps.hpp"
#include "timeline/timeline_impl.hpp"

namespace tandem::coll {
namespace {

// Of wholes: publish the input, unless an op has made it at the start of the workspace; barrier; get every
// rank's input; barrier; sum in rank order. Each rank sums all of it.

// About where the barriers of a gather take longer than the copies and sums that it saves; not measured.
constexpr std::int64_t kMostWholeBytes = 64 * 1024;
constexpr std::int64_t kStackAlignment = 64;

Answer is_small(const Problem& problem, const Device&) {
  return problem.whole_bytes <= kMostWholeBytes ? Answer::yes() : Answer::no("the input is large");
}

/// The input, and behind it a stack of all ranks' inputs.
std::int64_t input_and_stack_bytes(const Problem& problem, const Device&) {
  return aligned(problem.whole_bytes, kStackAlignment) + problem.world * problem.whole_bytes;
}

Result<void> sum_wholes(const AllReduceArgs& args, const EndBarrier& end, Stream& stream) {
  const timeline::Parts parts(end.group, stream);
  symm::Handle& workspace = end.workspace;
  const TensorView& input = args.input;
  const int rank = workspace.rank();
  const int world = workspace.world_size();
  TANDEM_ASSIGN(const TensorView published, workspace.get_buffer(rank, input.sizes, input.dtype));
  if (input.data != published.data) TANDEM_TRY(stream.copy(input, published));
  TANDEM_TRY(parts.copied("publish", input.size_bytes()));
  TANDEM_TRY(workspace.barrier(stream, end.channel + 1));  // all inputs are published
  TANDEM_TRY(parts.met(end.channel + 1));
  Dims stack_sizes = input.sizes;
  stack_sizes.insert(0, world);
  TANDEM_ASSIGN(const TensorView stack,
                workspace.get_buffer(rank, stack_sizes, input.dtype,
                                     aligned(input.size_bytes(), kStackAlignment) / size_bytes(input.dtype)));
  for (int step = 1; step <= world; ++step) {
    const int source = (rank + step) % world;
    TANDEM_TRY(workspace.get(stream, stack.select(0, source), source));
    TANDEM_TRY(parts.got(source, input.size_bytes()));
  }
  TANDEM_TRY(workspace.barrier(stream, end.channel));  // peers may use the workspace again
  TANDEM_TRY(parts.met(end.channel));
  TANDEM_TRY(reduce_stack({.stack = stack, .out = args.output, .op = args.op, .bias = args.bias}, stream));
  return parts.summed();
}

// Of parts: a reduce-scatter into the own rows of the output, and an all-gather of those.

std::int64_t bytes_of_both(const Problem& problem, const Device& device) {
  Problem gather = problem;
  gather.whole_bytes = problem.whole_bytes / problem.element_bytes * problem.out_element_bytes;
  gather.part_bytes = problem.part_bytes / problem.element_bytes * problem.out_element_bytes;
  const AlgorithmLists all = algorithms_of(device);
  return std::max(workspace_bytes(all.scatter, problem, device), workspace_bytes(all.gather, gather, device));
}

Result<void> scatter_and_gather(const AllReduceArgs& args, const EndBarrier& end, Stream& stream) {
  const Shard own = shard_of(args.output.size(0), end.group.size(), end.group.rank());
  const TensorView rows = args.output.narrow(0, own.offset, own.size);
  std::optional<TensorView> bias = args.bias;
  if (bias && args.output.dim() == 1) bias = bias->narrow(0, own.offset, own.size);
  TANDEM_TRY(
      enqueue_reduce_scatter({.input = args.input, .output = rows, .op = args.op, .bias = std::move(bias)},
                             &end.workspace, end.group, stream));
  return enqueue_all_gather({.input = rows, .output = args.output}, &end.workspace, end.group, stream);
}

}  // namespace

const AllReduceAlgorithm kAllReduceOfWholes = {
    .name = "wholes", .can_run = &is_small, .workspace_bytes = &input_and_stack_bytes, .run = &sum_wholes};
const AllReduceAlgorithm kAllReduceOfParts = {
    .name = "parts", .can_run = &always, .workspace_bytes = &bytes_of_both, .run = &scatter_and_gather};

}  // namespace tandem::coll
