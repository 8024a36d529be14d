#pragma once

#include <algorithm>
#include <cstdint>
#include <tandem/base/shard.hpp>

namespace tandem::fused {

/// How a rank's part of the rows is cut where it crosses to another host: so that the first rows are there
/// early, and each piece is worth its message.
struct HostChunks {
  std::int64_t units = 1;  ///< of a chunk
  int count = 1;

  /// What a chunk has at least, so that it is worth its message and its product.
  struct Least {
    std::int64_t rows = 32;
    std::int64_t bytes = std::int64_t{256} << 10;
  };

  /// `most_units`: of the largest part, each of so many rows and bytes.
  [[nodiscard]] static HostChunks of(std::int64_t most_units, std::int64_t unit_rows, std::int64_t unit_bytes,
                                     const Least& least) {
    constexpr std::int64_t kMost = 8;
    const std::int64_t by_rows = most_units * unit_rows / least.rows;
    const std::int64_t by_bytes = most_units * unit_bytes / least.bytes;
    const std::int64_t wanted = std::clamp<std::int64_t>(std::min(by_rows, by_bytes), 1, kMost);
    HostChunks chunks;
    chunks.units = std::max<std::int64_t>(1, (most_units + wanted - 1) / wanted);
    chunks.count =
        static_cast<int>(std::max<std::int64_t>(1, (most_units + chunks.units - 1) / chunks.units));
    return chunks;
  }
  /// Everything in one.
  [[nodiscard]] static HostChunks whole(std::int64_t most_units) {
    return {.units = std::max<std::int64_t>(1, most_units), .count = 1};
  }
  /// Of a part of so many units; late ones may be short or empty.
  [[nodiscard]] Shard of_part(std::int64_t part_units, int idx) const {
    const std::int64_t begin = std::min(idx * units, part_units);
    return {begin, std::min(begin + units, part_units) - begin};
  }
};

}  // namespace tandem::fused
