#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tandem/graph/graph.hpp>
#include <unordered_set>
#include <vector>

namespace tandem::graph {

/// A product of two matrices, whatever op computes it.
struct Product {
  Node* node = nullptr;
  Node* computed_at = nullptr;  ///< the call that multiplies: `node`, or one whose result `node` scales
  Node* a = nullptr;
  Node* b = nullptr;
  Node* bias = nullptr;     ///< a row; or null
  Node* addend = nullptr;   ///< of the result's shape; or null
  Node* a_scale = nullptr;  ///< null: not scaled
  Node* b_scale = nullptr;
  Node* result_scale = nullptr;  ///< or null
  Argument out_dtype = {};       ///< of a scaled one
  bool fast_accum = false;
  bool is_widened = false;   ///< `node` casts the plain product to f32
  bool has_factors = false;  ///< of addmm: alpha and beta are not 1, or it adds neither row nor matrix

  [[nodiscard]] bool is_scaled() const { return a_scale != nullptr; }
  /// All but a and its scale.
  [[nodiscard]] std::vector<Node*> other_operands() const;
  /// 2 m n k.
  [[nodiscard]] double flops() const;
};

/// What mm, addmm and _scaled_mm compute.
[[nodiscard]] std::optional<Product> as_product(Node& node);

/// Which argument of such a call is the left operand.
[[nodiscard]] std::size_t left_of(const Node& product);

/// The products whose sum a fused scatter or all-reduce takes; none of other nodes.
[[nodiscard]] std::vector<Product> products_scattered_by(Node& fused);

/// Whether fused ops multiply tensors of this type without scales, and scatter them.
[[nodiscard]] bool is_product_type(std::string_view dtype);

[[nodiscard]] const TensorType& type_of(const Node& node);
/// Bytes of an element; 0 for a type that tandem does not have.
[[nodiscard]] std::int64_t element_bytes(const TensorType& type);
[[nodiscard]] inline std::int64_t element_bytes(const Node& node) {
  return element_bytes(type_of(node));
}
/// Counted from the front; `num_dims` of a tensor.
[[nodiscard]] std::size_t dim_from_front(std::int64_t dim, std::size_t num_dims);

/// A tandem.all_gather or tandem.reduce_scatter, or an all-reduce.
struct Collective {
  Node* input = nullptr;
  std::size_t dim = 0;
  std::int64_t world = 1;  ///< 0: that of its group; of an all-reduce, which has no dim either
  Argument group;
};
[[nodiscard]] Collective as_collective(const Node& node);
/// What it is called in the captured program.
[[nodiscard]] std::set<std::string> names_of(const Node& collective);
/// Whether it is of the group, and of all ranks, of the program.
[[nodiscard]] bool is_of_all(const Collective& collective, const GraphHeader& header);

/// Whether nodes are, or are computed from, one of them. Remembers what it has seen: the graph must stay as
/// it is.
class Dependence {
 public:
  explicit Dependence(const Node& source) : source_(source) {}
  [[nodiscard]] bool of(const Node& node);

 private:
  const Node& source_;
  std::unordered_set<const Node*> independent_;
};

}  // namespace tandem::graph
