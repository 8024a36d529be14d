#pragma once

#include <tandem/base/tensor.hpp>

namespace tandem {

/// convert() without its checks, for loops over parts of tensors that are checked: host memory, equal sizes,
/// no overlap.
void convert_elements(const TensorView& from, const TensorView& to);

}  // namespace tandem
