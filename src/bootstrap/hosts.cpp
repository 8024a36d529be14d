#include "bootstrap/hosts.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/format.hpp"
#include "base/make_thread.hpp"
#include "base/try.hpp"
#include "bootstrap/failure_report.hpp"
#include "bootstrap/group_impl.hpp"
#include "bootstrap/membership.hpp"

namespace tandem::bootstrap {
namespace {

std::string name_of_host(const Config& config) {
  if (!config.host.empty()) return config.host;
  const Candidate self = Candidate::self(0, 1);
  return {self.host, ::strnlen(self.host, sizeof(self.host))};
}

Result<void> check_order(const std::vector<std::string>& hosts, const HostPlace& place,
                         const std::string& group) {
  const auto per_host = static_cast<std::size_t>(place.ranks_per_host);
  bool is_fine = hosts.size() % per_host == 0;
  for (std::size_t rank = 0; is_fine && rank < hosts.size(); ++rank)
    is_fine = hosts[rank] == hosts[rank / per_host * per_host];
  if (is_fine && hosts.size() / per_host == static_cast<std::size_t>(place.num_hosts)) return {};
  return failf(ErrorCode::kUnsupported,
               "group '{}': its ranks are on hosts {}; need as many on each, one behind the other (mpirun "
               "--map-by slot and as many slots on each host; srun --distribution=block)",
               group, fmt::join(hosts, ", "));
}

}  // namespace

Result<HostPlace> find_hosts(Store& store, const GroupOptions& options, Deadline deadline) {
  StoreExchange exchange({&store, [](Store*) {}}, fmt::format("tandem/hosts/{}", options.name), options.rank,
                         options.size);
  const std::string mine = name_of_host(options.config);
  TANDEM_ASSIGN(const auto all,
                exchange.all_gather(std::as_bytes(std::span(mine)), "the names of hosts", deadline));
  std::vector<std::string> hosts;
  for (const Store::Bytes& one : all)
    hosts.emplace_back(reinterpret_cast<const char*>(one.data()), one.size());
  HostPlace place;
  place.num_hosts = static_cast<int>(std::set<std::string>(hosts.begin(), hosts.end()).size());
  place.ranks_per_host = static_cast<int>(std::count(hosts.begin(), hosts.end(), hosts.front()));
  place.host = options.rank / place.ranks_per_host;
  TANDEM_TRY(check_order(hosts, place, options.name));
  return place;
}

std::shared_ptr<const Transport::Watch> WatchedGroup::watch() {
  const auto status = [self = shared_from_this()]() -> Result<void> {
    const std::lock_guard lock(self->mutex_);
    return self->group_ == nullptr ? Result<void>() : self->group_->status();
  };
  const auto report = [self = shared_from_this()](const Error& error) {
    const std::lock_guard lock(self->mutex_);
    if (self->group_ != nullptr) self->group_->poison(error, -1);
  };
  return std::make_shared<const Transport::Watch>(Transport::Watch{.status = status, .report = report});
}

void WatchedGroup::end() {
  const std::lock_guard lock(mutex_);
  group_ = nullptr;
}

std::string StoreExchange::key(std::uint64_t round, int rank) const {
  return fmt::format("{}/{}/{}", name_, round, rank);
}

std::string StoreExchange::key_of_all(std::uint64_t round) const {
  return fmt::format("{}/{}/all", name_, round);
}

// All bytes are one value: a number of ranks, their sizes, then the bytes. A number of 0 and a text say why
// there are none.
namespace {

Store::Bytes joined(const std::vector<Store::Bytes>& all) {
  std::vector<std::uint64_t> sizes{all.size()};
  for (const Store::Bytes& one : all) sizes.push_back(one.size());
  const auto head = std::as_bytes(std::span(sizes));
  Store::Bytes bytes(head.begin(), head.end());
  for (const Store::Bytes& one : all) bytes.insert(bytes.end(), one.begin(), one.end());
  return bytes;
}

Store::Bytes joined(std::string_view why_not) {
  constexpr std::uint64_t kNone = 0;
  const auto head = std::as_bytes(std::span(&kNone, 1));
  const auto text = std::as_bytes(std::span(why_not));
  Store::Bytes bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), text.begin(), text.end());
  return bytes;
}

Result<std::vector<Store::Bytes>> split(const Store::Bytes& bytes) {
  std::size_t at = 0;
  const auto number = [&] {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    at += sizeof(value);
    return value;
  };
  std::vector<Store::Bytes> all(number());
  if (all.empty()) {
    return fail(ErrorCode::kTimeout,
                std::string(reinterpret_cast<const char*>(bytes.data()) + at, bytes.size() - at));
  }
  for (Store::Bytes& one : all) one.resize(number());
  for (Store::Bytes& one : all) {
    std::memcpy(one.data(), bytes.data() + at, one.size());
    at += one.size();
  }
  return all;
}

}  // namespace

