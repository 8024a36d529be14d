#pragma once

#include <string_view>

namespace tandem::graph::op {

// Ops that passes look for, by the names that captured programs have.

inline constexpr std::string_view kGetItem = "<built-in function getitem>";
inline constexpr std::string_view kSplit = "aten.split.Tensor";
inline constexpr std::string_view kCat = "aten.cat.default";
inline constexpr std::string_view kViewDType = "aten.view.dtype";
inline constexpr std::string_view kReshape = "aten.reshape.default";
inline constexpr std::string_view kView = "aten.view.default";
inline constexpr std::string_view kPermute = "aten.permute.default";

inline constexpr std::string_view kFunctionalAllGather = "_c10d_functional.all_gather_into_tensor.default";
inline constexpr std::string_view kFunctionalReduceScatter = "_c10d_functional.reduce_scatter_tensor.default";
inline constexpr std::string_view kWait = "_c10d_functional.wait_tensor.default";

/// (shard, dim, world size, group) -> the shards of all ranks along `dim`.
inline constexpr std::string_view kAllGather = "tandem.all_gather.default";
/// (partial, "sum" or "avg", dim, world size, group) -> this rank's part, along `dim`, of the reduced whole.
inline constexpr std::string_view kReduceScatter = "tandem.reduce_scatter.default";

}  // namespace tandem::graph::op
