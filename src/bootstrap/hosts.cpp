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

std::string StoreExchange::key(std::uint64_t round, int rank) const {
  return fmt::format("{}/{}/{}", name_, round, rank);
}

Result<std::vector<Store::Bytes>> StoreExchange::all_gather(std::span<const std::byte> mine,
                                                            std::string_view what, Deadline deadline) {
  const std::uint64_t round = round_++;
  TANDEM_TRY(store_->set(key(round, rank_), mine));
  std::vector<Store::Bytes> all;
  std::vector<int> missing;
  for (int rank = 0; rank < size_; ++rank) {
    auto bytes = store_->get(key(round, rank), deadline);
    if (bytes) {
      all.push_back(*std::move(bytes));
      continue;
    }
    if (bytes.error().code() != ErrorCode::kTimeout) return tl::unexpected(std::move(bytes).error());
    missing.push_back(rank);
  }
  if (!missing.empty()) {
    return failf(ErrorCode::kTimeout, "{}: rank {} waits for {} of rank{} {}", name_, rank_, what,
                 missing.size() == 1 ? "" : "s", fmt::join(missing, ", "));
  }
  // All have come to this round, so nobody reads the one before.
  if (round > 0) TANDEM_TRY(store_->erase(key(round - 1, rank_)));
  return all;
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
