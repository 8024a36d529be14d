#include <unistd.h>

#include <cstring>
#include <tandem/bootstrap/launched.hpp>
#include <tandem/bootstrap/local_store.hpp>
#include <thread>
#include <vector>

#include "base/format.hpp"
#include "base/home_process.hpp"
#include "base/interrupts.hpp"
#include "base/try.hpp"
#include "bootstrap/failure_report.hpp"
#include "bootstrap/meeting_place.hpp"
#include "bootstrap/peer_monitor.hpp"
#include "bootstrap/process_id.hpp"
#include "bootstrap/rank_ends.hpp"

namespace tandem {
namespace {

using bootstrap::ProcessId;
using namespace std::chrono_literals;

// Keys of the common store. Each rank takes its seat and tells its arrival; rank 0 answers all by one
// verdict.
constexpr const char* kVerdictKey = "tandem/launch/verdict";  // one byte: whether all have come
constexpr const char* kToldKey = "tandem/launch/told";        // counts who has read a bad verdict

std::string seat_key(int rank) {
  return fmt::format("tandem/launch/seat/{}", rank);
}
std::string arrival_key(int rank) {
  return fmt::format("tandem/launch/arrival/{}", rank);
}

struct Arrival {
  std::int32_t size = 0;
  std::int32_t local_rank = 0;
  ProcessId process;
  char host[64] = {};
};

Arrival arrival_of(const LaunchedRank& self) {
  Arrival arrival{self.size, self.local_rank, ProcessId::self(), {}};
  const std::string host = bootstrap::host_identity();
  std::memcpy(arrival.host, host.data(), std::min(host.size(), sizeof(arrival.host)));
  return arrival;
}

/// What rank 0 keeps until the job ends: the store that all share, and the watches of the others.
struct Host {
  std::unique_ptr<LocalStoreServer> server;  ///< null: the caller's store
  std::shared_ptr<Store> store;
  std::shared_ptr<bootstrap::PeerMonitor> monitor;
  std::vector<std::unique_ptr<bootstrap::PeerMonitor::Watch>> watches;

