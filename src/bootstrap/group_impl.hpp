#pragma once

#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <tandem/base/support.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/bootstrap/local_store.hpp>
#include <typeindex>
#include <vector>

#include "base/home_process.hpp"
#include "bootstrap/group_control.hpp"
#include "bootstrap/hosts.hpp"
#include "bootstrap/membership.hpp"
#include "bootstrap/peer_monitor.hpp"
#include "cost/machine.hpp"

namespace tandem {

/// The members of a Group. Their order is the order of making; the destructor unmakes in reverse.
class Group::Impl {
 public:
  /// `parent` is null for a group that is no subgroup, and `ranks` are those of a subgroup in its parent.
  [[nodiscard]] static Result<std::unique_ptr<Impl>> create(const GroupOptions& options,
                                                            const Impl* parent = nullptr,
                                                            std::span<const int> ranks = {});
  /// A group on several hosts around `within_host`.
  [[nodiscard]] static Result<std::unique_ptr<Impl>> create_across(const GroupOptions& options,
                                                                   const bootstrap::HostPlace& place,
                                                                   std::unique_ptr<Group> within_host);
  ~Impl();

  [[nodiscard]] std::string key_prefix() const { return "tandem/group/" + options.name + "/"; }

  HomeProcess home;
  GroupOptions options;
  FaultPlan faults;
  /// Of a group on several hosts: its ranks on this one. They have all that needs shared memory; what is
  /// below stays empty, but for extensions and the timeline.
  std::unique_ptr<Group> within_host;
  std::shared_ptr<bootstrap::WatchedGroup> watched;  ///< within_host, of a group on several hosts
  std::shared_ptr<const bootstrap::HostLink> link;   ///< to the other hosts, in both of these groups
  std::unique_ptr<bootstrap::StoreExchange> exchange;
  bootstrap::Seat seat;
  std::unique_ptr<LocalStoreServer> file_server;  ///< rank 0 of a group whose store carries no files
  std::shared_ptr<Store> shared_store;            ///< the user's, or a client of file_server
  std::shared_ptr<bootstrap::ControlMemory> memory;
  std::unique_ptr<bootstrap::GroupControl> control;
  std::shared_ptr<bootstrap::PeerMonitor> monitor;
  std::vector<std::unique_ptr<bootstrap::PeerMonitor::Watch>> watches;
  Support sees_deaths;           ///< of all ranks in other processes
  std::shared_ptr<Store> store;  ///< shared_store under this life's own keys
  struct Extension {
    std::type_index type;
    std::string name;
    std::shared_ptr<void> object;
  };
  std::list<Extension> extensions;  ///< a list: making one may make others
  std::vector<std::function<void()>> before_end;
  std::shared_ptr<Timeline> timeline;
  cost::Table tune_table;
  cost::GpuTimes gpu_times;
  cost::GpuRates gpu_rates = cost::kH200;        ///< that follow from these times
  std::unique_ptr<bootstrap::ErrorRelay> relay;  ///< goes first

 private:
  Impl() = default;
  [[nodiscard]] cost::GpuTimes find_gpu_times(const Impl* parent) const;
  [[nodiscard]] bootstrap::FindLost find_lost(const Impl* parent, std::span<const int> ranks) const;
  Result<void> found(Deadline deadline, bootstrap::FindLost find_lost);
  Result<void> found_with(bootstrap::Host& host, Deadline deadline);
  Result<void> publish_control(std::uint64_t nonce, const std::vector<bootstrap::Candidate>& members);
  Result<void> join(Deadline deadline, const bootstrap::FindLost& find_lost);
  void use(std::shared_ptr<bootstrap::ControlMemory> mapped);
  Result<void> watch_peers(bool tells);
  void tell_unseen(std::span<const int> unseen) const;
  Result<void> meet(std::string_view table, Deadline deadline);
  [[nodiscard]] std::string read_tune_table() const;
};

}  // namespace tandem
