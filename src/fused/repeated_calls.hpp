#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

#include "base/function_ref.hpp"
#include "fused/op_memory.hpp"

namespace tandem::fused {

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
void give_up_recording(Replay& replay, const Group& group, const OpPlan& plan, const Error& why);

}  // namespace tandem::fused
