#include "coll/cuda/collective_model.hpp"

#include <algorithm>

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

double us_by(const Rates& rates, std::int64_t part_bytes, int peers) {
  const double link_us = peers * static_cast<double>(part_bytes) / kLinkBytesPerUs;
  return rates.start_us + (rates.slowness + rates.slowness_of_a_peer / peers) * link_us;
}

}  // namespace

double collective_us(Collective collective, std::int64_t part_bytes, int world) {
  const int peers = world - 1;
  if (peers < 1) return 0;
  constexpr std::int64_t kMost = Mailboxes::kMostBytes;
  const double us = us_by(kByMailboxes, std::min(part_bytes, kMost), peers);
  if (part_bytes <= kMost) return us;
  // No less than what mailboxes hold.
  return std::max(us, us_by(collective == Collective::kAllGather ? kGather : kSum, part_bytes, peers));
}

}  // namespace tandem::coll::cuda
