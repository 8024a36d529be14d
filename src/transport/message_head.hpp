#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/transport.hpp>

namespace tandem::transport {

/// What travels in front of each message, so that a rank which makes another call is a mismatch and not a
/// wrong result.
struct MessageHead {
  std::uint64_t fingerprint = 0;
  std::uint64_t channel = 0;
  std::uint64_t num_bytes = 0;  ///< behind it
  bool operator==(const MessageHead&) const = default;
};
[[nodiscard]] MessageHead head_of_sent(const Transport::Exchange& exchange);
[[nodiscard]] MessageHead head_of_awaited(const Transport::Exchange& exchange);

/// Whether what has come from exchange.from to `rank` is what was awaited. Errors: kMismatch with both.
[[nodiscard]] Result<void> check_head(const MessageHead& came, const Transport::Exchange& exchange, int rank);

// What a wait says that has not seen the other rank in time.
[[nodiscard]] std::string awaited_in_words(
    const Transport::Exchange& exchange);  ///< "waits for 8 bytes of rank 3"
[[nodiscard]] std::string sent_in_words(const Transport::Exchange& exchange);
/// kTimeout: "rank 1 waits for 8 bytes of rank 3 on another host, and gave up after 20 ms: ..."
[[nodiscard]] Error gave_up(int rank, std::string_view what, std::chrono::nanoseconds waited);

}  // namespace tandem::transport
