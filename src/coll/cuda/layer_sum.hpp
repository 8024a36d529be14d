#pragma once

#include "coll/backend.hpp"
#include "coll/cuda/layer_sum_kernel.hpp"

namespace tandem::coll::cuda {

/// reduce_stack() as its kernel sees it.
[[nodiscard]] LayerSum layer_sum_of(const ReduceStackArgs& args);
/// The same of at most kMaxAddresses layers that lie anywhere.
[[nodiscard]] LayerSum layer_sum_of(const ReduceLayersArgs& args);

}  // namespace tandem::coll::cuda
