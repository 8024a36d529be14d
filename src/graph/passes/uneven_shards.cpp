#include <algorithm>
#include <cstdint>
#include <numeric>
#include <tandem/base/shard.hpp>
#include <tandem/graph/passes.hpp>

#include "base/try.hpp"
#include "graph/ir/ops.hpp"
#include "graph/ir/shards.hpp"
#include "graph/passes/blocks.hpp"
#include "graph/passes/edits.hpp"
#include "graph/passes/opaque_ops.hpp"
#include "graph/passes/products.hpp"
#include "graph/passes/row_local.hpp"

namespace tandem::graph {
namespace {

using Shape = std::vector<std::int64_t>;

std::int64_t outer_size(const Shape& shape, std::size_t dim) {
  return std::accumulate(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(dim), std::int64_t{1},
                         std::multiplies<>());
}

/// Whether a dim of a reshaped tensor is divided over ranks as another dim of the tensor is: what comes
/// before it has as many elements, and it has whole rows for each rank.
bool is_same_division(const Shape& shape, std::size_t dim, const Shape& reshaped, std::size_t reshaped_dim,
                      std::int64_t world) {
  return outer_size(shape, dim) == outer_size(reshaped, reshaped_dim) && reshaped[reshaped_dim] % world == 0;
}

/// Whether `part` rows are a full shard of `size` rows, of which the last ranks have fewer.
bool is_uneven(std::int64_t size, std::int64_t part, std::int64_t world) {
  return size > 0 && size < part * world && shard_stride(size, static_cast<int>(world)) == part;
}

// ---- Gathers ----

/// Where all that reads a gather, or the one reshape of it, takes the same block.
struct Trim {
  Node* reshape = nullptr;  ///< or null
  Block block;
  std::vector<Node*> slices;
};

/// Whether it stays as it was captured where the slice becomes contiguous.
bool is_dense(const Node& user) {
  return user.type().tensor() != nullptr && type_of(user).is_contiguous();
}

std::optional<Trim> trim_of(const Node& node) {
  Trim trim;
  for (Node* const user : node.users()) {
    const auto block = as_block(*user);
    if (!block || block->source != &node || !user->is_call_of(op::kSlice)) return std::nullopt;
    const bool is_first = trim.slices.empty();
    if (!is_first && (block->dim != trim.block.dim || block->length != trim.block.length))
      return std::nullopt;
    const bool has_other_strides =
        !type_of(*user).is_contiguous() && !std::all_of(user->users().begin(), user->users().end(),
                                                        [](const Node* one) { return is_dense(*one); });
    if (block->offset != 0 || has_other_strides) return std::nullopt;
    trim.block = *block;
    trim.slices.push_back(user);
  }
  return trim.slices.empty() ? std::nullopt : std::optional(std::move(trim));
}

Result<void> trim_gather(Graph& graph, Node& gather) {
  auto trim = trim_of(gather);
  Node* const user = only_user(gather);
  if (!trim && user != nullptr && is_view_op(*user) && !user->is_call_of(op::kClone)) {
    trim = trim_of(*user);
    if (trim) trim->reshape = user;
  }
  if (!trim) return {};
  const Collective collective = as_collective(gather);
  const Shape& whole = type_of(*trim->block.source).shape;
  const std::size_t dim = trim->block.dim;
  const bool is_divided =
      is_same_division(type_of(gather).shape, collective.dim, whole, dim, collective.world);
  if (!is_divided || !is_uneven(trim->block.length, whole[dim] / collective.world, collective.world))
    return {};
  Shape shard_shape = whole;
  shard_shape[dim] /= collective.world;
  TANDEM_ASSIGN(Node* const shard, reshaped(graph, gather, *collective.input, shard_shape));
  Shape shape = whole;
  shape[dim] = trim->block.length;
  TANDEM_ASSIGN(
      Node* const trimmed,
      graph.insert_before(
          &gather,
          {.kind = NodeKind::kCall,
           .name = graph.free_name("all_gather"),
           .target = std::string(op::kAllGather),
           .arguments = {{shard}, {static_cast<std::int64_t>(dim)}, {collective.world}, collective.group},
           .named_arguments = {{std::string(kGatherSize), {trim->block.length}}},
           .type = {NodeType::Kind::kTensor, {contiguous_type(shape, type_of(gather).dtype)}},
           .collectives = gather.collectives()}));
  for (Node* const slice : trim->slices) {
    graph.replace_uses(*slice, *trimmed);
    TANDEM_TRY(graph.erase(*slice));
  }
  if (trim->reshape != nullptr) TANDEM_TRY(graph.erase(*trim->reshape));
  return graph.erase(gather);
}

// ---- Scatters ----

bool is_zero(const Argument& argument) {
  const auto* const number = std::get_if<double>(&argument.value);
  return number != nullptr ? *number == 0.0 : argument.integer() == 0;
}

/// What zeros are added to, at the end of `dim` alone; null for other nodes. `rows`: how many.
Node* below_padding(const Node& node, std::size_t dim, std::int64_t& rows) {
  if (!node.is_call_of("aten.constant_pad_nd.default") || node.arguments().size() < 2) return nullptr;
  Node* const below = node.arguments()[0].node();
  const auto* const pads = node.arguments()[1].list();
  if (below == nullptr || below->type().tensor() == nullptr || pads == nullptr) return nullptr;
  if (node.arguments().size() > 2 && !is_zero(node.arguments()[2])) return nullptr;
  const std::size_t num_dims = type_of(*below).shape.size();
  rows = 0;
  for (std::size_t i = 0; i < pads->size(); ++i) {  // of the last dim first, and of each its begin first
    const auto pad = (*pads)[i].integer();
    const bool is_end = i / 2 < num_dims && num_dims - 1 - i / 2 == dim && i % 2 == 1;
    if (!pad || *pad < 0 || (*pad != 0 && !is_end)) return nullptr;
    if (is_end) rows = *pad;
  }
  return below;
}

/// What a tensor along `dim` is but for rows of zeros behind it.
Node* below_rows_of_zeros(Node& node, std::size_t dim, std::int64_t world) {
  std::int64_t rows = 0;
  if (Node* const below = below_padding(node, dim, rows); below != nullptr) return below;
  if (!node.is_call_of(op::kCat) || node.arguments()[0].list() == nullptr) return nullptr;
  const auto num_dims = type_of(node).shape.size();
  const auto along = node.arguments().size() > 1 ? node.arguments()[1].integer() : 0;
  if (!along || dim_from_front(*along, num_dims) != dim) return nullptr;
  std::vector<Block> blocks;
  for (const Argument& one : *node.arguments()[0].list()) {
    Node* part = one.node();
    if (Node* const below = below_padding(*part, dim, rows); below != nullptr) part = below;
    const bool has_rows =
        type_of(*part).numel() != 0 && !(part->is_call_of(op::kFull) && is_zero(part->arguments()[1]));
    const auto block = as_block(*part);
    if (has_rows && !block) return nullptr;
    blocks.push_back(block.value_or(Block{.dim = dim}));
  }
  Node* const source = blocks[0].source;
  if (source == nullptr || blocks.size() != static_cast<std::size_t>(world)) return nullptr;
  const std::int64_t size = type_of(*source).shape[dim];
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    const Block& block = blocks[rank];
    const Shard shard = shard_of(size, static_cast<int>(world), static_cast<int>(rank));
    const bool is_there = block.source == source && block.dim == dim && block.offset == shard.offset;
    if (block.length != shard.size || (shard.size != 0 && !is_there)) return nullptr;
  }
  return source;
}

Result<void> scatter_without_padding(Graph& graph, Node& scatter, const OpaqueOps& opaque) {
  const Collective collective = as_collective(scatter);
  const auto* const op = std::get_if<std::string>(&scatter.arguments()[1].value);
  if (op == nullptr || (*op != "sum" && *op != "avg")) return {};
  Node* padded = collective.input;
  if (is_view_op(*padded) && !padded->is_call_of(op::kClone)) padded = padded->arguments()[0].node();
  const Shape& shape = type_of(*padded).shape;
  const Shape& reduced = type_of(*collective.input).shape;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (!is_same_division(reduced, collective.dim, shape, dim, collective.world)) continue;
    Node* const below = below_rows_of_zeros(*padded, dim, collective.world);
    if (below == nullptr || type_of(*below).dtype != type_of(*padded).dtype) continue;
    if (opaque.between(*below, scatter, {below, padded})) continue;
    if (!is_uneven(type_of(*below).shape[dim], shape[dim] / collective.world, collective.world)) continue;
    Shape part = shape;
    part[dim] /= collective.world;
    TANDEM_ASSIGN(Node* const made,
                  graph.insert_before(&scatter, {.kind = NodeKind::kCall,
                                                 .name = graph.free_name("reduce_scatter"),
                                                 .target = std::string(op::kReduceScatter),
                                                 .arguments = {{below},
                                                               scatter.arguments()[1],
                                                               {static_cast<std::int64_t>(dim)},
                                                               {collective.world},
                                                               collective.group},
                                                 .named_arguments = {},
                                                 .type = {NodeType::Kind::kTensor,
                                                          {contiguous_type(part, type_of(scatter).dtype)}},
                                                 .collectives = scatter.collectives()}));
    TANDEM_ASSIGN(Node* const instead, reshaped(graph, scatter, *made, type_of(scatter).shape));
    graph.replace_uses(scatter, *instead);
    return erase_unused(graph, scatter);
  }
  return {};
}

}  // namespace

Result<void> uneven_shards(Graph& graph) {
  if (graph.has_symbols()) return {};  // nothing says that padding is what the shard rule pads
  const OpaqueOps opaque(graph);
  std::vector<Node*> gathers;
  std::vector<Node*> scatters;
  for (Node& node : graph.nodes()) {
    if (node.is_call_of(op::kAllGather) && !gather_size_of(node)) gathers.push_back(&node);
    if (node.is_call_of(op::kReduceScatter)) scatters.push_back(&node);
  }
  for (Node* const gather : gathers) TANDEM_TRY(trim_gather(graph, *gather));
  for (Node* const scatter : scatters) TANDEM_TRY(scatter_without_padding(graph, *scatter, opaque));
  return {};
}

}  // namespace tandem::graph
