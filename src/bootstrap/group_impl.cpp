#include "bootstrap/group_impl.hpp"

#include <span>
#include <tandem/base/log.hpp>
#include <tandem/cost/folder.hpp>

#include "base/format.hpp"
#include "base/random_bytes.hpp"
#include "base/try.hpp"
#include "base/usable_cores.hpp"
#include "bootstrap/group_rates.hpp"
#include "bootstrap/group_store.hpp"
#include "cost/gpu_fit.hpp"

namespace tandem {
namespace {

using bootstrap::Candidate;
using bootstrap::ControlIdentity;
using bootstrap::ControlMemory;
using bootstrap::GroupControl;

Result<std::uint64_t> random_nonce() {
  std::uint64_t nonce = 0;
  TANDEM_TRY(random_bytes("group", std::as_writable_bytes(std::span(&nonce, 1))));
  return nonce;
}

std::string control_key(const std::string& prefix, std::uint64_t nonce) {
  return fmt::format("{}{:x}/control", prefix, nonce);
}

}  // namespace

Result<std::unique_ptr<Group::Impl>> Group::Impl::create(const GroupOptions& options, const Impl* parent,
                                                         std::span<const int> ranks) {
  std::unique_ptr<Impl> impl(new Impl);
  impl->options = options;
  if (parent != nullptr) impl->monitor = parent->monitor;
  TANDEM_ASSIGN(impl->faults, FaultPlan::parse(options.config.fault));
  TANDEM_ASSIGN(impl->seat, bootstrap::Seat::take(options.store, impl->key_prefix(), options.rank));
  if (options.rank == 0) impl->gpu_times = impl->find_gpu_times(parent);
  const auto deadline = Deadline::after(options.config.rendezvous_timeout);
  const auto lost = impl->find_lost(parent, ranks);
  TANDEM_TRY(options.rank == 0 ? impl->found(deadline, lost) : impl->join(deadline, lost));
  if (auto watched = impl->watch_peers(parent == nullptr); !watched) {
    impl->control->poison(Error(ErrorCode::kPeerLost, fmt::format("rank {} could not join: {}", options.rank,
                                                                  watched.error().to_string())),
                          options.rank);
    return tl::unexpected(std::move(watched).error());
  }
  const bool reads_table = parent == nullptr && options.rank == 0;
  TANDEM_TRY(impl->meet(reads_table ? impl->read_tune_table() : "", deadline));
  if (parent != nullptr) impl->tune_table = parent->tune_table;
  return impl;
}

Result<std::unique_ptr<Group::Impl>> Group::Impl::create_across(const GroupOptions& options,
                                                                const bootstrap::HostPlace& place,
                                                                std::unique_ptr<Group> within_host) {
  std::unique_ptr<Impl> impl(new Impl);
  impl->options = options;
  impl->options.config = within_host->config();  // what the host's rank 0 decides for all
  impl->options.config.op_timeout = options.config.op_timeout;
  TANDEM_ASSIGN(impl->faults, FaultPlan::parse(options.config.fault));
  impl->shared_store = options.store;
  // Every rank counts once in each life of a name, so all of one life get the same number.
  TANDEM_ASSIGN(const std::int64_t count, options.store->add(impl->key_prefix() + "lives", 1));
  const std::int64_t life = (count - 1) / options.size;
  const std::string prefix = fmt::format("{}{}/", impl->key_prefix(), life);
  impl->store = std::make_shared<bootstrap::GroupStore>(options.store, prefix,
                                                        [raw = within_host.get()] { return raw->status(); });
  impl->exchange =
      std::make_unique<bootstrap::StoreExchange>(impl->store, "exchange", options.rank, options.size);
  auto link = std::make_shared<bootstrap::HostLink>();
  link->transport = options.transport;
  link->place = place;
  link->timeout = impl->options.config.op_timeout;
  link->channel = bootstrap::Fingerprint::of(prefix).hash;
  impl->watched = std::make_shared<bootstrap::WatchedGroup>(*within_host);
  link->watch = impl->watched->watch();
  impl->link = within_host->impl().link = std::move(link);
  TANDEM_ASSIGN(impl->relay, bootstrap::ErrorRelay::start(options.store, prefix, *within_host, place));
  impl->within_host = std::move(within_host);
  return impl;
}

Group::Impl::~Impl() {
  relay.reset();
  if (watched) watched->end();
  for (const auto& step : before_end) step();
  watches.clear();                                    // no news of deaths from here on
  while (!extensions.empty()) extensions.pop_back();  // they may use the control memory
  if (control) control->leave();
}

/// Who is lost to a job's processes, or to the parent group, will not come.
bootstrap::FindLost Group::Impl::find_lost(const Impl* parent, std::span<const int> ranks) const {
  if (parent == nullptr) return bootstrap::find_lost_of_job(options.store, options.size, options.rank);
  return [parent, ranks]() -> std::optional<Error> {
    if (const auto status = parent->control->status(); !status) return status.error();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (parent->memory->rank(ranks[r]).left.load(std::memory_order_acquire) == 0) continue;
      return Error(ErrorCode::kPeerLost,
                   fmt::format("group: rank {} can not join: as rank {} it has left '{}'", r, ranks[r],
                               parent->options.name));
    }
    return std::nullopt;
  };
}

