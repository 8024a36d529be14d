#pragma once

#include "program/attention.hpp"
#include "program/call.hpp"

namespace tandem::program {

/// What the attention was computed from whose gradient the call computes.
[[nodiscard]] Result<AttentionInput> input_of_backward(const Call& call);

}  // namespace tandem::program
