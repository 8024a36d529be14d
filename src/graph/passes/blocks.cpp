#include "graph/passes/blocks.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/products.hpp"

namespace tandem::graph {
namespace {

/// A whole number, or what a missing or null one stands for; nullopt for all else.
std::optional<std::int64_t> integer_or(const Node& node, std::size_t idx, std::int64_t otherwise) {
  if (idx >= node.arguments().size()) return otherwise;
  const Argument& argument = node.arguments()[idx];
  return std::holds_alternative<std::monostate>(argument.value) ? otherwise : argument.integer();
}

/// An end of a slice, as PyTorch takes it: from the back where it is negative, and inside of the tensor.
std::int64_t clamped(std::int64_t at, std::int64_t size) {
  return std::clamp<std::int64_t>(at < 0 ? at + size : at, 0, size);
}

std::optional<Block> as_slice(const Node& node) {
  Node* const source = node.arguments()[0].node();
  if (source == nullptr || source->type().tensor() == nullptr) return std::nullopt;
  const auto& shape = type_of(*source).shape;
  const auto dim = integer_or(node, 1, 0);
  const auto begin = integer_or(node, 2, 0);
  const auto end = integer_or(node, 3, INT64_MAX);
  const auto step = integer_or(node, 4, 1);
  if (!dim || !begin || !end || step != 1 || shape.empty()) return std::nullopt;
  Block block{.source = source, .dim = dim_from_front(*dim, shape.size())};
  if (block.dim >= shape.size()) return std::nullopt;
  const std::int64_t size = shape[block.dim];
  block.offset = clamped(*begin, size);
  block.length = std::max<std::int64_t>(clamped(*end, size) - block.offset, 0);
  return block;
}

/// Of a split by one size or by a list of them: the items' own sizes tell where each begins.
std::optional<Block> as_item(const Node& node) {
  const Node* const split = node.arguments()[0].node();
  const bool is_split =
      split != nullptr && (split->is_call_of(op::kSplit) || split->is_call_of(op::kSplitSizes));
  const auto item = integer_or(node, 1, -1);
  if (!is_split || !item || *item < 0) return std::nullopt;
  Node* const source = split->arguments()[0].node();
  const auto dim = integer_or(*split, 2, 0);
  if (source == nullptr || source->type().tensor() == nullptr || !dim) return std::nullopt;
  const auto& tensors = split->type().tensors;
  // More ranks than a group has. Those before it are added up for each item.
  constexpr std::size_t kMostItems = 1024;
  if (static_cast<std::size_t>(*item) >= std::min(tensors.size(), kMostItems)) return std::nullopt;
  Block block{.source = source, .dim = dim_from_front(*dim, type_of(*source).shape.size())};
  if (block.dim >= type_of(*source).shape.size()) return std::nullopt;
  const std::int64_t size = type_of(*source).shape[block.dim];
  for (std::int64_t i = 0; i <= *item; ++i) {
    const auto& tensor = tensors[static_cast<std::size_t>(i)];
    if (!tensor || block.dim >= tensor->shape.size()) return std::nullopt;
    block.offset += block.length;
    block.length = tensor->shape[block.dim];
    if (block.length > size - block.offset) return std::nullopt;  // nobody has checked the op's own result
  }
  return block;
}

}  // namespace

std::optional<Block> as_block(const Node& node) {
  if (node.kind() != NodeKind::kCall || node.arguments().empty() || node.type().tensor() == nullptr)
    return std::nullopt;
  if (node.is_call_of(op::kSlice)) return as_slice(node);
  if (node.is_call_of(op::kGetItem)) return as_item(node);
  return std::nullopt;
}

bool are_whole_in_order(const std::vector<Block>& blocks, std::int64_t length) {
  if (blocks.empty()) return false;
  const Block& first = blocks[0];
  std::int64_t offset = 0;
  for (const Block& block : blocks) {
    if (block.source != first.source || block.dim != first.dim || block.offset != offset ||
        block.length != length) {
      return false;
    }
    offset += length;
  }
  return offset == type_of(*first.source).shape[first.dim];
}

std::vector<Block> blocks_of(const std::vector<Node*>& parts) {
  std::vector<Block> blocks;
  for (const Node* const part : parts) {
    const auto block = as_block(*part);
    if (!block) return {};
    blocks.push_back(*block);
  }
  return blocks;
}

std::vector<Block> blocks_of_cat(const Node& cat) {
  if (!cat.is_call_of(op::kCat) || cat.arguments()[0].list() == nullptr) return {};
  const auto dim = integer_or(cat, 1, 0);
  if (!dim) return {};
  std::vector<Node*> parts;
  for (const Argument& one : *cat.arguments()[0].list()) parts.push_back(one.node());
  std::vector<Block> blocks = blocks_of(parts);
  const std::size_t along = dim_from_front(*dim, type_of(cat).shape.size());
  const bool is_of_one = std::all_of(blocks.begin(), blocks.end(), [&](const Block& block) {
    return block.source == blocks[0].source && block.dim == along;
  });
  return is_of_one ? blocks : std::vector<Block>();
}

bool are_permuted(const std::vector<Block>& blocks) {
  std::vector<Block> sorted = blocks;
  std::sort(sorted.begin(), sorted.end(), [](const Block& a, const Block& b) {
    return std::pair(a.offset, a.length) < std::pair(b.offset, b.length);
  });
  std::int64_t end = 0;
  for (const Block& block : sorted) {
    if (block.source != sorted[0].source || block.dim != sorted[0].dim || block.offset != end) return false;
    end += block.length;
  }
  return !sorted.empty() && end == type_of(*sorted[0].source).shape[sorted[0].dim];
}

Result<Node*> joined(Graph& graph, Node& place, Node& from, const std::vector<Block>& blocks) {
  const TensorType& whole = type_of(from);
  const auto dim = static_cast<std::int64_t>(blocks[0].dim);
  Argument::List parts;
  std::int64_t size = 0;
  for (const Block& block : blocks) {
    TensorType type = whole;
    type.shape[block.dim] = block.length;
    size += block.length;
    TANDEM_ASSIGN(Node* const part,
                  graph.insert_before(
                      &place, {.name = graph.free_name("slice"),
                               .target = std::string(op::kSlice),
                               .arguments = {{&from}, {dim}, {block.offset}, {block.offset + block.length}},
                               .named_arguments = {},
                               .type = {NodeType::Kind::kTensor, {std::move(type)}}}));
    parts.push_back({part});
  }
  std::vector<std::int64_t> shape = whole.shape;
  shape[blocks[0].dim] = size;
  return graph.insert_before(
      &place, {.name = graph.free_name("cat"),
               .target = std::string(op::kCat),
               .arguments = {{std::move(parts)}, {dim}},
               .named_arguments = {},
               .type = {NodeType::Kind::kTensor, {contiguous_type(std::move(shape), whole.dtype)}}});
}

std::string to_text(const std::vector<Block>& blocks) {
  constexpr std::size_t kMost = 8;  // as many as fit in a line
  std::string text;
  for (std::size_t i = 0; i < std::min(blocks.size(), kMost); ++i)
    text += fmt::format("[{}, {}) ", blocks[i].offset, blocks[i].offset + blocks[i].length);
  if (blocks.size() > kMost) text += "... ";
  const Block& first = blocks[0];
  return text + fmt::format("of {} along dim {}", type_of(*first.source).shape[first.dim], first.dim);
}

}  // namespace tandem::graph
