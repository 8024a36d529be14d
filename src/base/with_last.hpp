#pragma once

#include <cstdint>
#include <tandem/base/shape.hpp>

namespace tandem {

/// `sizes`, of one dim at least, with another last one.
[[nodiscard]] inline Dims with_last(Dims sizes, std::int64_t last) {
  sizes[sizes.size() - 1] = last;
  return sizes;
}

}  // namespace tandem
