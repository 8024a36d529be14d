#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tandem/base/config.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/fault.hpp>
#include <tandem/bootstrap/store.hpp>
#include <tandem/bootstrap/transport.hpp>
#include <tandem/cost/gpu_times.hpp>
#include <tandem/cost/table.hpp>
#include <typeindex>
#include <typeinfo>
#include <vector>

namespace tandem {

class Timeline;

/// What Group::create() needs to know.
struct GroupOptions {
  int rank = 0;
  int size = 1;
  std::string name = "world";
  std::shared_ptr<Store> store;
  Config config = {};
  /// Device::description() of the device that the group's ops will run on. Under this name, rank 0 looks for
  /// measured times in Config::tune_folder, for all ranks. Empty: `auto` uses predictions, on GPUs with rates
  /// of the reference machine.
  std::string device = {};
  /// What carries rows between ranks on different hosts, such as MpiWorld::transport. Null: all ranks are on
  /// this host. Config::host tells hosts apart.
  std::shared_ptr<Transport> transport = {};
};

/// An ordered set of ranks that run collective calls in the same order. Ops of one group never overlap. Ops
/// of different groups may. One host thread at a time may use a Group.
///
/// Ranks may call ops of different groups in different orders if each group has its own stream. On CPUs, no
/// op waits on the host for another rank's call; a refused op waits for the group's earlier ops.
///
/// The host does wait in create(), subgroup(), all_gather(), symm::rendezvous(), symm::workspace() and
/// Stream::synchronize(). On GPUs it also waits in a group's first call of a problem, and in every call where
/// ranks share a GPU. Make these calls in the same order on all ranks, or use one host thread for each group.
///
/// A circle of waits, of hosts and CPU streams, ends with kMismatch on each of its ranks after about 0.3 s.
/// The text names the groups and the calls. The thread that used a group last is taken to be the one that
/// acts for it. So another thread must take a group over before that time, if the first waits elsewhere.
///
/// A group may have ranks on several hosts (GroupOptions::transport): equally many on each, one behind the
/// other. fused_all_gather_matmul(), fused_matmul_reduce_scatter() and fused_matmul_all_reduce() cross hosts
/// then, and so do their forms for scaled products. All other ops need memory that ranks share, and are
/// refused; the group of within_host() has them.
///
/// A timeout, a lost peer, a mismatch or a NaN that a check finds *poisons* the group: every later call on
/// every rank returns the first error. The group can only be destroyed then.
class Group {
 public:
  /// Creates the group. This is a collective call of `size` ranks. A name may be used again after the group
  /// is destroyed.
  /// Errors:  kInvalidArgument for a rank outside [0, size), size < 1, or a rank that is already taken;
  ///          kTimeout with the ranks that did not come; kMismatch if ranks differ in the size or version.
  [[nodiscard]] static Result<std::unique_ptr<Group>> create(const GroupOptions& options);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  /// The hosts that its ranks are on, and the number of this rank's.
  [[nodiscard]] int num_hosts() const;
  [[nodiscard]] int host() const;
  /// The group of its ranks on this host, in their order: the group itself on one host.
  [[nodiscard]] Group& within_host();
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] const Config& config() const;
  [[nodiscard]] const FaultPlan& faults() const;
  /// Whether collectives and fused ops of this rank look for NaN in their floating inputs: at first
  /// Config::nan_check, then what was set last. A call keeps what was set when it was made. So does a graph
  /// that holds it. The switch is local: other ranks may have another value. A new subgroup takes it over.
  /// Errors:  of such calls, at the next Stream::synchronize(): kNumeric with the rank, the op, the tensor,
  ///          the number of NaNs and the index of the first. It poisons the group.
  /// Source:  docs/design/nan_check.md
  [[nodiscard]] bool nan_check() const;
  void set_nan_check(bool is_on);
  /// The measured times that rank 0 found for its device when the group was created. They are the same on
  /// every rank, so that all choose alike. A subgroup has its parent's.
  [[nodiscard]] const cost::Table& tune_table() const;
  /// What was measured on GPUs like the group's, as far as rank 0 found it when the group was created, or
  /// fused::measure_gpus() has measured it since. It is the same on every rank. A subgroup of as many ranks
  /// has its parent's.
  [[nodiscard]] const cost::GpuTimes& gpu_times() const;
  [[nodiscard]] Store& store() const;

  /// Creates a group of some of this group's ranks, in the given order. This is a collective call of these
  /// ranks only.
  /// Errors:  kInvalidArgument if this rank is not among them, for duplicates, and for ranks out of range.
  [[nodiscard]] Result<std::unique_ptr<Group>> subgroup(std::span<const int> ranks, std::string_view name);

  /// Returns ok, or the error that poisoned the group.
  [[nodiscard]] Result<void> status() const;
  /// Poisons the group on every rank. The first error wins. `culprit` is the rank that caused it, or -1 if
  /// that is unknown.
  void poison(const Error& error, int culprit);

  /// Tells the other ranks that this one has refused a collective call instead of making it. They get
  /// kMismatch with the text. It is for callers that check arguments of their own.
  void refuse_call(const Error& why);

  /// Returns every rank's bytes, in rank order. This is a collective call and blocks the host. `what` names
  /// the bytes in errors.
  /// Errors:  kTimeout with the missing ranks, kPeerLost; both poison the group.
  [[nodiscard]] Result<std::vector<Store::Bytes>> all_gather(std::span<const std::byte> mine,
                                                             std::string_view what);

  /// The steps of ops that are enqueued from here on are noted there; null: nowhere. Call it between the same
  /// ops on all ranks. A subgroup has none until it gets one.
  void set_timeline(std::shared_ptr<Timeline> timeline);
  /// Null if there is none.
  [[nodiscard]] Timeline* timeline() const;

  /// The object of type T that the group owns. `make` creates it at the first use. T is a type of the
  /// caller's own, so that callers do not share objects by accident.
  template <class T>
  [[nodiscard]] T& extension(const std::function<std::shared_ptr<T>()>& make) {
    return extension<T>({}, make);
  }
  /// One of several objects of type T, by its name.
  template <class T>
  [[nodiscard]] T& extension(std::string_view name, const std::function<std::shared_ptr<T>()>& make) {
    std::shared_ptr<void>& slot = extension_slot(typeid(T), name);
    if (!slot) slot = make();
    return *static_cast<T*>(slot.get());
  }

  /// Runs `step` when the group ends. The extensions still exist then, and the other ranks can be reached.
  /// Use it to wait for queued work that uses them. `step` must not throw, and must end by itself.
  void before_end(std::function<void()> step);

  class Impl;
  [[nodiscard]] Impl& impl() const { return *impl_; }

 private:
  explicit Group(std::unique_ptr<Impl> impl);
  [[nodiscard]] static Result<std::unique_ptr<Group>> create_across_hosts(const GroupOptions& options);
  std::shared_ptr<void>& extension_slot(std::type_index type, std::string_view name);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
