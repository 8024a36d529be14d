#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>
#include <utility>

#include "base/function_ref.hpp"
#include "base/try.hpp"
#include "fused/op_memory.hpp"

namespace tandem::fused {

// What becomes of a call that came before; see replays.hpp.

/// Where this group keeps calls that may come again; null where nothing is gained by a recording of this one,
/// or where it would not be the same: not of native calls, which count; not inside a recording of the
/// caller's; not with a trace, faults or delays, which act while a call is enqueued.
[[nodiscard]] Replays* replays_for(const OpPlan& plan, Group& group, const Stream& stream, bool is_traced);

/// The stream that recordings are made on.
[[nodiscard]] Result<Stream*> recording_stream(Group& group, Device& device);
/// Records `steps`, those of `plan`, on it.
[[nodiscard]] Result<std::unique_ptr<Graph>> record(const OpPlan& plan, Group& group, Stream& on,
                                                    FunctionRef<Result<void>()> steps);

/// Calls with its key go on step by step; all calls of the plan if it is nothing that can be recorded.
void give_up_recording(Replay& replay, const Group& group, OpPlan& plan, const Error& why);

/// An op that may be launched as a recording of an earlier call: add_to_key() adds all that its steps depend
/// on besides its plan and the workspace.
template <class Op>
concept Repeatable = requires(const Op& op, CallKey& key) {
  add_to_key(op, key);
};

/// One call of an op: launched as the graph of an earlier one, or enqueued step by step and recorded when
/// that is due.
template <class Op>
class RepeatedCall {
 public:
  RepeatedCall(OpPlan& plan, const Op& op) : plan_(plan), op_(op), replay_(note()) {}

  [[nodiscard]] Result<void> enqueue_or_launch(symm::Handle* workspace) {
    workspace_ = workspace;
    is_graph_ = replay_ != nullptr && can_launch(*replay_, workspace, in_place().get());
    return is_graph_ ? replay_->graph->launch(op_.stream) : enqueue(op_, plan_.algorithm, workspace);
  }
  [[nodiscard]] bool is_graph() const { return is_graph_; }

  /// Behind what was enqueued, so that no peer waits meanwhile. `get_ready(stream)` makes the same call ready
  /// on another stream.
  template <class GetReady>
  void record_if_due(GetReady get_ready) {
    const bool is_due = replay_ != nullptr && !is_graph_ && !replay_->is_refused &&
                        replay_->num_calls >= op_.group.config().record_after;
    if (!is_due) return;
    auto graph = recorded(get_ready);
    if (!graph) return give_up_recording(*replay_, op_.group, plan_, graph.error());
    replay_->graph = *std::move(graph);
    replay_->workspace = workspace_;
    replay_->in_place = in_place();
  }

 private:
  /// This call among those that came before, or null where it shall not be recorded.
  [[nodiscard]] Replay* note() const {
    if constexpr (Repeatable<Op>) {
      Replays* const replays = replays_for(plan_, op_.group, op_.stream, op_.args.trace != nullptr);
      if (replays == nullptr) return nullptr;
      add_to_key(op_, replays->new_key().add(static_cast<std::int64_t>(plan_.id)));
      return replays->note_call();
    }
    return nullptr;
  }
  /// The memory of peers that the op reads where it is, if any.
  [[nodiscard]] std::shared_ptr<symm::Handle> in_place() const {
    if constexpr (requires { op_.args.a_handle; }) return op_.args.a_handle;
    return nullptr;
  }
  template <class GetReady>
  [[nodiscard]] Result<std::unique_ptr<Graph>> recorded(GetReady get_ready) const {
    TANDEM_ASSIGN(Stream* const on, recording_stream(op_.group, op_.stream.device()));
    TANDEM_ASSIGN(const auto again, get_ready(*on));
    return record(plan_, op_.group, *on, [&] { return enqueue(again.op, plan_.algorithm, workspace_); });
  }

  OpPlan& plan_;
  const Op& op_;
  Replay* replay_;
  symm::Handle* workspace_ = nullptr;  ///< that the call has
  bool is_graph_ = false;
};

}  // namespace tandem::fused
