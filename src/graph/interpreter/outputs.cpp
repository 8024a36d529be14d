#include "graph/interpreter/outputs.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/format.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/row_local.hpp"

namespace tandem::graph::interpreter {
namespace {

// A rewritten program rounds a sum of products once where the program rounds each product, so that a value is
// off by a step of its type, and by a few behind norms, products and an attention. With f8 such a step takes
// some values to the next f8, 1/16 or 1/8 away, and the gradients of a block go through several casts.
constexpr double kStepsOfOutput = 4;
constexpr double kBoundWithF8 = 0.25;

/// Whether a node has the numbers of its input, in whatever order and type.
bool keeps_numbers(const graph::Node& node) {
  return graph::is_view_op(node) || node.is_call_of(graph::op::kWait) ||
         node.is_call_of(graph::op::kPermute) || node.is_call_of(graph::op::kConvert);
}

/// Where the numbers of `node` come from: behind views, and behind what `also` says.
template <class Also>
const graph::Node* origin_of(const graph::Node* node, const Also& also) {
  while (node != nullptr && (keeps_numbers(*node) || also(*node))) node = node->arguments().front().node();
  return node;
}

/// The tensor of which an output is the sum over some dims, or null. A sum is as exact as what it adds up is
/// large: gradients of a bias that cancel have no correct digit.
const graph::Node* summed_by(const graph::Node* output) {
  const graph::Node* const origin = origin_of(output, [](const graph::Node&) { return false; });
  if (origin == nullptr || !origin->is_call_of("aten.sum.dim_IntList")) return nullptr;
  return origin->arguments().front().node();
}

bool may_be_constant(const graph::Node* output) {
  const graph::Node* const origin = origin_of(output, [](const graph::Node& node) {
    return node.is_call_of("aten.exp2.default") || node.is_call_of("aten.reciprocal.default");
  });
  return origin != nullptr && (origin->is_given() || origin->is_call_of("aten.floor.default"));
}

const HostTensor* value_of(const ValueTable& values, const graph::Node* node) {
  const auto found = values.find(node);
  if (found == values.end() || found->second.size() != 1 || !found->second.front()) return nullptr;
  return &*found->second.front();
}

bool is_infinite(const graph::Argument& argument) {
  const auto number = number_of(argument);
  return number && !std::isfinite(*number);
}

/// Whether a program writes an infinity there itself: a constant, as masks have it, moved or chosen.
bool has_infinite_constant(const graph::Node* node) {
  if (node == nullptr) return false;
  if (const graph::Constant* const constant = node->constant()) {
    const auto* const elements = constant->elements();
    return elements != nullptr && std::any_of(elements->begin(), elements->end(), is_infinite);
  }
  if (node->kind() != graph::NodeKind::kCall) return false;
  if (node->is_call_of(graph::op::kFull)) return is_infinite(node->arguments()[1]);
  if (keeps_numbers(*node)) return has_infinite_constant(node->arguments().front().node());
  if (!node->is_call_of("aten.where.self")) return false;
  const auto inputs = node->inputs();
  return std::any_of(inputs.begin(), inputs.end(), has_infinite_constant);
}

bool is_finite(const HostTensor& x) {
  const auto values = elements<double>(x.view());
  return std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
}

/// "is 0.5 everywhere", or empty.
std::string sameness_of(const HostTensor& x) {
  const auto values = elements<double>(x.view());
  if (values.size() < 2) return {};
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return *least == *most ? fmt::format("is {} everywhere", *least) : std::string();
}

/// FNV-1a of the bytes.
std::uint64_t checksum_of(const HostTensor& x) {
  std::uint64_t sum = 0xcbf29ce484222325U;
  const auto* const bytes = x.view().data_as<const unsigned char>();
  for (std::int64_t i = 0; i < x.view().size_bytes(); ++i) sum = (sum ^ bytes[i]) * 0x100000001b3U;
  return sum;
}

/// How far the sum over some dims of `x` can be off, in units of the relative error of x's elements.
double size_of_sum(const HostTensor& x, std::int64_t num_sums) {
  double total = 0;
  for (const double value : elements<double>(x.view())) total += std::abs(value);
  return num_sums == 0 ? 0 : total / static_cast<double>(num_sums);
}

bool has_f8(const graph::Graph& program) {
  return std::any_of(program.nodes().begin(), program.nodes().end(), [](const graph::Node& node) {
    const graph::TensorType* const type = node.type().tensor();
    return type != nullptr && type->dtype.starts_with("float8");
  });
}

/// Of an output: programs keep norms and factors in f32, but compute most in their narrowest type.
double relative_bound(const graph::Graph& program, DType dtype) {
  if (has_f8(program)) return kBoundWithF8;
  double step = step_of(dtype);
  for (const graph::Node& node : program.nodes()) {
    const graph::TensorType* const type = node.type().tensor();
    const auto other = type == nullptr ? std::nullopt : graph::dtype_of(type->dtype);
    if (other) step = std::max(step, step_of(*other));
  }
  return kStepsOfOutput * step;
}

}  // namespace

std::vector<const graph::Node*> outputs_of(const graph::Graph& graph) {
  std::vector<const graph::Node*> outputs;
  for (const graph::Argument& output : graph.nodes().back().arguments().front().entries()) {
    outputs.push_back(output.node());
  }
  for (const graph::Node& node : graph.nodes()) {
    const bool is_new = std::find(outputs.begin(), outputs.end(), &node) == outputs.end();
    if (is_new && node.is_call_of("aten.copy_.default")) outputs.push_back(&node);
  }
  return outputs;
}

NodeSet wanted_of(const graph::Graph& graph) {
  NodeSet wanted;
  for (const graph::Node* output : outputs_of(graph)) {
    if (output != nullptr) wanted.insert(output);
    if (const graph::Node* summed = summed_by(output); summed != nullptr) wanted.insert(summed);
  }
  return wanted;
}

std::vector<OutputResult> describe_outputs(const graph::Graph& graph, const ValueTable& values) {
  std::vector<OutputResult> results;
  for (const graph::Node* output : outputs_of(graph)) {
    const HostTensor* const value = value_of(values, output);
    if (value == nullptr) continue;
    results.push_back({.node = output->name(),
                       .type = fmt::format("{} {}", to_string(value->dtype()), to_string(value->sizes())),
                       .checksum = checksum_of(*value),
                       .fault = is_finite(*value) || has_infinite_constant(output) ? "" : "is not finite",
                       .not_compared = may_be_constant(output) ? "" : sameness_of(*value),
                       .difference = {}});
  }
  return results;
}

void compare_outputs(const graph::Graph& program, const ValueTable& want, const graph::Graph& rewritten,
                     const ValueTable& got, std::vector<OutputResult>& results) {
  const auto own = outputs_of(program);
  const auto others = outputs_of(rewritten);
  auto result = results.begin();
  for (std::size_t i = 0; i < others.size(); ++i) {
    const HostTensor* const value = value_of(got, others[i]);
    if (value == nullptr) continue;
    const HostTensor* const wanted = i < own.size() ? value_of(want, own[i]) : nullptr;
    OutputResult& output = *result++;
    if (wanted == nullptr) {
      output.fault = "is none of the program's outputs";
      continue;
    }
    const graph::Node* const summed = summed_by(own[i]);
    const double scale = summed == nullptr ? 0 : size_of_sum(*value_of(want, summed), wanted->numel());
    const Difference difference = compare(*value, *wanted, relative_bound(program, wanted->dtype()), scale);
    const bool says_nothing =
        !output.not_compared.empty() && !sameness_of(*wanted).empty() && difference.ok();
    if (says_nothing) continue;
    output.not_compared.clear();
    output.difference = difference;
  }
}

Difference compare(const HostTensor& got, const HostTensor& want, double relative_bound, double scale) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  Difference difference{.max_error = kInfinite, .largest = scale};
  if (!(got.sizes() == want.sizes()) || got.dtype() != want.dtype()) return difference;
  const auto x = elements<double>(got.view());
  const auto y = elements<double>(want.view());
  difference.max_error = 0;
  if (!is_floating(got.dtype())) {  // a threshold's truth, or an order, changes where values are a step apart
    const auto num_same =
        std::inner_product(x.begin(), x.end(), y.begin(), 0.0, std::plus<>(), std::equal_to<>());
    if (!x.empty()) difference.max_error = 1 - num_same / static_cast<double>(x.size());
    difference.largest = 1;
    difference.bound = relative_bound;
    return difference;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = x[i] == y[i] ? 0 : std::abs(x[i] - y[i]);
    difference.max_error = std::isfinite(error) ? std::max(difference.max_error, error) : kInfinite;
    if (std::isfinite(y[i])) difference.largest = std::max(difference.largest, std::abs(y[i]));
  }
  difference.bound = relative_bound * difference.largest;
  return difference;
}

double step_of(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kF32:
      return 0x1p-20;  // not 2^-23: f32 sums may run in another order
    case DType::kF16:
      return 0x1p-10;
    case DType::kBF16:
      return 0x1p-7;
    case DType::kF8E4M3:
      return 0x1p-3;
    case DType::kF8E5M2:
      return 0x1p-2;
    default:
      return 0;
  }
}

}  // namespace tandem::graph::interpreter
