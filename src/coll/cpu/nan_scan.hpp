#pragma once

#include <cstdint>
#include <tandem/base/tensor.hpp>

namespace tandem::coll::cpu {

struct FoundNan {
  std::int64_t count = 0;
  std::int64_t first = 0;  ///< row-major index in the view; of no meaning where there is none
};

/// Looks at every element of a view of a floating type.
[[nodiscard]] FoundNan find_nan(const TensorView& view);

}  // namespace tandem::coll::cpu
