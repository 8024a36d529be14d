#pragma once

#include <cstdint>
#include <optional>
#include <tandem/graph/graph.hpp>
#include <vector>

namespace tandem::graph {

// One normal form of what takes a tensor apart: slices, and the items of splits, are runs of it along a dim.
// What puts it together again is judged by these runs alone, never by how many they are.

/// [offset, offset + length) of a tensor along a dim.
struct Block {
  Node* source = nullptr;
  std::size_t dim = 0;
  std::int64_t offset = 0;
  std::int64_t length = 0;
};

/// What a slice with step 1, or an item of a split, takes; nullopt for other nodes.
[[nodiscard]] std::optional<Block> as_block(const Node& node);

/// Whether these are the runs of one tensor along one dim, each of `length`, in their order, from its begin
/// to its end.
[[nodiscard]] bool are_whole_in_order(const std::vector<Block>& blocks, std::int64_t length);

}  // namespace tandem::graph
