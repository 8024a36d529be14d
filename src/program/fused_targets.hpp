#pragma once

#include <string_view>

namespace tandem::program {

inline constexpr std::string_view kFusedAllGatherMatmul = "symm_mem.fused_all_gather_matmul.default";
inline constexpr std::string_view kFusedMatmulReduceScatter = "symm_mem.fused_matmul_reduce_scatter.default";

}  // namespace tandem::program
