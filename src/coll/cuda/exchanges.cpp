#include "coll/cuda/exchanges.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <tandem/base/shard.hpp>

#include "base/row_bytes.hpp"
#include "base/try.hpp"
#include "coll/backend.hpp"
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

/// How the ranks exchange parts of `whole`. Nothing where they do not.
struct Way {
  Mailboxes boxes;
  Pieces pieces;
};
Result<std::optional<Way>> way_for(const TensorView& whole, Group& group, CudaStream& stream) {
  const int world = group.size();
  const std::int64_t largest = largest_part_bytes(whole, world);
  if (world == 1 || largest > Mailboxes::kMostBytes) return std::nullopt;
  TANDEM_ASSIGN(const std::optional<Mailboxes> boxes, mailboxes_of(group, stream));
  if (!boxes || largest > boxes->max_bytes()) return std::nullopt;
  return Way{*boxes, cut_into_pieces(largest, boxes->num_pieces)};
}

}  // namespace

Result<bool> exchange_gather(const AllGatherArgs& args, const EndBarrier& end, Stream& stream) {
  TANDEM_ASSIGN(CudaStream* const on, tandem::cuda::cuda_stream(stream, "all_gather"));
  TANDEM_ASSIGN(const std::optional<Way> way, way_for(args.output, end.group, *on));
  if (!way) return false;
  ExchangedGather gather{.shard = args.input.data, .out = args.output.data};
  const std::span parts = std::span(gather.parts).first(static_cast<std::size_t>(end.group.size()));
  cut(args.output, parts);
  gather.by_vectors = are_vectors(parts) && is_aligned(gather.shard) && is_aligned(gather.out);
  TANDEM_TRY(on->enqueue("all_gather", Waits::kForPeers, [&](cudaStream_t native) {
    return launch_exchanged_gather(gather, way->boxes, way->pieces, native);
  }));
  return true;
}

Result<bool> exchange_sum(const ReduceScatterArgs& args, Group& group, Stream& stream) {
  TANDEM_ASSIGN(CudaStream* const on, tandem::cuda::cuda_stream(stream, "reduce_scatter"));
  TANDEM_ASSIGN(const std::optional<Way> way, way_for(args.input, group, *on));
  if (!way) return false;
  ExchangedSum sum{.sum = {}, .input = args.input.data};
  const std::span parts = std::span(sum.parts).first(static_cast<std::size_t>(group.size()));
  cut(args.input, parts);
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
  TANDEM_TRY(on->enqueue("reduce_scatter", Waits::kForPeers, [&](cudaStream_t native) {
    return launch_exchanged_sum(sum, way->boxes, way->pieces, native);
  }));
  return true;
}

}  // namespace tandem::coll::cuda
