#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <tandem/base/shard.hpp>

#include "base/row_bytes.hpp"
#include "base/try.hpp"
#include "coll/backend.hpp"
#include "coll/cuda/algorithms.hpp"
#include "coll/cuda/exchange_kernels.hpp"
#include "coll/cuda/layer_sum.hpp"
#include "coll/cuda/mailboxes.hpp"
#include "coll/cuda/vectors.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tandem::coll::cuda {
namespace {

using tandem::cuda::CudaStream;
using tandem::cuda::Waits;

/// The ranks' parts of `whole`, by rows.
void cut(const TensorView& whole, std::span<Part> parts) {
  const std::int64_t one_row = row_bytes(whole);
  const auto world = static_cast<int>(parts.size());
  for (int q = 0; q < world; ++q) {
    const Shard rows = shard_of(whole.size(0), world, q);
    parts[static_cast<std::size_t>(q)] = {rows.offset * one_row, rows.size * one_row};
  }
}

bool are_vectors(std::span<const Part> parts) {
  return std::all_of(parts.begin(), parts.end(), [](const Part& part) {
    return part.begin % kVectorBytes == 0 && part.size % kVectorBytes == 0;
  });
}

Answer fits_mailboxes(const Problem& problem, const Device&) {
  if (const Answer may = may_have_mailboxes(problem); !may) return may;
  if (problem.part_bytes > Mailboxes::kMostBytes) return Answer::no("a part is larger than the mailboxes");
  return Answer::yes();
}

Result<Answer> connect(const Problem& problem, Group& group, Stream& stream) {
  TANDEM_ASSIGN(CudaStream* const on, tandem::cuda::cuda_stream(stream, "mailboxes"));
  TANDEM_ASSIGN(const std::optional<Mailboxes> boxes, mailboxes_of(group, *on));
  if (!boxes) return Answer::no("the group has no mailboxes");
  if (problem.part_bytes > boxes->max_bytes()) return Answer::no("a part is larger than the mailboxes");
  return Answer::yes();
}

std::int64_t no_bytes(const Problem&, const Device&) {
  return 0;
}

/// Every rank sums everything: the whole is the part of each.
Problem exchange_of_wholes(Problem problem) {
  problem.part_bytes = problem.whole_bytes;
  return problem;
}

/// Not where a scatter and a gather, of which each starts later but carries less, take less. By the
/// reference machine's rates: all ranks have to find the same.
Answer fits_mailboxes_whole(const Problem& problem, const Device& device) {
  const Problem exchange = exchange_of_wholes(problem);
  if (const Answer fits = fits_mailboxes(exchange, device); !fits) return fits;
  if (scatter_us(exchange, cost::kH200) > scatter_us(problem, cost::kH200) + gather_us(problem, cost::kH200))
    return Answer::no("a scatter and a gather take less");
  return Answer::yes();
}

Result<Answer> connect_whole(const Problem& problem, Group& group, Stream& stream) {
  return connect(exchange_of_wholes(problem), group, stream);
}

Result<void> exchange_gather(const GatherCall& args, const EndBarrier& end, Stream& stream) {
  TANDEM_ASSIGN(CudaStream* const on, tandem::cuda::cuda_stream(stream, "all_gather"));
  TANDEM_ASSIGN(const std::optional<Mailboxes> boxes, mailboxes_of(end.group, *on));
  ExchangedGather gather{.shard = args.input.data, .out = args.output.data};
  const std::span parts = std::span(gather.parts).first(static_cast<std::size_t>(end.group.size()));
  cut(args.output, parts);
  gather.by_vectors = are_vectors(parts) && is_aligned(gather.shard) && is_aligned(gather.out);
  return on->enqueue("all_gather", Waits::kForPeers, [&](cudaStream_t native) {
    return launch_exchanged_gather(
        gather, *boxes,
        cut_into_pieces(largest_part_bytes(args.output, boxes->ranks.world_size), boxes->num_pieces), native);
  });
}

/// The sum of what all ranks have for this one. `sum` has each rank's part of the input, `largest_bytes` is
/// of the largest.
template <class Args>
Result<void> exchange_and_add(const Args& args, ExchangedSum sum, std::int64_t largest_bytes,
                              const char* what, Group& group, Stream& stream) {
  TANDEM_ASSIGN(CudaStream* const on, tandem::cuda::cuda_stream(stream, what));
  TANDEM_ASSIGN(const std::optional<Mailboxes> boxes, mailboxes_of(group, *on));
  sum.input = args.input.data;
  const std::span parts = std::span(sum.parts).first(static_cast<std::size_t>(group.size()));
  const void* chunks[kMaxAddresses] = {};
  std::transform(parts.begin(), parts.end(), chunks, [&](const Part& part) {
    return static_cast<const std::byte*>(args.input.data) + part.begin;
  });
  sum.sum = layer_sum_of(ReduceLayersArgs{.layers = std::span(chunks).first(parts.size()),
                                          .dtype = args.input.dtype,
                                          .out = args.output,
                                          .op = args.op,
                                          .bias = args.bias});
  sum.sum.by_vectors = sum.sum.by_vectors && are_vectors(parts);
  return on->enqueue(what, Waits::kForPeers, [&](cudaStream_t native) {
    return launch_exchanged_sum(sum, *boxes, cut_into_pieces(largest_bytes, boxes->num_pieces), native);
  });
}

Result<void> exchange_sum(const ScatterCall& args, const EndBarrier& end, Stream& stream) {
  ExchangedSum sum;
  cut(args.input, std::span(sum.parts).first(static_cast<std::size_t>(end.group.size())));
  return exchange_and_add(args, sum, largest_part_bytes(args.input, end.group.size()), "reduce_scatter",
                          end.group, stream);
}

Result<void> exchange_wholes(const AllReduceArgs& args, const EndBarrier& end, Stream& stream) {
  ExchangedSum sum;
  std::fill_n(sum.parts, end.group.size(), Part{0, args.input.size_bytes()});
  return exchange_and_add(args, sum, args.input.size_bytes(), "all_reduce", end.group, stream);
}

}  // namespace

const GatherAlgorithm kGatherByMailboxes = {.name = "mailboxes",
                                            .can_run = &fits_mailboxes,
                                            .connect = &connect,
                                            .workspace_bytes = &no_bytes,
                                            .predicted_us = &gather_us,
                                            .run = &exchange_gather};
const ScatterAlgorithm kScatterByMailboxes = {.name = "mailboxes",
                                              .can_run = &fits_mailboxes,
                                              .connect = &connect,
                                              .workspace_bytes = &no_bytes,
                                              .predicted_us = &scatter_us,
                                              .run = &exchange_sum};
const AllReduceAlgorithm kAllReduceByMailboxes = {.name = "mailboxes",
                                                  .can_run = &fits_mailboxes_whole,
                                                  .connect = &connect_whole,
                                                  .workspace_bytes = &no_bytes,
                                                  .predicted_us = &all_reduce_us,
                                                  .run = &exchange_wholes};

}  // namespace tandem::coll::cuda
