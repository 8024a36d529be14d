#include "bootstrap/group_impl.hpp"

#include <sys/random.h>

#include <span>
#include <tandem/base/log.hpp>
#include <tandem/cost/folder.hpp>

#include "base/format.hpp"
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
  if (::getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce)) {
    return fail(ErrorCode::kDriver, "group: getrandom gave no bytes", errno);
  }
  return nonce;
}

std::string control_key(const std::string& prefix, std::uint64_t nonce) {
  return fmt::format("{}{:x}/control", prefix, nonce);
}

}  // namespace

Result<std::unique_ptr<Group::Impl>> Group::Impl::create(const GroupOptions& options, const Impl* parent) {
  std::unique_ptr<Impl> impl(new Impl);
  impl->options = options;
  if (parent != nullptr) impl->monitor = parent->monitor;
  TANDEM_ASSIGN(impl->faults, FaultPlan::parse(options.config.fault));
  TANDEM_ASSIGN(impl->seat, bootstrap::Seat::take(options.store, impl->key_prefix(), options.rank));
  if (options.rank == 0) impl->gpu_times = impl->find_gpu_times(parent);
  const auto deadline = Deadline::after(options.config.rendezvous_timeout);
  TANDEM_TRY(options.rank == 0 ? impl->found(deadline) : impl->join(deadline));
  TANDEM_TRY(impl->watch_peers());
  const bool reads_table = parent == nullptr && options.rank == 0;
  TANDEM_TRY(impl->meet(reads_table ? impl->read_tune_table() : "", deadline));
  if (parent != nullptr) impl->tune_table = parent->tune_table;
  return impl;
}

Group::Impl::~Impl() {
  for (const auto& step : before_end) step();
  watches.clear();                                    // no news of deaths from here on
  while (!extensions.empty()) extensions.pop_back();  // they may use the control memory
  if (control) control->leave();
}

/// Rank 0 makes the control memory; the others get it from rank 0.
Result<void> Group::Impl::found(Deadline deadline) {
  bootstrap::Host host(options.store, key_prefix(), Candidate::self(options.rank, options.size));
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
    TANDEM_ASSIGN(invitation.file_store, open_file_server());
  }
  TANDEM_TRY(publish_control(invitation.nonce, members));
  return host.invite(invitation);
}

Result<LocalStoreAddress> Group::Impl::open_file_server() {
  TANDEM_ASSIGN(file_server, LocalStoreServer::create());
  shared_store = file_server->local();
  return file_server->listen(options.size - 1);
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

Result<void> Group::Impl::join(Deadline deadline) {
  TANDEM_ASSIGN(const auto invitation,
                bootstrap::ask_to_join(*options.store, key_prefix(),
                                       Candidate::self(options.rank, options.size), deadline));
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
      memory, GroupControl::Options{options.rank, spin, longest_wait_of(options.config), options.name});
  const std::string prefix = fmt::format("{}{:x}/", key_prefix(), memory->header().identity.nonce);
  store = std::make_shared<bootstrap::GroupStore>(shared_store, prefix,
                                                  [raw = control.get()] { return raw->status(); });
}

Result<void> Group::Impl::watch_peers() {
  const bootstrap::ProcessId& self = memory->rank(options.rank).process;
  for (int r = 0; r < options.size; ++r) {
    const bootstrap::ProcessId& peer = memory->rank(r).process;
    // Threads of this process live and die with it. A pid of another namespace means nothing here: such a
    // rank's death shows as a timeout.
    if (peer == self || peer.pid_namespace != self.pid_namespace) continue;
    if (!monitor) {
      TANDEM_ASSIGN(monitor, bootstrap::PeerMonitor::create());
    }
    TANDEM_ASSIGN(auto watch, monitor->watch(peer, [raw = control.get(), r] { raw->report_death(r); }));
    watches.push_back(std::move(watch));
  }
  return {};
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