Result<Store::Bytes> StoreExchange::collect(std::uint64_t round, std::span<const std::byte> mine,
                                            std::string_view what, Deadline deadline) {
  std::vector<Store::Bytes> all{Store::Bytes(mine.begin(), mine.end())};
  std::vector<int> missing;
  for (int rank = 1; rank < size_; ++rank) {
    auto bytes = store_->get(key(round, rank), deadline);
    if (!bytes && bytes.error().code() != ErrorCode::kTimeout) return bytes;
    if (!bytes) missing.push_back(rank);
    all.push_back(bytes ? *std::move(bytes) : Store::Bytes());
  }
  Store::Bytes told = missing.empty()
                          ? joined(all)
                          : joined(fmt::format("{}: rank 0 waits for {} of rank{} {}", name_, what,
                                               missing.size() == 1 ? "" : "s", fmt::join(missing, ", ")));
  TANDEM_TRY(store_->set(key_of_all(round), told));
  // All have come to this round, so nobody reads the one before.
  if (round > 0 && missing.empty()) TANDEM_TRY(store_->erase(key_of_all(round - 1)));
  return told;
}

Result<std::vector<Store::Bytes>> StoreExchange::all_gather(std::span<const std::byte> mine,
                                                            std::string_view what, Deadline deadline) {
  const std::uint64_t round = round_++;
  if (rank_ == 0) {
    TANDEM_ASSIGN(const Store::Bytes told, collect(round, mine, what, deadline));
    return split(told);
  }
  TANDEM_TRY(store_->set(key(round, rank_), mine));
  // Rank 0 waits as long, and then says who has not come.
  constexpr std::chrono::milliseconds kToBeTold(1000);
  auto told = store_->get(key_of_all(round), Deadline::after(deadline.remaining() + kToBeTold));
  if (!told && told.error().code() == ErrorCode::kTimeout) {
    return failf(ErrorCode::kTimeout, "{}: rank {} waits for {} of rank 0", name_, rank_, what);
  }
  if (!told) return tl::unexpected(std::move(told).error());
  if (round > 0) TANDEM_TRY(store_->erase(key(round - 1, rank_)));
  return split(*told);
}

Result<std::unique_ptr<ErrorRelay>> ErrorRelay::start(std::shared_ptr<Store> store, std::string prefix,
                                                      Group& within_host, const HostPlace& place) {
  std::unique_ptr<ErrorRelay> relay(new ErrorRelay(std::move(store), std::move(prefix), within_host, place));
  TANDEM_ASSIGN(relay->thread_,
                make_thread("group: the relay of errors", [raw = relay.get()] { raw->run(); }));
  return relay;
}

ErrorRelay::~ErrorRelay() {
  ends_ = true;
  if (thread_.joinable()) thread_.join();
}

void ErrorRelay::run() {
  constexpr auto kTurn = std::chrono::milliseconds(100);
  const std::string key = prefix_ + "error";
  while (true) {
    const bool is_last = ends_;  // what was there before the end is told
    if (const auto status = within_host_.status(); !status) {
      // Of several, the one that was first stands; this host has its own already.
      const Error& error = status.error();
      const Error told(error.code(), fmt::format("host {}: {}", place_.host, error.text()),
                       error.native_code());
      static_cast<void>(store_->set(key, to_bytes(told)));
      return;
    }
    if (is_last) return;
    const auto told = store_->get(key, Deadline::after(kTurn));
    if (told) {
      if (const auto error = error_of(*told)) within_host_.poison(*error, -1);
      return;
    }
    if (told.error().code() == ErrorCode::kTimeout) continue;
    if (!ends_) within_host_.poison(told.error(), -1);
    return;
  }
}

Group& within_host(Group& group) {
  const auto& within = group.impl().within_host;
  return within ? *within : group;
}

const HostLink* link_of(const Group& group) {
  return group.impl().link.get();
}

Result<void> check_one_host(const Group& group, std::string_view what) {
  if (!group.impl().within_host) return {};
  return failf(ErrorCode::kUnsupported,
               "{}: the ranks of group '{}' are on {} hosts and share no memory; fused_all_gather_matmul and "
               "fused_matmul_reduce_scatter cross hosts, and Group::within_host() has the ranks of this one",
               what, group.name(), group.num_hosts());
}

}  // namespace tandem::bootstrap
