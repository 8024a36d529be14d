#pragma once

#include <cstdint>

namespace tandem::coll {

/// Most bytes of a part that go through mailboxes (cuda/mailboxes.hpp), as hosts know it that have no GPU.
inline constexpr std::int64_t kMostMailboxBytes = 2 << 20;

}  // namespace tandem::coll