/// Rank 0 makes the control memory; the others get it from rank 0.
Result<void> Group::Impl::found(Deadline deadline, bootstrap::FindLost find_lost) {
  bootstrap::Host host(options.store, key_prefix(), Candidate::self(options.rank, options.size),
                       std::move(find_lost));
  auto result = found_with(host, deadline);
  if (!result) host.reject(result.error());
  return result;
}

Result<void> Group::Impl::found_with(bootstrap::Host& host, Deadline deadline) {
  TANDEM_ASSIGN(const std::vector<Candidate> members, host.collect(deadline));
  bootstrap::Invitation invitation;
  TANDEM_ASSIGN(invitation.nonce, random_nonce());
  shared_store = options.store;
  if (!shared_store->carries_objects() && !shared_store->carries_files()) {
    TANDEM_ASSIGN(file_server, LocalStoreServer::create());
    shared_store = file_server->local();
    if (options.size > 1) {
      TANDEM_ASSIGN(invitation.file_store, file_server->listen(options.size - 1));
    }
  }
  TANDEM_TRY(publish_control(invitation.nonce, members));
  return host.invite(invitation);
}

Result<void> Group::Impl::publish_control(std::uint64_t nonce, const std::vector<Candidate>& members) {
  std::vector<bootstrap::ProcessId> processes;
  processes.reserve(members.size());
  for (const Candidate& member : members) processes.push_back(member.process);
  const ControlIdentity identity{.num_ranks = options.size, .nonce = nonce};
  const std::string key = control_key(key_prefix(), nonce);
  const auto write_settings = [&](ControlMemory& of_all) {
    of_all.header().max_plans = options.config.max_plans;
    bootstrap::give_rates(of_all, options.config.core_rates);
    of_all.header().gpu_times = gpu_times;
  };
  std::shared_ptr<ControlMemory> made;
  if (shared_store->carries_objects()) {
    TANDEM_ASSIGN(made, ControlMemory::create_for_threads(identity, processes));
    write_settings(*made);
    TANDEM_TRY(shared_store->set_object(key, made));
  } else {
    UniqueFd file;
    TANDEM_ASSIGN(made, ControlMemory::create_for_processes(identity, processes, file));
    write_settings(*made);
    TANDEM_TRY(shared_store->set_file(key, file.get()));
  }
  use(std::move(made));
  return {};
}

Result<void> Group::Impl::join(Deadline deadline, const bootstrap::FindLost& find_lost) {
  TANDEM_ASSIGN(const auto invitation,
                bootstrap::ask_to_join(*options.store, key_prefix(),
                                       Candidate::self(options.rank, options.size), deadline, find_lost));
  shared_store = options.store;
  if (invitation.file_store) {
    TANDEM_ASSIGN(shared_store, open_local_store(*invitation.file_store, deadline));
  }
  const std::string key = control_key(key_prefix(), invitation.nonce);
  if (shared_store->carries_objects()) {
    TANDEM_ASSIGN(auto object, shared_store->get_object(key, deadline));
    use(std::static_pointer_cast<ControlMemory>(std::move(object)));
    return {};
  }
  TANDEM_ASSIGN(UniqueFd file, shared_store->get_file(key, deadline));
  TANDEM_ASSIGN(auto mapped, ControlMemory::open(std::move(file), {options.size, invitation.nonce}));
  use(std::move(mapped));
  return {};
}

