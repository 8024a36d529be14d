// All-gather of small host-side records through the control memory, piece by piece. A death, a stop or a
// poisoned group ends it like any other wait; no server takes part.
#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/group_control.hpp"

namespace tandem::bootstrap {
namespace {

const WaitInfo kExchange{.what = "exchange", .actor = WaitInfo::Actor::kHost};
constexpr std::size_t kLongestBytes = std::size_t{64} << 20;

std::string_view what_of(const ExchangeSlot& slot) {
  return {slot.what, ::strnlen(slot.what, sizeof(slot.what))};
}

}  // namespace

Result<void> GroupControl::exchange_round(std::uint64_t round, Deadline deadline, std::string_view what) {
  own().exchange.posted.store(round, std::memory_order_release);
  ring_everybody();
  const auto has_come = [&](int r) {
    return static_cast<std::int64_t>(memory_->rank(r).exchange.posted.load(std::memory_order_acquire) -
                                     round) >= 0;
  };
  TANDEM_TRY(wait_for_ranks(kExchange, deadline, has_come, [] { return false; }));
  return check_same_exchange(what);
}

Result<void> GroupControl::check_same_exchange(std::string_view what) {
  bool all_equal = true;
  for (int r = 0; r < size(); ++r) {
    const ExchangeSlot& slot = memory_->rank(r).exchange;
    all_equal =
        all_equal && what_of(slot) == what.substr(0, sizeof(slot.what)) && slot.total_bytes <= kLongestBytes;
  }
  if (all_equal) return {};
  std::string text = "ranks disagree about an exchange:";
  for (int r = 0; r < size(); ++r) {
    const ExchangeSlot& slot = memory_->rank(r).exchange;
    text += fmt::format("{} rank {} '{}' ({} bytes)", r == 0 ? "" : ";", r, what_of(slot), slot.total_bytes);
  }
  poison(Error(ErrorCode::kMismatch, std::move(text)), -1);
  return status();
}

Result<std::vector<Store::Bytes>> GroupControl::exchange(std::span<const std::byte> mine,
                                                         std::string_view what, Deadline deadline) {
  TANDEM_TRY(status());
  host_.store(this_executor(), std::memory_order_relaxed);
  if (mine.size() > kLongestBytes) {
    return failf(ErrorCode::kInvalidArgument, "all_gather '{}': {} bytes, at most {}", what, mine.size(),
                 kLongestBytes);
  }
  std::vector<Store::Bytes> gathered(static_cast<std::size_t>(size()));
  ExchangeSlot& slot = own().exchange;
  std::size_t longest = 1;  // the first round always runs: it tells the lengths
  for (std::size_t offset = 0; offset < longest; offset += ExchangeSlot::kPieceBytes) {
    const auto all_have_taken = [&, before = exchange_round_](int r) {
      return static_cast<std::int64_t>(memory_->rank(r).exchange.taken.load(std::memory_order_acquire) -
                                       before) >= 0;
    };
    TANDEM_TRY(wait_for_ranks(kExchange, deadline, all_have_taken, [] { return false; }));
    slot.total_bytes = mine.size();
    std::memset(slot.what, 0, sizeof(slot.what));
    std::memcpy(slot.what, what.data(), std::min(what.size(), sizeof(slot.what)));
    if (offset < mine.size()) {
      std::memcpy(slot.piece, mine.data() + offset,
                  std::min(mine.size() - offset, ExchangeSlot::kPieceBytes));
    }
    ++exchange_round_;
    TANDEM_TRY(exchange_round(exchange_round_, deadline, what));
    for (int r = 0; r < size(); ++r) {
      const ExchangeSlot& from = memory_->rank(r).exchange;
      const std::size_t total = from.total_bytes;
      longest = std::max(longest, total);
      if (offset >= total) continue;
      Store::Bytes& to = gathered[static_cast<std::size_t>(r)];
      to.insert(to.end(), from.piece, from.piece + std::min(total - offset, ExchangeSlot::kPieceBytes));
    }
    slot.taken.store(exchange_round_, std::memory_order_release);
    ring_everybody();
  }
  return gathered;
}

}  // namespace tandem::bootstrap
