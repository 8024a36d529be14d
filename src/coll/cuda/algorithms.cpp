#include "coll/cuda/algorithms.hpp"

#include <array>
#include <optional>

#include "base/try.hpp"
#include "coll/cuda/mailboxes.hpp"
#include "cost/transfers.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tandem::coll::cuda {
namespace {

/// An entry for any device, with the model of this one.
template <class Args>
Algorithm<Args> with_model(Algorithm<Args> algorithm,
                           double (*model)(const Problem& problem, const cost::GpuRates& gpu)) {
  algorithm.predicted_us = model;
  return algorithm;
}

}  // namespace

AlgorithmLists algorithms() {
  static const std::array gathers = {kGatherByMailboxes, kPublishedGather, kGatherByNccl,
                                     with_model(kGatherByCopies, &gather_us)};
  static const std::array scatters = {kScatterByMailboxes, with_model(kScatterInPlace, &scatter_us),
                                      with_model(kScatterByCopies, &scatter_us)};
  static const std::array all_reduces = {kAllReduceByMailboxes,
                                         with_model(kAllReduceOfParts, &all_reduce_us)};
  return {.gather = gathers, .scatter = scatters, .all_reduce = all_reduces};
}

Answer may_have_mailboxes(const Problem& problem) {
  if (problem.world == 1) return Answer::no("one rank has no peers");
  if (problem.world > kMaxAddresses) return Answer::no("more ranks than a kernel has addresses for");
  return Answer::yes();
}

Result<Answer> connect_mailboxes(const Problem& /*problem*/, Group& group, Stream& stream) {
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "mailboxes"));
  TANDEM_ASSIGN(const std::optional<Mailboxes> boxes, mailboxes_of(group, *on));
  return boxes ? Answer::yes() : Answer::no("the group has no mailboxes");
}

double gather_us(const Problem& problem, const cost::GpuRates& gpu) {
  return cost::collective_us(cost::Collective::kAllGather, problem.part_bytes, problem.world,
                             Mailboxes::kMostBytes, gpu);
}

double scatter_us(const Problem& problem, const cost::GpuRates& gpu) {
  return cost::collective_us(cost::Collective::kReduceScatter, problem.part_bytes, problem.world,
                             Mailboxes::kMostBytes, gpu);
}

double all_reduce_us(const Problem& problem, const cost::GpuRates& gpu) {
  return cost::collective_us(cost::Collective::kAllReduce, problem.part_bytes, problem.world,
                             Mailboxes::kMostBytes, gpu);
}

}  // namespace tandem::coll::cuda
