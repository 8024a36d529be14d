#include "graph/interpreter/inputs.hpp"

#include <algorithm>
#include <cmath>
#include <tandem/graph/text.hpp>

#include "base/byte_size.hpp"
#include "base/format.hpp"
#include "base/memory_limit.hpp"
#include "base/memory_pages.hpp"
#include "base/try.hpp"
#include "graph/interpreter/attention.hpp"
#include "graph/interpreter/attention_ops.hpp"
#include "graph/interpreter/numbers.hpp"
#include "graph/interpreter/sizes.hpp"
#include "graph/interpreter/uses.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph::interpreter {
namespace {

/// f32 with one element a row, or a column: what bf16 programs keep in f32 is what rows are multiplied by.
bool is_factor(const Dims& sizes, DType dtype) {
  if (dtype != DType::kF32 || sizes.empty()) return false;
  return sizes.back() == 1 || (sizes.size() > 1 && numel(sizes) == sizes.back());
}

template <class Value>
HostTensor filled(const Dims& sizes, DType dtype, Numbers& numbers, const Value& value) {
  std::vector<double> values(static_cast<std::size_t>(numel(sizes)));
  for (double& element : values) element = value(numbers.next());
  return HostTensor::from(std::span<const double>(values), sizes, dtype);
}

/// 128, 256 or 512: values up to 0.5 become f8 up to 256.
double scale_at(double x) {
  return x < 1 / 3.0 ? 128 : x < 2 / 3.0 ? 256 : 512;
}

/// Of integers that are no indices, as far as the program shows.
constexpr std::int64_t kDefaultIndexBound = 16;

Result<HostTensor> tensor_of(const graph::Argument::List& elements, const graph::Node& node,
                             const Dims& sizes, DType dtype) {
  if (static_cast<std::int64_t>(elements.size()) != numel(sizes)) {
    return failf(ErrorCode::kInvalidArgument, "'{}' has {} elements in the file, need {}", node.name(),
                 elements.size(), numel(sizes));
  }
  std::vector<double> reals;
  std::vector<std::int64_t> wholes;  // 64 bits of them have no f64
  for (const graph::Argument& element : elements) {
    const auto number = number_of(element);
    if (!number || (!is_floating(dtype) && std::holds_alternative<double>(element.value))) {
      return failf(ErrorCode::kInvalidArgument, "'{}' has the element {}, need one of {}", node.name(),
                   graph::to_text(element), to_string(dtype));
    }
    reals.push_back(*number);
    if (!is_floating(dtype)) wholes.push_back(element.integer().value_or(*number != 0 ? 1 : 0));
  }
  return is_floating(dtype) ? HostTensor::from(std::span<const double>(reals), sizes, dtype)
                            : HostTensor::from(std::span<const std::int64_t>(wholes), sizes, dtype);
}

/// What of a program's inputs does not follow from others.
class Maker {
 public:
  Maker(std::uint64_t seed, const Group& group, Inputs& inputs)
      : seed_(seed), group_(group), inputs_(inputs) {}

  Result<void> make(const graph::Node& placeholder) {
    const graph::TensorType* const type = placeholder.type().tensor();
    if (type == nullptr || inputs_.contains(placeholder.name())) return {};  // a generator, or made already
    TANDEM_ASSIGN(const Dims sizes, to_dims(type->shape));
    const auto dtype = graph::dtype_of(type->dtype);
    if (!dtype) return failf(ErrorCode::kUnsupported, "'{}' is {}", placeholder.name(), type->dtype);
    const graph::Constant* const constant = placeholder.constant();
    if (const auto* const elements = constant == nullptr ? nullptr : constant->elements()) {
      TANDEM_ASSIGN(HostTensor value, tensor_of(*elements, placeholder, sizes, *dtype));
      inputs_.emplace(placeholder.name(), std::move(value));
      return {};
    }
    // Numbers are made in f64 first.
    const std::int64_t num_bytes = multiply_bytes(8 + size_bytes(*dtype), numel(sizes));
    if (num_bytes >= kFewBytes) TANDEM_TRY(check_memory(fmt::format("'{}'", placeholder.name()), num_bytes));
    const Use use = use_of(placeholder, group_.size());
    // Scales come of maxima over all ranks, and single numbers and indices are the program's, unless each
    // rank's part has its own.
    const bool is_programs = use.is_scale || use.is_inverse || numel(sizes) == 1 || !is_floating(*dtype);
    Numbers numbers(seed_, is_programs && !use.is_gathered ? 0 : group_.rank(), placeholder.name());
    TANDEM_ASSIGN(HostTensor value, made(use, sizes, *dtype, numbers));
    inputs_.emplace(placeholder.name(), std::move(value));
    return {};
  }

 private:
  Result<HostTensor> made(const Use& use, const Dims& sizes, DType dtype, Numbers& numbers) {
    const auto make = [&](const auto& value) { return filled(sizes, dtype, numbers, value); };
    if (dtype == DType::kBool) return make([](double x) { return x < 0.5 ? 0.0 : 1.0; });
    if (!is_floating(dtype)) {
      const auto bound = static_cast<double>(use.index_bound.value_or(kDefaultIndexBound));
      return make([&](double x) { return std::floor(x * bound); });
    }
    if (is_f8(dtype)) {
      TANDEM_ASSIGN(const double inverse, known_inverse(use));
      return make([&](double x) { return (x - 0.5) / inverse; });
    }
    if (use.is_inverse) return make([](double x) { return 1 / scale_at(x); });
    if (use.is_scale) return make(scale_at);
    if (use.is_positive || is_factor(sizes, dtype)) return make([](double x) { return 0.75 + x / 2; });
    // A product with a weight is as large as its other operand, whatever number of terms it adds up.
    const double width = use.num_terms > 0 ? std::sqrt(12 / use.num_terms) : 1;
    return make([&](double x) { return (x - 0.5) * width; });
  }

