#include "coll/cuda/algorithms.hpp"

#include <array>
#include <optional>

#include "base/try.hpp"
#include "coll/cuda/mailboxes.hpp"
#include "cost/transfers.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tandem::coll::cuda {
namespace {

ScatterAlgorithm in_place() {
  ScatterAlgorithm algorithm = kScatterInPlace;
  algorithm.predicted_us = &scatter_us;
  return algorithm;
}

}  // namespace

AlgorithmLists algorithms() {
  static const std::array gathers = {kGatherByMailboxes, kPublishedGather, kGatherByNccl, kGatherByCopies};
  static const std::array scatters = {kScatterByMailboxes, in_place(), kScatterByCopies};
  return {.gather = gathers, .scatter = scatters};
}

Result<Answer> connect_mailboxes(const Problem& /*problem*/, Group& group, Stream& stream) {
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "mailboxes"));
  TANDEM_ASSIGN(const std::optional<Mailboxes> boxes, mailboxes_of(group, *on));
  return boxes ? Answer::yes() : Answer::no("the group has no mailboxes");
}

double gather_us(const Problem& problem) {
  return cost::collective_us(cost::Collective::kAllGather, problem.part_bytes, problem.world,
                             Mailboxes::kMostBytes);
}

double scatter_us(const Problem& problem) {
  return cost::collective_us(cost::Collective::kReduceScatter, problem.part_bytes, problem.world,
                             Mailboxes::kMostBytes);
}

}  // namespace tandem::coll::cuda