/// What may come before a call in its stream: an op, or the agreement on a new problem.
std::chrono::milliseconds longest_wait_of(const Config& config) {
  return std::max(config.op_timeout, config.rendezvous_timeout);
}

void Group::Impl::use(std::shared_ptr<ControlMemory> mapped) {
  memory = std::move(mapped);
  options.config.max_plans = memory->header().max_plans;
  options.config.core_rates = memory->header().rates.given;
  gpu_times = memory->header().gpu_times;
  gpu_rates = cost::rates_of(gpu_times);
  memory->rank(options.rank).cores = own_cores();
  memory->rank(options.rank).granted_cores = granted_cores();
  const auto spin = bootstrap::spin_duration(options.size, usable_cores(), options.config.spin);
  control = std::make_unique<GroupControl>(
      memory, GroupControl::Options{options.rank, spin, longest_wait_of(options.config), options.name,
                                    options.config.recorder_folder, options.config.log_level});
  const std::string prefix = fmt::format("{}{:x}/", key_prefix(), memory->header().identity.nonce);
  store = std::make_shared<bootstrap::GroupStore>(shared_store, prefix,
                                                  [raw = control.get()] { return raw->status(); });
}

Result<void> Group::Impl::watch_peers(bool tells) {
  const bootstrap::ProcessId& self = memory->rank(options.rank).process;
  std::vector<int> unseen;
  for (int r = 0; r < options.size; ++r) {
    const bootstrap::ProcessId& peer = memory->rank(r).process;
    if (peer == self) continue;  // threads of this process live and die with it
    Support sight = Support::no("they are in another pid namespace, or /proc is not there to tell");
    if (self.shares_pids_with(peer)) {
      if (!monitor) {
        TANDEM_ASSIGN(monitor, bootstrap::PeerMonitor::create());
      }
      TANDEM_ASSIGN(auto watch, monitor->watch(peer, [raw = control.get(), r] { raw->report_death(r); }));
      sight = watch->sight();
      watches.push_back(std::move(watch));
    }
    if (sight.ok) continue;
    unseen.push_back(r);
    sees_deaths = std::move(sight);
  }
  if (tells) tell_unseen(unseen);
  return {};
}

/// One line of the first of the ranks that do not see each other.
void Group::Impl::tell_unseen(std::span<const int> unseen) const {
  if (unseen.empty() || unseen.front() < options.rank) return;
  log(options.config.log_level, LogLevel::kWarning,
      fmt::format("group '{}': rank {} may not see when {} {} die ({}); such a death shows when a deadline "
                  "passes (TANDEM_OP_TIMEOUT_MS, now {})",
                  options.name, options.rank, unseen.size() == 1 ? "rank" : "ranks", fmt::join(unseen, ", "),
                  sees_deaths.why_not, options.config.op_timeout.count()));
}

/// All have mapped the memory and know each other; what announced it is not needed any more. Rank 0's table
/// is everybody's.
Result<void> Group::Impl::meet(std::string_view table, Deadline deadline) {
  TANDEM_ASSIGN(const auto all, control->exchange(std::as_bytes(std::span(table)), "join group", deadline));
  if (!all[0].empty()) {
    const std::string_view text(reinterpret_cast<const char*>(all[0].data()), all[0].size());
    TANDEM_ASSIGN(tune_table, cost::parse_table(text));
  }
  if (options.rank != 0) return {};
  return shared_store->erase(control_key(key_prefix(), memory->header().identity.nonce));
}

/// Empty if there are none.
cost::GpuTimes Group::Impl::find_gpu_times(const Impl* parent) const {
  if (parent != nullptr && parent->options.size == options.size) return parent->gpu_times;
  if (options.device.empty()) return {};
  const cost::FoundGpuTimes found =
      cost::read_gpu_times(options.config.tune_folder, options.device, options.size);
  if (!found.warning.empty()) log(options.config.log_level, LogLevel::kWarning, found.warning);
  return found.times;
}

/// Empty if there is none. What is wrong with the file is told, and is no reason to have no group.
std::string Group::Impl::read_tune_table() const {
  if (options.device.empty()) return "";
  cost::Found found = cost::read_table(options.config.tune_folder, options.device);
  if (!found.warning.empty()) log(options.config.log_level, LogLevel::kWarning, found.warning);
  return found.table.rows.empty() ? "" : cost::to_message(std::move(found.table));
}

}  // namespace tandem
