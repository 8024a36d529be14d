#include "transport/message_head.hpp"

#include "base/format.hpp"

namespace tandem::transport {

MessageHead head_of_sent(const Transport::Exchange& exchange) {
  return {exchange.fingerprint, exchange.channel, exchange.sent.size()};
}

MessageHead head_of_awaited(const Transport::Exchange& exchange) {
  return {exchange.fingerprint, exchange.channel, exchange.received.size()};
}

Result<void> check_head(const MessageHead& came, const Transport::Exchange& exchange, int rank) {
  const MessageHead awaited = head_of_awaited(exchange);
  if (came == awaited) return {};
  return failf(ErrorCode::kMismatch,
               "rank {} and rank {} of another host do not make the same call: {} bytes of a call with "
               "fingerprint {:016x} came, and {} bytes of {:016x} were awaited{}",
               rank, exchange.from, came.num_bytes, came.fingerprint, awaited.num_bytes, awaited.fingerprint,
               came.channel == awaited.channel ? "" : ", by another group");
}

std::string awaited_in_words(const Transport::Exchange& exchange) {
  return fmt::format("waits for {} bytes of rank {}", exchange.received.size(), exchange.from);
}

std::string sent_in_words(const Transport::Exchange& exchange) {
  return fmt::format("could not send {} bytes to rank {}", exchange.sent.size(), exchange.to);
}

Error gave_up(int rank, std::string_view what, std::chrono::nanoseconds waited) {
  return Error(
      ErrorCode::kTimeout,
      fmt::format("rank {} {} on another host, and gave up after {} ms: that rank or its host is lost "
                  "or late, or the network between them is cut",
                  rank, what, std::chrono::duration_cast<std::chrono::milliseconds>(waited).count()));
}

}  // namespace tandem::transport
