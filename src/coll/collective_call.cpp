#include "coll/collective_call.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <tandem/symm/symmetric_memory.hpp>
#include <utility>
#include <variant>
#include <vector>

#include "base/executor.hpp"
#include "base/format.hpp"
#include "base/lru_cache.hpp"
#include "base/try.hpp"
#include "bootstrap/hosts.hpp"
#include "coll/orphaned_memory.hpp"
#include "device/profiler.hpp"
#include "symm/agreement.hpp"
#include "symm/op_workspace.hpp"
#include "timeline/timeline_impl.hpp"

namespace tandem::coll {
namespace {

/// The order of a group's ops on this rank; lives in the group.
class OpOrder {
 public:
  explicit OpOrder(std::size_t max_problems) : known_(max_problems) {}
  [[nodiscard]] static OpOrder& of(Group& group) {
    return group.extension<OpOrder>([&group] {
      OrphanedMemory::of_process().free_unused();
      auto order = std::make_shared<OpOrder>(static_cast<std::size_t>(group.config().max_plans));
      group.before_end([order = order.get(), &group] { order->await_end(group); });
      return order;
    });
  }

  // Not in a recording: it is ordered by the stream that it is made on, and its replays by the streams that
  // they are launched on. A mark from outside means nothing in it, nor one of its own outside.

  /// Later work on `stream` comes behind the group's last op, and mark_end() on it is possible.
  [[nodiscard]] Result<void> enter(Stream& stream) {
    if (end_ && last_stream_ != stream.id()) TANDEM_TRY(stream.wait(*end_));
    if (device_ == &stream.device()) return {};
    TANDEM_ASSIGN(std::unique_ptr<Event> end, stream.device().create_mark());
    for (auto& milestone : milestones_) {
      TANDEM_ASSIGN(milestone, stream.device().create_mark());
    }
    // Behind what another device still does for the group, also if this op comes to nothing.
    TANDEM_TRY(stream.record(*end));
    end_ = std::move(end);
    device_ = &stream.device();
    last_stream_ = 0;
    return {};
  }
  [[nodiscard]] Result<void> mark_end(Stream& stream) {
    last_stream_ = stream.id();
    TANDEM_TRY(stream.record(*end_));
    const int ops_to_milestone = stream.device().max_queued_ops() / 2;
    if (++num_ops_ % ops_to_milestone != 0) return {};
    return pass_milestone(num_ops_ / ops_to_milestone % 2, stream);
  }

  /// Whether the group has agreed on this problem on this device before, and remembers it. All ranks come to
  /// the same answer: it follows from the order of the group's ops alone.
  [[nodiscard]] bool knows(std::uint64_t problem, const Device& device) {
    return known_.find({problem, &device}) != nullptr;
  }
  void learn(std::uint64_t problem, const Device& device) { known_.insert({problem, &device}, {}); }

  void keep(const std::shared_ptr<void>& memory) {
    if (!kept_.empty() && kept_.back().lock() == memory) return;
    std::erase_if(kept_, [&](const auto& one) { return one.expired() || one.lock() == memory; });
    kept_.push_back(memory);
  }

 private:
  /// A problem, by its fingerprint's hash, on a device, which is compared only.
  using Known = std::pair<std::uint64_t, const Device*>;
  struct HashKnown {
    std::size_t operator()(const Known& known) const { return known.first; }
  };

  /// Holds the host back while it is more than two milestones ahead of the device: a queue takes memory, and
  /// what is queued beyond a driver's own limit would hold the host back too, inside the driver, where no
  /// deadline reaches.
  [[nodiscard]] Result<void> pass_milestone(std::int64_t which, Stream& stream) {
    Event& milestone = *milestones_[which];
    if (!milestone.is_done()) {
      // Other ranks' hosts may be held back too, by ops of other groups: a circle that is found.
      const WaitsForExecutor waits(executor_of_stream(milestone_streams_[which]));
      // Whatever is wrong with that op is told by its stream.
      static_cast<void>(milestone.synchronize(Deadline::after(stream.device().config().op_timeout)));
    }
    milestone_streams_[which] = stream.id();
    return stream.record(milestone);
  }

  /// The group's memory goes after this, so its ops must have run. If that takes longer than any wait of
  /// theirs may, the poison ends those waits. What then still takes as long, work of the user's before them
  /// or a device that others use, is not waited for, and what they use stays.
  void await_end(Group& group) {
    OrphanedMemory& orphans = OrphanedMemory::of_process();
    orphans.free_unused();
    if (!end_) return;
    const auto patience = std::max(group.config().op_timeout, group.config().rendezvous_timeout);
    static_cast<void>(end_->synchronize(Deadline::after(patience)));
    if (end_->is_done()) return;
    group.poison(Error(ErrorCode::kTimeout,
                       fmt::format("rank {} ended the group while its last op was still queued after {} ms",
                                   group.rank(), patience.count())),
                 group.rank());
    static_cast<void>(end_->synchronize(Deadline::after(patience)));
    if (!end_->is_done()) orphans.add(std::move(end_), alive());
  }

  [[nodiscard]] std::vector<std::shared_ptr<void>> alive() const {
    std::vector<std::shared_ptr<void>> all;
    for (const auto& one : kept_) {
      if (auto memory = one.lock()) all.push_back(std::move(memory));
    }
    return all;
  }

