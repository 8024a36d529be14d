#include "coll/cuda/algorithms.hpp"

#include <array>
#include <optional>

#include "base/try.hpp"
#include "coll/cuda/mailboxes.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tandem::coll::cuda {
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

}  // namespace tandem::coll::cuda
