#include "graph/interpreter/sizes.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/ops.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

HostTensor whole_number(std::int64_t value) {
  return HostTensor::from(std::span<const std::int64_t>(&value, 1), {}, DType::kI64);
}

/// A call's argument that is the sizes of the tensor that it makes.
struct SizesArgument {
  std::string_view target;
  std::size_t place;
};
constexpr SizesArgument kSizesArguments[] = {
    {graph::op::kReshape, 1},
    {graph::op::kView, 1},
    {graph::op::kUnsafeView, 1},
    {"aten.expand.default", 1},
    {graph::op::kFull, 0},
    {"aten.empty.memory_format", 0},
    {"aten.ones.default", 0},
    {"aten.rand.default", 0},
    {"aten.randn.default", 0},
    {"aten.zeros.default", 0},
    {"prims.broadcast_in_dim.default", 1},
    {"prims.inductor_randint.default", 2},
    {"prims.inductor_random.default", 0},
};

/// Notes sizes that inputs of a program are.
class Sizes {
 public:
  explicit Sizes(Inputs& known) : known_(known) {}

  void read(const graph::Node& node) {
    const graph::TensorType* const type = node.type().tensor();
    if (node.kind() != graph::NodeKind::kCall || type == nullptr) return;
    if (node.is_call_of(graph::op::kSlice)) read_slice(node, *type);
    for (const SizesArgument& each : kSizesArguments) {
      if (!node.is_call_of(each.target) || node.arguments().size() <= each.place) continue;
      const auto sizes = node.arguments()[each.place].entries();
      for (std::size_t d = 0; d < std::min(sizes.size(), type->shape.size()); ++d) {
        note(sizes[d], type->shape[d]);
      }
    }
  }

 private:
  void note(const graph::Argument& size, std::int64_t value) {
    const graph::Node* const node = size.node();
    if (node != nullptr && node->is_given()) known_.try_emplace(node->name(), whole_number(value));
  }

  /// (x, dim, start, end), whose end is taken from what it leaves, unless it cuts off less than it could.
  void read_slice(const graph::Node& node, const graph::TensorType& type) {
    const auto& arguments = node.arguments();
    const graph::Node* const whole = arguments[0].node();
    if (arguments.size() != 4 || !arguments[1].integer() || !arguments[2].integer()) return;
    const auto num_dims = static_cast<std::int64_t>(type.shape.size());
    const std::int64_t dim = *arguments[1].integer() + (*arguments[1].integer() < 0 ? num_dims : 0);
    const std::int64_t start = *arguments[2].integer();
    const bool is_whole = whole != nullptr && whole->type().tensor() != nullptr;
    if (dim < 0 || dim >= num_dims || start < 0 || !is_whole) return;
    note(arguments[3], start + type.shape[static_cast<std::size_t>(dim)]);
  }

  Inputs& known_;
};

// ---- ops that compute sizes, for files without hints

Result<Values> size_of_dim(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  TANDEM_ASSIGN(const int dim, call.dim(1, x));
  return one(whole_number(x.sizes()[dim]));
}

Result<Values> num_elements(const Call& call) {
  TANDEM_ASSIGN(const HostTensor x, call.tensor(0));
  return one(whole_number(x.numel()));
}

std::int64_t floor_of_quotient(std::int64_t x, std::int64_t y) {
  return x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0);
}

/// Python's ops on two whole numbers. Errors: kUnsupported beyond 64 bits, and for a divisor of 0 or -1.
template <char kOp>
Result<Values> arithmetic(const Call& call) {
  TANDEM_ASSIGN(const std::int64_t x, call.integer(0));
  TANDEM_ASSIGN(const std::int64_t y, call.integer(1));
  std::int64_t result = 0;
  bool fails = false;
  if constexpr (kOp == '+') fails = __builtin_add_overflow(x, y, &result);
  if constexpr (kOp == '-') fails = __builtin_sub_overflow(x, y, &result);
  if constexpr (kOp == '*') fails = __builtin_mul_overflow(x, y, &result);
  if constexpr (kOp == '/' || kOp == '%') {
    fails = y == 0 || y == -1;
    if (!fails) result = kOp == '/' ? floor_of_quotient(x, y) : x - floor_of_quotient(x, y) * y;
  }
  if (fails) return failf(ErrorCode::kUnsupported, "{} {} {} is no size", x, kOp, y);
  return one(whole_number(result));
}

constexpr Op kOps[] = {
    {"<built-in function add>", arithmetic<'+'>}, {"<built-in function floordiv>", arithmetic<'/'>},
    {"<built-in function mod>", arithmetic<'%'>}, {"<built-in function mul>", arithmetic<'*'>},
    {"<built-in function sub>", arithmetic<'-'>}, {"aten.sym_numel.default", num_elements},
    {"aten.sym_size.int", size_of_dim},
};

}  // namespace

std::optional<HostTensor> hint_of(const graph::Node& node) {
  const graph::SymbolicType* const type = node.symbolic();
  const auto* const symbol =
      type == nullptr || type->is_list ? nullptr : std::get_if<graph::Symbol>(&type->items[0]);
  if (symbol == nullptr) return std::nullopt;
  if (const auto* const whole = std::get_if<std::int64_t>(&symbol->hint)) return whole_number(*whole);
  if (const auto* const flag = std::get_if<bool>(&symbol->hint)) {
    return HostTensor::copy_of(whole_number(*flag ? 1 : 0).view(), DType::kBool);
  }
  if (const auto* const real = std::get_if<double>(&symbol->hint)) {
    return HostTensor::from(std::span<const double>(real, 1), {}, DType::kF64);
  }
  return std::nullopt;
}

std::optional<graph::Argument> number_in(const HostTensor& value) {
  if (!value.sizes().empty()) return std::nullopt;
  if (value.dtype() == DType::kF64) return graph::Argument{elements<double>(value.view())[0]};
  const std::int64_t whole = elements<std::int64_t>(value.view())[0];
  if (value.dtype() == DType::kBool) return graph::Argument{whole != 0};
  return graph::Argument{whole};
}

Inputs known_sizes(const graph::Graph& program) {
  Inputs known;
  for (const graph::Node& node : program.nodes()) {
    if (!node.is_given()) continue;
    if (const auto hint = hint_of(node)) known.emplace(node.name(), *hint);
  }
  Sizes sizes(known);
  for (const graph::Node& node : program.nodes()) sizes.read(node);
  return known;
}

std::span<const Op> size_ops() {
  return kOps;
}

}  // namespace tandem::graph::interpreter
