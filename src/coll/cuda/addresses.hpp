#pragma once

namespace tandem::coll::cuda {

/// Addresses that a kernel gets one by one: of layers, or of ranks' memory.
inline constexpr int kMaxAddresses = 16;

}  // namespace tandem::coll::cuda
