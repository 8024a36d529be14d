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
#include <tandem/cost/table.hpp>
#include <typeindex>
#include <typeinfo>
#include <vector>

namespace tandem {

struct GroupOptions {
  int rank = 0;
  int size = 1;
  std::string name = "world";
  std::shared_ptr<Store> store;
  Config config = {};
  /// What the group's ops will run on: Device::description(). Rank 0's counts, for all: under that name it
  /// looks for measured times in Config::tune_folder. Empty: `auto` takes what is predicted.
  std::string device = {};
};

/// The ranks that run an op together. Every rank issues the group's ops in the same order; ops of one group
/// never overlap each other, ops of different groups may. One host thread at a time may use a Group.
///
/// Ranks may issue ops of different groups in different orders if each group has a stream of its own. On CPUs
/// an op does not wait on the host for another rank's call; a refused one waits for the group's earlier ops.
/// The host does wait in create(), subgroup(), all_gather(), symm::rendezvous(), symm::workspace(),
/// Stream::synchronize(), and on GPUs in a group's first call of a problem: call these in the same order on
/// all ranks, or use one host thread for each group. Hosts and CPU streams that wait for each other in a
/// circle get kMismatch after about 0.3 s, on every rank in it; the text names the groups and the calls. The
/// thread that used a group last counts as the one that has to act for it: a thread that takes a group over
/// from one that waits in another group must come sooner than that.
///
/// After a timeout, a lost peer or a mismatch the group is *poisoned*: every later call on every rank returns
/// the first error, and only destroying it (and creating another) helps.
class Group {
 public:
  /// Collective over `size` ranks. A name may be used again after the group is destroyed.
  /// Errors: kInvalidArgument for a rank outside [0, size), size < 1, or a rank that is already taken;
  ///         kTimeout naming the ranks that did not come; kMismatch when ranks disagree about the size or
  ///         version.
  [[nodiscard]] static Result<std::unique_ptr<Group>> create(const GroupOptions& options);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] const std::string& name() const;
  [[nodiscard]] const Config& config() const;
  [[nodiscard]] const FaultPlan& faults() const;
  /// What rank 0 found measured on its device when the group was made; a subgroup has its parent's. The same
  /// on every rank, so that all choose alike.
  [[nodiscard]] const cost::Table& tune_table() const;
  [[nodiscard]] Store& store() const;

  /// A group of some of this group's ranks, in the order given; collective over those ranks only.
  /// Errors: kInvalidArgument when this rank is not among them, or for duplicates and ranks out of range.
  [[nodiscard]] Result<std::unique_ptr<Group>> subgroup(std::span<const int> ranks, std::string_view name);

  /// Ok, or the error that poisoned the group.
  [[nodiscard]] Result<void> status() const;
  /// Poisons the group on every rank; the first error wins. `culprit` is the rank at fault, -1 if unknown.
  void poison(const Error& error, int culprit);

  /// Every rank's bytes, in rank order; blocks the host. Collective.
  /// Errors: kTimeout naming the missing ranks, kPeerLost; both poison the group.
  [[nodiscard]] Result<std::vector<Store::Bytes>> all_gather(std::span<const std::byte> mine,
                                                             std::string_view what);

  /// The object of type T that lives with the group, made by `make` at first use. T is a type of the caller's
  /// own: whoever names another type gets another object.
  template <class T>
  [[nodiscard]] T& extension(const std::function<std::shared_ptr<T>()>& make) {
    return extension<T>({}, make);
  }
  /// One of several of type T, by its name.
  template <class T>
  [[nodiscard]] T& extension(std::string_view name, const std::function<std::shared_ptr<T>()>& make) {
    std::shared_ptr<void>& slot = extension_slot(typeid(T), name);
    if (!slot) slot = make();
    return *static_cast<T*>(slot.get());
  }

  /// `step` runs when the group ends, before any extension goes and while the other ranks can still be
  /// reached. For work in streams that uses what lives with the group. It must not throw, and must end by
  /// itself.
  void before_end(std::function<void()> step);

  class Impl;
  [[nodiscard]] Impl& impl() const { return *impl_; }

 private:
  explicit Group(std::unique_ptr<Impl> impl);
  std::shared_ptr<void>& extension_slot(std::type_index type, std::string_view name);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem
