#include "bootstrap/membership.hpp"

#include <algorithm>
#include <cstring>

#include "base/format.hpp"
#include "base/interrupts.hpp"
#include "base/try.hpp"
#include "bootstrap/rank_ends.hpp"

namespace tandem::bootstrap {
namespace {

using Bytes = Store::Bytes;
using namespace std::chrono_literals;

std::string seat_key(const std::string& prefix, int rank) {
  return fmt::format("{}seat/{}", prefix, rank);
}
std::string ticket_key(const std::string& prefix, std::int64_t n) {
  return fmt::format("{}ticket/{}", prefix, n);
}
std::string answer_key(const std::string& prefix, std::int64_t n) {
  return fmt::format("{}answer/{}", prefix, n);
}
std::string gone_key(const std::string& prefix, std::int64_t n) {
  return fmt::format("{}gone/{}", prefix, n);
}

/// Counts up with every ticket that rank 0 has read, over all lives of the name.
std::string cursor_key(const std::string& prefix) {
  return prefix + "cursor";
}

/// An answer: a fixed head, then text. code < 0: welcome, text is the file store's "token path" if there is
/// one.
struct AnswerHead {
  std::int32_t code = -1;
  std::int64_t native_code = 0;
  std::uint64_t nonce = 0;
};

Bytes pack(const AnswerHead& head, const std::string& text) {
  Bytes bytes(sizeof(head) + text.size());
  std::memcpy(bytes.data(), &head, sizeof(head));
  std::memcpy(bytes.data() + sizeof(head), text.data(), text.size());
  return bytes;
}

Result<Invitation> unpack(const Bytes& bytes) {
  AnswerHead head;
  if (bytes.size() < sizeof(head)) {
    return failf(ErrorCode::kMismatch, "group: rank 0 answered with {} bytes, need {}", bytes.size(),
                 sizeof(head));
  }
  std::memcpy(&head, bytes.data(), sizeof(head));
  std::string text(reinterpret_cast<const char*>(bytes.data()) + sizeof(head), bytes.size() - sizeof(head));
  if (head.code >= 0) {
    const auto largest = static_cast<std::int32_t>(ErrorCode::kInternal);
    return fail(static_cast<ErrorCode>(std::min(head.code, largest)), std::move(text), head.native_code);
  }
  Invitation invitation{head.nonce, std::nullopt};
  if (const auto blank = text.find(' '); blank != std::string::npos) {
    invitation.file_store = LocalStoreAddress{text.substr(blank + 1), text.substr(0, blank)};
  }
  return invitation;
}

std::string_view host_of(const Candidate& candidate) {
  return {candidate.host, ::strnlen(candidate.host, sizeof(candidate.host))};
}

/// How long a rank whose time is up waits for the word of a rank 0 that is still there.
constexpr auto kHostGrace = 250ms;

/// How long a rank that has found another one lost waits for what rank 0 has found.
constexpr auto kLostGrace = 40ms;

template <class T>
bool is_timeout(const Result<T>& result) {
  return !result && result.error().code() == ErrorCode::kTimeout;
}

Error missing_ranks(const std::vector<int>& missing, int size) {
  return Error(ErrorCode::kTimeout,
               fmt::format("group: {} {} of {} did not come in time", missing.size() == 1 ? "rank" : "ranks",
                           fmt::join(missing, ", "), size));
}

/// Waits for a key as long as no rank that the group needs is lost. Fills in `lost` if one is.
Result<Bytes> get_unless_lost(Store& store, const std::string& key, Deadline deadline,
                              const FindLost& find_lost, std::optional<Error>& lost) {
  if (!find_lost) return store.get(key, deadline);
  constexpr auto kBetweenLooks = 25ms;
  for (;;) {
    auto value = store.get(key, Deadline::earlier(deadline, Deadline::after(kBetweenLooks)));
    if (!is_timeout(value) || deadline.expired() || was_interrupted()) return value;
    lost = find_lost();
    if (lost) return tl::unexpected(*lost);
  }
}

}  // namespace

FindLost find_lost_of_job(std::shared_ptr<Store> store, int size, int self) {
  if (!is_job_of(*store, size)) return nullptr;
  return [store = std::move(store), size, self]() -> std::optional<Error> {
    const std::vector<int> ended = find_ended(*store, size, self);
    if (ended.empty()) return std::nullopt;
    std::string text = "group:";
    for (const int r : ended) {
      text += fmt::format("{} rank {} of {} {}", r == ended.front() ? "" : ",", r, size,
                          describe(read_end(*store, r).value_or(RankEnd{})));
    }
    return Error(ErrorCode::kPeerLost, text + " before all had joined");
  };
}

// ---- seats ----

Result<Seat> Seat::take(std::shared_ptr<Store> store, const std::string& prefix, int rank) {
  Seat seat;
  seat.key_ = seat_key(prefix, rank);
  TANDEM_ASSIGN(const std::int64_t holders, store->add(seat.key_, 1));
  seat.store_ = std::move(store);  // from here on given back
  if (holders != 1)
    return failf(ErrorCode::kInvalidArgument,
                 "group: rank {} is taken already: close the open group of this name, or choose another name",
                 rank);
  return seat;
}

Result<std::vector<int>> Seat::find_empty(Store& store, const std::string& prefix, int size) {
  std::vector<int> empty;
  for (int r = 0; r < size; ++r) {
    TANDEM_ASSIGN(const std::int64_t holders, store.add(seat_key(prefix, r), 0));
    if (holders == 0) empty.push_back(r);
  }
  return empty;
}

Seat& Seat::operator=(Seat&& other) noexcept {
  if (this != &other) {
    give_back();
    store_ = std::move(other.store_);
    key_ = std::move(other.key_);
  }
  return *this;
}

void Seat::give_back() {
  if (store_) static_cast<void>(store_->add(key_, -1));
  store_.reset();
}

Candidate Candidate::self(int rank, int size) {
  Candidate candidate;
  candidate.rank = rank;
  candidate.size = size;
  candidate.process = ProcessId::self();
  const std::string host = host_identity();
  std::memcpy(candidate.host, host.data(), std::min(host.size(), sizeof(candidate.host)));
  return candidate;
}

// ---- rank 0 ----

Host::Host(std::shared_ptr<Store> store, std::string prefix, const Candidate& self, FindLost find_lost)
    : store_(std::move(store)), prefix_(std::move(prefix)), self_(self), find_lost_(std::move(find_lost)) {}

/// Nothing for a ticket whose holder has given up.
Result<std::optional<Host::Ticket>> Host::next_ticket(Deadline deadline) {
  TANDEM_ASSIGN(const std::int64_t num_read, store_->add(cursor_key(prefix_), 0));
  Ticket ticket;
  ticket.number = num_read + 1;
  TANDEM_ASSIGN(const Bytes bytes,
                get_unless_lost(*store_, ticket_key(prefix_, ticket.number), deadline, find_lost_, lost_));
  TANDEM_TRY(store_->add(cursor_key(prefix_), 1));
  TANDEM_TRY(store_->erase(ticket_key(prefix_, ticket.number)));
  TANDEM_ASSIGN(const std::int64_t gone, store_->add(gone_key(prefix_, ticket.number), 0));
  if (gone != 0) {
    TANDEM_TRY(store_->erase(gone_key(prefix_, ticket.number)));
    return std::nullopt;
  }
  std::memcpy(&ticket.candidate, bytes.data(), std::min(bytes.size(), sizeof(ticket.candidate)));
  if (bytes.size() != sizeof(ticket.candidate)) ticket.candidate.version = 0;
  return std::optional(ticket);
}

Result<std::vector<Candidate>> Host::collect(Deadline deadline) {
  const auto size = static_cast<std::size_t>(self_.size);
  std::vector<std::optional<Ticket>> by_rank(size);
  bool some_differ = false;
  for (std::size_t num_there = 1;;) {
    if (num_there >= size) {
      TANDEM_ASSIGN(const std::size_t num_gone, drop_gone(by_rank));
      if (num_gone == 0) break;
      num_there -= num_gone;
    }
    auto next = next_ticket(deadline);
    if (lost_) return tl::unexpected(*lost_);
    if (is_timeout(next)) break;
    if (was_interrupted()) {
      return fail(ErrorCode::kPeerLost, "group: rank 0 was interrupted while it waited for the other ranks");
    }
    TANDEM_TRY(next);
    if (!*next) continue;
    const Ticket& ticket = **next;
    accepted_.push_back(ticket);
    const Candidate& candidate = ticket.candidate;
    if (candidate.version != self_.version || candidate.size != self_.size || candidate.rank <= 0 ||
        candidate.rank >= self_.size) {
      // It can not work out; but others that are on their way shall hear of it too.
      if (!some_differ) deadline = Deadline::earlier(deadline, Deadline::after(500ms));
      some_differ = true;
      ++num_there;
      continue;
    }
    auto& place = by_rank[static_cast<std::size_t>(candidate.rank)];
    if (!place) ++num_there;  // otherwise it gave up, and came again
    place = ticket;
  }
  TANDEM_TRY(check(by_rank));
  std::vector<Candidate> members{self_};
  accepted_.clear();
  for (std::size_t r = 1; r < size; ++r) {
    members.push_back(by_rank[r]->candidate);
    accepted_.push_back(*by_rank[r]);
  }
  return members;
}

/// Ranks that have given up since they were counted. Returns how many these are.
Result<std::size_t> Host::drop_gone(std::vector<std::optional<Ticket>>& by_rank) {
  std::size_t num_gone = 0;
  for (std::optional<Ticket>& ticket : by_rank) {
    if (!ticket) continue;
    const std::int64_t number = ticket->number;
    TANDEM_ASSIGN(const std::int64_t gone, store_->add(gone_key(prefix_, number), 0));
    if (gone == 0) continue;
    TANDEM_TRY(store_->erase(gone_key(prefix_, number)));
    std::erase_if(accepted_, [&](const Ticket& accepted) { return accepted.number == number; });
    ticket.reset();
    ++num_gone;
  }
  return num_gone;
}

Result<void> Host::check(const std::vector<std::optional<Ticket>>& by_rank) const {
  for (const Ticket& ticket : accepted_) {
    const Candidate& other = ticket.candidate;
    if (other.version == self_.version && other.size == self_.size) continue;
    std::string text =
        fmt::format("group: ranks disagree: rank 0 has size {} version {}", self_.size, self_.version);
    for (const Ticket& each : accepted_) {
      text += fmt::format("; rank {} has size {} version {}", each.candidate.rank, each.candidate.size,
                          each.candidate.version);
    }
    return fail(ErrorCode::kMismatch, std::move(text));
  }
  std::vector<int> missing;
  for (std::size_t r = 1; r < by_rank.size(); ++r) {
    if (!by_rank[r]) missing.push_back(static_cast<int>(r));
  }
  if (!missing.empty()) return tl::unexpected(missing_ranks(missing, self_.size));
  for (std::size_t r = 1; r < by_rank.size(); ++r) {
    const std::string_view host = host_of(by_rank[r]->candidate);
    // Empty: a rank that has no /proc. What it can not open tells it then.
    if (host == host_of(self_) || host.empty() || host_of(self_).empty()) continue;
    return failf(
        ErrorCode::kUnsupported,
        "group: rank 0 and rank {} are on different hosts (boot ids {} and {}); all ranks must share one", r,
        host_of(self_), host);
  }
  return {};
}

Result<void> Host::invite(const Invitation& invitation) {
  const auto& files = invitation.file_store;
  const Bytes answer =
      pack({.nonce = invitation.nonce}, files ? fmt::format("{} {}", files->token, files->path) : "");
  for (const Ticket& ticket : accepted_) TANDEM_TRY(store_->set(answer_key(prefix_, ticket.number), answer));
  return {};
}

void Host::reject(const Error& why) {
  const Bytes answer = pack({static_cast<std::int32_t>(why.code()), why.native_code(), 0}, why.text());
  for (const Ticket& ticket : accepted_) {
    const auto gone = store_->add(gone_key(prefix_, ticket.number), 0);
    if (gone && *gone == 0) static_cast<void>(store_->set(answer_key(prefix_, ticket.number), answer));
  }
}

// ---- the others ----

Result<Invitation> ask_to_join(Store& store, const std::string& prefix, const Candidate& self,
                               Deadline deadline, const FindLost& find_lost) {
  TANDEM_ASSIGN(const std::int64_t number, store.add(prefix + "tickets", 1));
  Bytes bytes(sizeof(self));
  std::memcpy(bytes.data(), &self, sizeof(self));
  TANDEM_TRY(store.set(ticket_key(prefix, number), bytes));
  const std::string key = answer_key(prefix, number);
  std::optional<Error> lost;
  auto answer = get_unless_lost(store, key, deadline, find_lost, lost);
  // Rank 0 may count on this rank by now. Then it goes on, and leaves as members do.
  if (was_interrupted()) answer = store.get(key, Deadline::after(0ms));
  std::vector<int> missing;
  if (lost && !was_interrupted()) {
    answer = store.get(key, Deadline::after(kLostGrace));
  } else if (is_timeout(answer) && !was_interrupted()) {
    // Rank 0's time ends about now too. It knows who came; seats only tell who has not left yet.
    TANDEM_ASSIGN(missing, Seat::find_empty(store, prefix, self.size));
    const bool is_host_gone = !missing.empty() && missing.front() == 0;
    answer = store.get(key, Deadline::after(is_host_gone ? 0ms : kHostGrace));
  }
  if (answer) {
    TANDEM_TRY(store.erase(key));
    return unpack(*answer);
  }
  if (!is_timeout(answer) && !was_interrupted()) return tl::unexpected(answer.error());
  TANDEM_TRY(store.add(gone_key(prefix, number), 1));
  if (was_interrupted()) {
    return failf(ErrorCode::kPeerLost, "group: rank {} was interrupted while it waited for rank 0",
                 self.rank);
  }
  if (lost) return tl::unexpected(*lost);
  if (!missing.empty()) return tl::unexpected(missing_ranks(missing, self.size));
  return failf(ErrorCode::kTimeout, "group: rank 0 is there but did not answer rank {} in time", self.rank);
}

}  // namespace tandem::bootstrap
