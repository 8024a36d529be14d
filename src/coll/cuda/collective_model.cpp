#include "coll/cuda/collective_model.hpp"

#include "coll/cuda/mailboxes.hpp"

namespace tandem::coll::cuda {
namespace {

/// Of the bytes that a rank gets.
constexpr double kLinkBytesPerUs = 360e3;

struct Rates {
  double start_us;
  double slowness;            ///< so much longer than the link alone takes its bytes
  double slowness_of_a_peer;  ///< what is added where there is one; less where there are more, in turns
};
constexpr Rates kByMailboxes = {.start_us = 7, .slowness = 1.25, .slowness_of_a_peer = 0};
constexpr Rates kGather = {.start_us = 10.5, .slowness = 1.12, .slowness_of_a_peer = 0.18};
constexpr Rates kSum = {.start_us = 10, .slowness = 1.12, .slowness_of_a_peer = 0};

}  // namespace

double collective_us(Collective collective, std::int64_t part_bytes, int world) {
  if (world < 2) return 0;
  const Rates& rates = part_bytes <= Mailboxes::kMostBytes    ? kByMailboxes
                       : collective == Collective::kAllGather ? kGather
                                                              : kSum;
  const double peers = world - 1;
  const double link_us = peers * static_cast<double>(part_bytes) / kLinkBytesPerUs;
  return rates.start_us + (rates.slowness + rates.slowness_of_a_peer / peers) * link_us;
}

}  // namespace tandem::coll::cuda