  /// That of an f8 placeholder, if it is one number and a placeholder too; else a scale's in the middle.
  Result<double> known_inverse(const Use& use) {
    for (const graph::Node* inverse : use.inverses) {
      const bool is_number = inverse != nullptr && inverse->is_given() &&
                             inverse->type().tensor() != nullptr && inverse->type().tensor()->numel() == 1;
      if (!is_number) continue;
      TANDEM_TRY(make(*inverse));
      return element_as_f64(inputs_.find(inverse->name())->second.view(), 0);
    }
    return 1 / scale_at(0.5);
  }

  std::uint64_t seed_;
  const Group& group_;
  Inputs& inputs_;
};

/// Nodes that `wanted` follow from, themselves among them.
NodeSet sources_of(std::vector<const graph::Node*> wanted) {
  NodeSet sources;
  while (!wanted.empty()) {
    const graph::Node* const node = wanted.back();
    wanted.pop_back();
    if (node == nullptr || !sources.insert(node).second) continue;
    for (const graph::Node* input : node->inputs()) wanted.push_back(input);
  }
  return sources;
}

/// The gradient of an attention whose output, and log-sum-exp, are inputs of the program.
struct SavedAttention {
  const graph::Node* backward;
  const graph::Node* out;        ///< null where it is no placeholder
  const graph::Node* logsumexp;  ///< as out
  NodeSet sources;               ///< of q, k, v and a mask
};

/// What an attention's output follows from, as its gradient takes it.
std::vector<const graph::Node*> operands_of(const graph::Node& backward) {
  const auto by_name = backward.named_arguments().find("attn_mask");
  const graph::Node* const mask =
      by_name != backward.named_arguments().end() ? by_name->second.node() : node_at(backward, 8);
  return {node_at(backward, 1), node_at(backward, 2), node_at(backward, 3), mask};
}

std::vector<SavedAttention> saved_attentions(const graph::Graph& program) {
  const auto placeholder_at = [](const graph::Node& node, std::size_t idx) {
    const graph::Node* const made = node_at(node, idx);
    return made != nullptr && made->is_given() ? made : nullptr;
  };
  std::vector<SavedAttention> all;
  for (const graph::Node& node : program.nodes()) {
    if (!is_attention_backward(node)) continue;
    SavedAttention saved{&node, placeholder_at(node, 4), placeholder_at(node, 5),
                         sources_of(operands_of(node))};
    if (saved.out != nullptr || saved.logsumexp != nullptr) all.push_back(std::move(saved));
  }
  return all;
}

/// Computes outputs of attentions from the inputs that are there already.
class Deriver {
 public:
  Deriver(const graph::Graph& program, const Ranks& ranks, Inputs& inputs)
      : program_(program), ranks_(ranks), inputs_(inputs) {}

  /// False if the sources hold a placeholder of `missing`. Collective: the answer is the same on all ranks.
  Result<bool> derive(const SavedAttention& saved, const NodeSet& missing) {
    const bool has_all = std::none_of(saved.sources.begin(), saved.sources.end(),
                                      [&](const graph::Node* node) { return missing.contains(node); });
    if (!has_all) return false;
    for (const graph::Node& node : program_.nodes()) {
      if (!saved.sources.contains(&node) || values_.contains(&node)) continue;
      if (node.kind() == graph::NodeKind::kCall) {
        TANDEM_ASSIGN(values_[&node], run_node(node, values_, ranks_));
      } else if (const auto input = inputs_.find(node.name()); input != inputs_.end()) {
        values_[&node] = one(input->second);
      }
    }
    TANDEM_ASSIGN(const AttentionInput input, input_of_backward(Call(*saved.backward, values_, ranks_)));
    TANDEM_ASSIGN(const AttentionOutput output, attention(input));
    if (saved.out != nullptr) inputs_.insert_or_assign(saved.out->name(), output.out);
    if (saved.logsumexp != nullptr) inputs_.insert_or_assign(saved.logsumexp->name(), output.logsumexp);
    return true;
  }

 private:
  const graph::Graph& program_;
  const Ranks& ranks_;
  Inputs& inputs_;
  ValueTable values_;  ///< kept: attentions share sources
};

}  // namespace

Result<Inputs> make_inputs(const graph::Graph& program, std::uint64_t seed, const Ranks& ranks) {
  std::vector<SavedAttention> attentions = saved_attentions(program);
  NodeSet missing;
  for (const SavedAttention& saved : attentions) missing.insert({saved.out, saved.logsumexp});
  Inputs inputs = known_sizes(program);
  Maker maker(seed, ranks.group, inputs);
  for (const graph::Node& node : program.nodes()) {
    if (!node.is_given() || missing.contains(&node)) continue;
    TANDEM_TRY(maker.make(node));
  }
  // An attention's q may follow from another's output, in whatever order the program has their gradients.
  Deriver deriver(program, ranks, inputs);
  while (!attentions.empty()) {
    const std::size_t num_before = attentions.size();
    for (auto saved = attentions.begin(); saved != attentions.end();) {
      TANDEM_ASSIGN(const bool is_derived, deriver.derive(*saved, missing));
      if (is_derived) {
        missing.erase(saved->out);
        missing.erase(saved->logsumexp);
      }
      saved = is_derived ? attentions.erase(saved) : saved + 1;
    }
    if (attentions.size() == num_before) {
      return failf(ErrorCode::kUnsupported,
                   "node '{}': its q, k and v follow from an output that it is given",
                   attentions.front().backward->name());
    }
  }
  return inputs;
}

}  // namespace tandem::graph::interpreter
