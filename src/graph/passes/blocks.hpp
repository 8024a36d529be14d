#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tandem/base/error.hpp>
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

/// What the parts of a cat are of their sources; empty where one is no block.
[[nodiscard]] std::vector<Block> blocks_of(const std::vector<Node*>& parts);
/// The same for a cat along its dim of blocks of one tensor along that dim; empty for other nodes.
[[nodiscard]] std::vector<Block> blocks_of_cat(const Node& cat);

/// Whether each element of one tensor is in just one of these blocks of it along one dim: its blocks in
/// another order, or in their own.
[[nodiscard]] bool are_permuted(const std::vector<Block>& blocks);

/// These blocks of `from`, which stands for their source, joined in their order before `place`.
[[nodiscard]] Result<Node*> joined(Graph& graph, Node& place, Node& from, const std::vector<Block>& blocks);

/// "[0, 5) [8, 13) of 16 along dim 0".
[[nodiscard]] std::string to_text(const std::vector<Block>& blocks);

}  // namespace tandem::graph
