#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem {

/// One rank's part [offset, offset + size) of a dimension.
struct Shard {
  std::int64_t offset = 0;
  std::int64_t size = 0;
};

/// The size of a full shard: ceil(total / world). Buffers and slots have room for it.
[[nodiscard]] constexpr std::int64_t shard_stride(std::int64_t total, int world) {
  return (total + world - 1) / world;
}

/// The shard of a rank by the shard rule, which is that of torch.chunk and DTensor. Offsets are multiples of
/// shard_stride(). Late shards may be short or empty.
[[nodiscard]] constexpr Shard shard_of(std::int64_t total, int world, int rank) {
  const std::int64_t stride = shard_stride(total, world);
  const std::int64_t begin = std::min(total, rank * stride);
  return {begin, std::min(total, begin + stride) - begin};
}

}  // namespace tandem
