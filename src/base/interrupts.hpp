#pragma once

#include <tandem/base/interrupt.hpp>

namespace tandem {

// What waits ask of this thread's InterruptCheck.

/// Whether to give up. Asks at most once in InterruptCheck::kInterval; a yes is for good.
[[nodiscard]] bool is_interrupted();
/// Whether a wait has given up.
[[nodiscard]] bool was_interrupted();
/// How long a wait may sleep before it asks.
[[nodiscard]] std::chrono::nanoseconds longest_nap();

}  // namespace tandem
