#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

#include "base/function_ref.hpp"
#include "coll/nan_check.hpp"

namespace tandem::coll {

// What every collective op does around its own work, in one place:
//
//   - check its arguments: the op itself; a failure goes through refused(), so that the others hear of it at
//     once;
//
//   - order behind the last op: ops of a group never overlap, also when they are issued on different streams;
//
//   - agree: on the stream; on a GPU on the host when this group meets the fingerprint first, or where ranks
//     share the GPU;
//
//   - workspace: this rank's part of a larger one is made before the agreement, which it may have to refuse,
//     and a barrier behind it, on the stream; on a GPU all of that behind an agreement on the host;
//
//   - check the inputs for NaN, if that is on: Group::nan_check();
//
//   - enqueue the op's own steps, and mark the end for the next op of the group; where ranks share the GPU,
//     the hosts then wait until all of them have;
//
//   - note the call in the group's timeline, if it has one.

struct CollectiveCall {
  Group& group;
  Stream& stream;
  /// Everything that ranks must have in common, as text: op, dtype, sizes. It must decide workspace_bytes.
  std::string_view fingerprint;
  std::int64_t workspace_bytes = 0;  ///< 0: none needed
  /// What a recording of this call needs, if it is more, since none can be made then. The fingerprint decides
  /// it too.
  std::int64_t recorded_workspace_bytes = 0;
  std::string_view label = {};      ///< for profilers and timelines; the fingerprint if it is empty
  std::string_view algorithm = {};  ///< with which the label ends, if it does
  /// What this rank gives to the op, for checks for NaN. An op that has its own leaves it empty.
  std::span<const CheckedInput> inputs = {};
};

/// Enqueues the op's own steps. `workspace` is null where none was asked for, also for a recording. Runs
/// once, before run_collective() returns. From here on the other ranks wait for this one, so an error
/// returned here poisons the group.
using EnqueueSteps = FunctionRef<Result<void>(symm::Handle* workspace)>;

/// Runs one collective op: everything above but the check. Allocates nothing for a fingerprint that the group
/// knows. Errors:  kMismatch, kTimeout, kPeerLost now if the agreement was made on the host, else at the next
///          Stream::synchronize(); those of symm::workspace() and of `enqueue`; the group's if it is
///          poisoned.
[[nodiscard]] Result<void> run_collective(const CollectiveCall& call, EnqueueSteps enqueue);

/// The group's ops use this memory, which the caller owns as long as the group lives. Where they are still
/// queued when the group ends, and it has waited long enough, the memory stays until they have run.
void keep_for_ops(Group& group, const std::shared_ptr<void>& memory);

/// For an op whose arguments were refused here: tells the other ranks, which would wait otherwise.
/// `if (auto ok = check(args); !ok) return refused(group, std::move(ok).error());`
[[nodiscard]] tl::unexpected<Error> refused(Group& group, Error why);

}  // namespace tandem::coll
