#pragma once

#include <cstdint>
#include <limits>
#include <tandem/base/shape.hpp>
#include <vector>

namespace tandem::testing {

/// Where sizes and their products go wrong.
inline const std::vector<std::int64_t> kEdges = {std::numeric_limits<std::int64_t>::min(),
                                                 -1,
                                                 0,
                                                 1,
                                                 std::int64_t{1} << 31,
                                                 std::int64_t{1} << 32,
                                                 std::int64_t{1} << 62,
                                                 std::numeric_limits<std::int64_t>::max()};

/// All lists of one to three of them.
inline std::vector<Dims> edge_sizes() {
  std::vector<Dims> all;
  for (const std::int64_t x : kEdges) {
    all.push_back({x});
    for (const std::int64_t y : kEdges) {
      all.push_back({x, y});
      for (const std::int64_t z : kEdges) all.push_back({x, y, z});
    }
  }
  return all;
}

/// What a machine may have is not for a test to take: neither next to nothing nor more than any has.
inline bool may_be_had(std::int64_t num_bytes) {
  return num_bytes > 64 && num_bytes < std::int64_t{1} << 44;
}

}  // namespace tandem::testing