  std::unique_ptr<Event> end_;
  std::unique_ptr<Event> milestones_[2];
  std::uint64_t milestone_streams_[2] = {};  // on which they were recorded last, by their ids
  std::int64_t num_ops_ = 0;
  const Device* device_ = nullptr;  // of end_
  std::uint64_t last_stream_ = 0;   // the one on which end_ was recorded last, by its id
  LruCache<Known, std::monostate, HashKnown> known_;
  std::vector<std::weak_ptr<void>> kept_;
};

/// What one rank records and another runs is not one problem; and what is met while it is recorded makes no
/// memory, so that it is another one when it is run.
bootstrap::Fingerprint fingerprint_of(const CollectiveCall& call, bool is_recorded) {
  if (!is_recorded) return bootstrap::Fingerprint::of(call.fingerprint);
  return bootstrap::Fingerprint::of(fmt::format("{}, recorded", call.fingerprint));
}

/// A call on which the ranks agree.
struct AgreedCall {
  std::uint64_t sequence = 0;
  std::shared_ptr<symm::Handle> workspace = nullptr;  ///< null where none is needed
};
Result<AgreedCall> agree(const CollectiveCall& call, const bootstrap::Fingerprint& fingerprint,
                         bool is_known) {
  Device& device = call.stream.device();
  // Once it is there it stays, so a known problem's recordings have theirs.
  const std::int64_t needed_bytes =
      is_known ? call.workspace_bytes : std::max(call.workspace_bytes, call.recorded_workspace_bytes);
  TANDEM_ASSIGN(const bool can_place, symm::can_place(device));
  if (!is_known && !can_place) {
    TANDEM_ASSIGN(const std::uint64_t sequence, symm::agree_now(call.group, fingerprint));
    if (needed_bytes == 0) return AgreedCall{sequence};
    TANDEM_ASSIGN(auto workspace, symm::workspace(call.group, device, needed_bytes));
    return AgreedCall{sequence, std::move(workspace)};
  }
  auto larger = symm::place_workspace(call.group, device, needed_bytes);
  if (!larger) return refused(call.group, std::move(larger).error());
  // The others may come later to a new problem than to one that all have prepared.
  const Config& config = call.group.config();
  TANDEM_ASSIGN(const std::uint64_t sequence,
                symm::agree(call.stream, call.group, fingerprint,
                            is_known ? config.op_timeout : config.rendezvous_timeout));
  if (needed_bytes == 0) return AgreedCall{sequence};
  TANDEM_ASSIGN(auto workspace, symm::connect_workspace(call.group, call.stream, *std::move(larger)));
  return AgreedCall{sequence, std::move(workspace)};
}

}  // namespace

Result<void> run_collective(const CollectiveCall& call, EnqueueSteps enqueue) {
  TANDEM_TRY(bootstrap::check_one_host(call.group, call.fingerprint));
  TANDEM_TRY(call.group.status());
  const std::string_view label = call.label.empty() ? call.fingerprint : call.label;
  Device& device = call.stream.device();
  std::optional<Stream::Range> range;  // "all_gather_matmul [4096,3584,8192] bf16 native rank 1"
  if (device.service<Profiler>() != nullptr)
    range.emplace(call.stream, fmt::format("{} rank {}", label, call.group.rank()));
  OpOrder& order = OpOrder::of(call.group);
  const bool is_recorded = call.stream.is_capturing();  // asks the driver, so once
  timeline::NotedCall noted(call.group);
  auto entered = noted.begin(call.stream, label, call.algorithm, is_recorded);
  if (entered && !is_recorded) entered = order.enter(call.stream);
  if (!entered) return refused(call.group, std::move(entered).error());

  const bool checks_nan = !call.inputs.empty() && call.group.nan_check();
  if (checks_nan) {
    if (auto ready = prepare_nan_checks(call.group, device); !ready)
      return refused(call.group, std::move(ready).error());
  }

  const auto fingerprint = fingerprint_of(call, is_recorded);
  const bool is_known = order.knows(fingerprint.hash, device);
  TANDEM_ASSIGN(const AgreedCall agreed, agree(call, fingerprint, is_known));
  const std::shared_ptr<symm::Handle>& workspace = agreed.workspace;
  if (workspace) order.keep(workspace);
  if (!is_known) order.learn(fingerprint.hash, device);

  auto enqueued = noted.agreed(call.stream);
  if (enqueued && checks_nan)
    enqueued = enqueue_nan_checks(call.fingerprint, call.inputs, call.group, call.stream);
  noted.checked();
  if (enqueued) enqueued = enqueue(workspace.get());
  if (enqueued) enqueued = noted.finish(call.stream);
  if (enqueued && !is_recorded) enqueued = order.mark_end(call.stream);
  if (enqueued) return symm::end_call(call.stream, call.group, agreed.sequence);
  const Error& why = enqueued.error();
  call.group.poison(
      Error(why.code(),
            fmt::format("rank {} could not enqueue {}: {}", call.group.rank(), call.fingerprint, why.text()),
            why.native_code()),
      call.group.rank());
  // The steps before the one that failed are queued.
  if (!is_recorded) static_cast<void>(order.mark_end(call.stream));
  return call.group.status();
}

void keep_for_ops(Group& group, const std::shared_ptr<void>& memory) {
  OpOrder::of(group).keep(memory);
}

tl::unexpected<Error> refused(Group& group, Error why) {
  return tl::unexpected<Error>(symm::refuse(group, std::move(why)));
}

}  // namespace tandem::coll
