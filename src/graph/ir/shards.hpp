#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

/// Argument by name of what gathers: the size over all ranks, where W shards are longer than that. Rank r
/// then holds shard_of(gather_size, W, r), and the rest of its shard is padding that nobody gets.
inline constexpr std::string_view kGatherSize = "gather_size";

/// Argument by name of a fused scatter, true where the ranks do not divide the dim: each gets as many rows as
/// the first one, and zeros behind its own.
inline constexpr std::string_view kPadded = "padded";

/// Argument by name of a merged collective along another dim than 0: the size of the pieces in which the
/// captured program moved it, where that is symbolic.
inline constexpr std::string_view kPiece = "piece";

/// Its gather_size; nullopt where all of every shard is gathered.
[[nodiscard]] inline std::optional<std::int64_t> gather_size_of(const Node& gather) {
  const auto found = gather.named_arguments().find(kGatherSize);
  return found == gather.named_arguments().end() ? std::nullopt : found->second.integer();
}

}  // namespace tandem::graph