  ~Host() {
    watches.clear();  // before the store that they write to
  }
};

std::string in_words(const std::vector<int>& missing, const LaunchedRank& self) {
  return fmt::format("{} {} of {}", missing.size() == 1 ? "rank" : "ranks", fmt::join(missing, ", "),
                     self.size);
}

Error did_not_come(const std::vector<int>& missing, const LaunchedRank& self,
                   std::chrono::milliseconds timeout) {
  return Error(
      ErrorCode::kTimeout,
      fmt::format("launch: {} did not come within {} ms (job '{}', started by {}): see what became of "
                  "{}, or raise TANDEM_RENDEZVOUS_TIMEOUT_MS",
                  in_words(missing, self), timeout.count(), self.job, self.launcher,
                  missing.size() == 1 ? "it" : "them"));
}

Result<void> take_seat(Store& store, const LaunchedRank& self) {
  TANDEM_ASSIGN(const std::int64_t holders, store.add(seat_key(self.rank), 1));
  if (holders == 1) return {};
  return failf(
      ErrorCode::kInvalidArgument,
      "launch: rank {} of job '{}' is there already: another launch has the same name; give each one its "
      "own by TANDEM_JOB",
      self.rank, self.job);
}

Result<std::vector<int>> find_empty_seats(Store& store, int size) {
  std::vector<int> empty;
  for (int r = 0; r < size; ++r) {
    TANDEM_ASSIGN(const std::int64_t holders, store.add(seat_key(r), 0));
    if (holders == 0) empty.push_back(r);
  }
  return empty;
}

// ---- rank 0 ----

/// Takes in one other rank.
Result<void> welcome(Host& host, const LaunchedRank& self, int rank, const Store::Bytes& bytes) {
  Arrival arrival;
  if (bytes.size() != sizeof(arrival)) {
    return failf(ErrorCode::kMismatch, "launch: rank {} runs another version of tandem than rank 0", rank);
  }
  std::memcpy(&arrival, bytes.data(), sizeof(arrival));
  if (arrival.size != self.size) {
    return failf(ErrorCode::kMismatch, "launch: rank {} has size {}, rank 0 has size {} (job '{}')", rank,
                 arrival.size, self.size, self.job);
  }
  const Arrival own = arrival_of(self);
  const bool is_on_this_host = std::memcmp(arrival.host, own.host, sizeof(own.host)) == 0;
  if (!is_on_this_host || !own.process.shares_pids_with(arrival.process)) return {};
  if (!host.monitor) {
    TANDEM_ASSIGN(host.monitor, bootstrap::PeerMonitor::create());
  }
  // If it cannot be written, the store has no memory left: the others then wait until their deadline.
  TANDEM_ASSIGN(auto watch, host.monitor->watch(arrival.process, [store = host.store.get(), rank] {
    static_cast<void>(bootstrap::write_end(*store, rank, {bootstrap::RankEnd::kUnknown, 0}));
  }));
  host.watches.push_back(std::move(watch));
  return {};
}

Result<void> collect(Host& host, const LaunchedRank& self, const JoinOptions& options, Deadline deadline) {
  std::vector<int> missing;
  for (int r = 1; r < self.size; ++r) {
    // Once the time is over: who is there all the same?
    auto bytes = host.store->get(arrival_key(r), deadline);
    if (bytes) {
      TANDEM_TRY(welcome(host, self, r, *bytes));
      continue;
    }
    if (is_interrupted()) return failf(ErrorCode::kPeerLost, "launch: rank 0 was interrupted");
    if (bytes.error().code() != ErrorCode::kTimeout) return tl::unexpected(std::move(bytes).error());
    missing.push_back(r);
  }
  if (!missing.empty()) return tl::unexpected(did_not_come(missing, self, options.timeout));
  return {};
}

Result<void> tell_verdict(Store& store, bool is_good) {
  const std::byte byte{static_cast<unsigned char>(is_good)};
  return store.set(kVerdictKey, std::span(&byte, 1));
}

/// Tells the ranks that are there why there will be no job, and lets them read it.
void reject(Store& store, const LaunchedRank& self, const Error& why) {
  static_cast<void>(bootstrap::write_failure(store, 0, why));
  if (!tell_verdict(store, false)) return;
  const auto empty = find_empty_seats(store, self.size);
  if (!empty) return;
  const auto num_there = self.size - 1 - static_cast<std::int64_t>(empty->size());
  const auto until = Deadline::after(1s);
  while (!until.expired() && store.add(kToldKey, 0).value_or(num_there) < num_there)
    std::this_thread::sleep_for(2ms);
}

Result<std::shared_ptr<Store>> host_launch(const LaunchedRank& self, const JoinOptions& options,
                                           Deadline deadline) {
  const std::shared_ptr<Host> host(new Host, DeleteAtHome());
  std::optional<bootstrap::MeetingPlace> place;
  host->store = options.store;
  if (!host->store) {
    TANDEM_ASSIGN(host->server, LocalStoreServer::create());
    host->store = host->server->local();
  }
  TANDEM_TRY(take_seat(*host->store, self));
  if (host->server && self.size > 1) {
    TANDEM_ASSIGN(auto opened, bootstrap::MeetingPlace::open(self.job, deadline));
    place.emplace(std::move(opened));
    TANDEM_ASSIGN(const LocalStoreAddress address, host->server->listen(self.size - 1));
    TANDEM_TRY(place->publish(address));
  }
  auto done = collect(*host, self, options, deadline);
  if (done) done = bootstrap::write_job_size(*host->store, self.size);
  if (done) done = bootstrap::write_launch(*host->store);
  if (done) done = tell_verdict(*host->store, true);
  if (!done) {
    reject(*host->store, self, done.error());
    return tl::unexpected(std::move(done).error());
  }
  return std::shared_ptr<Store>(host, host->store.get());
}

// ---- the others ----

/// Opens rank 0's store. What a killed rank 0 left is passed over until that of this launch is there.
Result<std::shared_ptr<Store>> find_store(const LaunchedRank& self, const JoinOptions& options,
                                          Deadline deadline) {
  for (;;) {
    TANDEM_ASSIGN(const auto address, bootstrap::read_address(self.job));
    if (address) {
      auto store = open_local_store(*address, deadline);
      if (store) return store;
    }
    if (is_interrupted()) return failf(ErrorCode::kPeerLost, "launch: rank {} was interrupted", self.rank);
    if (deadline.expired()) return tl::unexpected(did_not_come({0}, self, options.timeout));
    std::this_thread::sleep_for(5ms);
  }
}

Result<void> await_verdict(Store& store, const LaunchedRank& self, const JoinOptions& options,
                           Deadline deadline) {
  auto verdict = store.get(kVerdictKey, deadline);
  if (!verdict && verdict.error().code() == ErrorCode::kTimeout && !is_interrupted()) {
    TANDEM_ASSIGN(const std::vector<int> missing, find_empty_seats(store, self.size));
    // Rank 0's time ends about now too.
    verdict = store.get(kVerdictKey, Deadline::after(250ms));
    if (!verdict && verdict.error().code() == ErrorCode::kTimeout && !missing.empty())
      return tl::unexpected(did_not_come(missing, self, options.timeout));
  }
  if (!verdict) return tl::unexpected(std::move(verdict).error());
  if (verdict->size() == 1 && (*verdict)[0] != std::byte{0}) return {};
  if (options.is_told != nullptr) *options.is_told = true;
  auto why = bootstrap::read_failure(store, 0);
  static_cast<void>(store.add(kToldKey, 1));
  if (why) return tl::unexpected(*std::move(why));
  return failf(ErrorCode::kPeerLost, "launch: rank 0 gave up and did not say why");
}

Result<std::shared_ptr<Store>> join_host(const LaunchedRank& self, const JoinOptions& options,
                                         Deadline deadline) {
  std::shared_ptr<Store> store = options.store;
  if (!store) {
    TANDEM_ASSIGN(store, find_store(self, options, deadline));
  }
  TANDEM_TRY(take_seat(*store, self));
  const Arrival arrival = arrival_of(self);
  TANDEM_TRY(store->set(arrival_key(self.rank), std::as_bytes(std::span(&arrival, 1))));
  TANDEM_TRY(await_verdict(*store, self, options, deadline));
  return store;
}

/// Where the launcher has no name for the launch: the process that started the ranks.
std::string job_of_parent() {
  const ProcessId parent{.pid = ::getppid()};
  const auto stat = bootstrap::stat_of(parent);
  return fmt::format("parent {} of time {}", parent.pid, stat ? stat->start_time : 0);
}

Result<void> check(const LaunchedRank& self, const JoinOptions& options) {
  if (self.size < 1 || self.rank < 0 || self.rank >= self.size || self.local_rank < 0 ||
      self.local_rank >= self.local_size || self.local_size > self.size) {
    return failf(
        ErrorCode::kInvalidArgument,
        "launch: rank {} of {}, on its host {} of {}: need 0 <= rank < size and no more ranks on a host",
        self.rank, self.size, self.local_rank, self.local_size);
  }
  if (self.local_size == self.size || options.store) return {};
  return failf(
      ErrorCode::kUnsupported,
      "launch: {} has started {} ranks, {} of them on this host: the ranks of a job need one host; start "
      "at most {} ranks on it",
      self.launcher, self.size, self.local_size, self.local_size);
}

}  // namespace

Result<RankContext> join_launched(const LaunchedRank& launched, const JoinOptions& options) {
  TANDEM_TRY(check(launched, options));
  LaunchedRank self = launched;
  if (self.job.empty()) self.job = job_of_parent();
  self.job = fmt::format("{}: {}", self.launcher, self.job);
  const auto deadline = Deadline::after(options.timeout);
  RankContext context{self.rank, self.size, nullptr, self.local_rank};
  TANDEM_ASSIGN(context.store,
                self.rank == 0 ? host_launch(self, options, deadline) : join_host(self, options, deadline));
  TANDEM_TRY(bootstrap::write_joined(*context.store, context.rank));
  return context;
}

std::optional<Error> find_failure(const RankContext& self, int rank) {
  if (auto reported = bootstrap::read_failure(*self.store, rank)) return reported;
  const auto end = bootstrap::read_end(*self.store, rank);
  if (!end) return std::nullopt;
  return Error(ErrorCode::kPeerLost,
               fmt::format("the process of rank {} {} and did not say why", rank, bootstrap::describe(*end)));
}

}  // namespace tandem
