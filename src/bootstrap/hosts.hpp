#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/bootstrap/store.hpp>
#include <tandem/bootstrap/transport.hpp>
#include <thread>

namespace tandem::bootstrap {

/// Which host of a group this rank is on. Hosts have equally many ranks, one after the other: rank r is on
/// host r / ranks_per_host.
struct HostPlace {
  int host = 0;
  int num_hosts = 1;
  int ranks_per_host = 1;
  [[nodiscard]] int first_rank() const { return host * ranks_per_host; }
};

/// Tells all ranks of a group this rank's host, by a name that no other host has, and learns theirs.
/// Errors:  kTimeout with the ranks that did not come; kUnsupported where hosts have different numbers of
///          ranks, or ranks that are not one after the other.
[[nodiscard]] Result<HostPlace> find_hosts(Store& store, const GroupOptions& options, Deadline deadline);

/// The group of one host's ranks as a transport's waits see it. Streams may keep such a wait for longer than
/// the group lives.
class WatchedGroup : public std::enable_shared_from_this<WatchedGroup> {
 public:
  explicit WatchedGroup(Group& group) : group_(&group) {}
  [[nodiscard]] std::shared_ptr<const Transport::Watch> watch();
  /// Before the group goes. It is as if nothing had happened from then on.
  void end();

 private:
  std::mutex mutex_;
  Group* group_;
};

/// What the group of one host's ranks knows of the others.
struct HostLink {
  std::shared_ptr<Transport> transport;
  HostPlace place;
  std::uint64_t channel = 0;                      ///< of the transport, for this group alone
  std::chrono::milliseconds timeout{0};           ///< of waits for other hosts
  std::shared_ptr<const Transport::Watch> watch;  ///< the group of this host
};

/// Every rank's bytes in rank order, through a store: for ranks that share no memory. Rank 0 collects them
/// and publishes all at once, so that the others wait for the store twice, however many they are. Collective;
/// one thread of a rank at a time.
class StoreExchange {
 public:
  StoreExchange(std::shared_ptr<Store> store, std::string name, int rank, int size)
      : store_(std::move(store)), name_(std::move(name)), rank_(rank), size_(size) {}
  /// Errors:  kTimeout with the ranks that have not come; the store's.
  [[nodiscard]] Result<std::vector<Store::Bytes>> all_gather(std::span<const std::byte> mine,
                                                             std::string_view what, Deadline deadline);

 private:
  [[nodiscard]] std::string key(std::uint64_t round, int rank) const;
  [[nodiscard]] std::string key_of_all(std::uint64_t round) const;
  /// By rank 0: what all have told, or who has not.
  [[nodiscard]] Result<Store::Bytes> collect(std::uint64_t round, std::span<const std::byte> mine,
                                             std::string_view what, Deadline deadline);

  std::shared_ptr<Store> store_;
  std::string name_;
  int rank_;
  int size_;
  std::uint64_t round_ = 0;
};

/// Carries the error that poisons the group of one host to those of the others, through their store. Its
/// thread looks ten times a second.
class ErrorRelay {
 public:
  [[nodiscard]] static Result<std::unique_ptr<ErrorRelay>> start(std::shared_ptr<Store> store,
                                                                 std::string prefix, Group& within_host,
                                                                 const HostPlace& place);
  ~ErrorRelay();
  ErrorRelay(const ErrorRelay&) = delete;
  ErrorRelay& operator=(const ErrorRelay&) = delete;

 private:
  ErrorRelay(std::shared_ptr<Store> store, std::string prefix, Group& within_host, const HostPlace& place)
      : store_(std::move(store)), prefix_(std::move(prefix)), within_host_(within_host), place_(place) {}
  void run();

  std::shared_ptr<Store> store_;
  std::string prefix_;
  Group& within_host_;
  HostPlace place_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

/// The group whose memory this rank shares: the group itself, or, of one on several hosts, its ranks here.
[[nodiscard]] Group& within_host(Group& group);
/// What that group knows of other hosts; null on one host.
[[nodiscard]] const HostLink* link_of(const Group& group);
/// Whether all of the group's ranks share memory, which `what` needs.
/// Errors:  kUnsupported naming the hosts and what to use instead.
[[nodiscard]] Result<void> check_one_host(const Group& group, std::string_view what);

}  // namespace tandem::bootstrap
