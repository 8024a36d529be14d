#pragma once

#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>

namespace tandem::coll {

// Checks for NaN in what a call is given: docs/design/nan_check.md.

/// A tensor that a call reads.
struct CheckedInput {
  std::string_view name;
  const TensorView* view = nullptr;  ///< null: the call has none
};

/// Makes what this rank's checks need, so that enqueuing one allocates nothing. Local.
/// Errors: those of symm::reporter_of() and Device::create_stream(); kUnsupported without a backend.
[[nodiscard]] Result<void> prepare_nan_checks(Group& group, Device& device);

/// Enqueues a look at each element on `stream`. Nothing to do for empty tensors and types without NaN. `op`:
/// as the error names it.
/// Errors: kUnsupported; what it finds is kNumeric at the next Stream::synchronize(), and poisons the group.
[[nodiscard]] Result<void> enqueue_nan_check(std::string_view op, const CheckedInput& input, Group& group,
                                             Stream& stream);

/// The checks of a collective, on the group's side lane: later work on `stream` waits for them.
[[nodiscard]] Result<void> enqueue_nan_checks(std::string_view op, std::span<const CheckedInput> inputs,
                                              Group& group, Stream& stream);

}  // namespace tandem::coll
