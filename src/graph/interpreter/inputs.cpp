#include "graph/interpreter/inputs.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/attention.hpp"
#include "graph/interpreter/attention_ops.hpp"
#include "graph/ir/ops.hpp"
#include "graph/passes/row_local.hpp"

namespace tandem::graph::interpreter {
namespace {

/// Numbers of a stream that (seed, rank, name) picks; the same on every machine.
class Numbers {
 public:
  Numbers(std::uint64_t seed, int rank, std::string_view name) : state_(seed) {
    absorb(static_cast<std::uint64_t>(rank));
    for (const char c : name) absorb(static_cast<unsigned char>(c));
  }
  /// In [0, 1).
  double next() { return static_cast<double>(step() >> 11) * 0x1p-53; }

 private:
  // splitmix64
  std::uint64_t step() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
  }
  void absorb(std::uint64_t value) {
    state_ ^= value;
    state_ = step();
  }

  std::uint64_t state_;
};

/// What a program does with a placeholder, directly or behind views and gathers.
struct Use {
  bool is_scale = false;     ///< values were multiplied by it to become f8: its reciprocal is taken
  bool is_inverse = false;   ///< of a scale: a scaled product takes it
  bool is_positive = false;  ///< a maximum of absolute values
  bool is_gathered = false;
  /// Of f8: the inverse scales that scaled products take beside it.
  std::vector<const graph::Node*> inverses;
};

const graph::Node* node_at(const graph::Node& node, std::size_t idx) {
  return idx < node.arguments().size() ? node.arguments()[idx].node() : nullptr;
}

void follow(const graph::Node& value, Use& use, std::set<const graph::Node*>& seen) {
  if (!seen.insert(&value).second) return;
  namespace op = graph::op;
  static constexpr std::array<std::string_view, 9> kMovers = {
      op::kGetItem,         op::kSplit,     op::kCat,     op::kWait,
      op::kPermute,         op::kViewDType, op::kConvert, "aten.expand.default",
      "aten.repeat.default"};
  for (const graph::Node* user : value.users()) {
    if (user->kind() != graph::NodeKind::kCall) continue;
    const std::string_view target = user->target();
    const bool is_gather = target == op::kFunctionalAllGather || target == op::kAllGather;
    const bool is_mover = std::find(kMovers.begin(), kMovers.end(), target) != kMovers.end();
    if (is_gather) use.is_gathered = true;
    if (is_gather || is_mover || graph::is_view_op(*user)) follow(*user, use, seen);
    if (target == "aten.reciprocal.default") use.is_scale = true;
    if (target == "aten.clamp_min.default" || target == "aten.log2.default") use.is_positive = true;
    if (target != op::kScaledMm) continue;
    for (const std::size_t side : {0U, 1U}) {
      if (node_at(*user, side + 2) == &value) use.is_inverse = true;
      if (node_at(*user, side) == &value) use.inverses.push_back(node_at(*user, side + 2));
    }
  }
}

/// f32 with one element a row, or a column: what bf16 programs keep in f32 is what rows are multiplied by.
bool is_factor(const HostTensor& x) {
  if (x.dtype() != DType::kF32 || x.sizes().empty()) return false;
  return x.sizes().back() == 1 || (x.sizes().size() > 1 && x.numel() == x.sizes().back());
}

HostTensor filled(const Dims& sizes, DType dtype, Numbers& numbers, double (*value)(double)) {
  std::vector<double> values(static_cast<std::size_t>(numel(sizes)));
  for (double& element : values) element = value(numbers.next());
  return HostTensor::from(std::span<const double>(values), sizes, dtype);
}

/// 128, 256 or 512: values up to 0.5 become f8 up to 256.
double scale_at(double x) {
  return x < 1 / 3.0 ? 128 : x < 2 / 3.0 ? 256 : 512;
}

/// What of a program's inputs does not follow from others.
class Maker {
 public:
  Maker(std::uint64_t seed, int rank, Inputs& inputs) : seed_(seed), rank_(rank), inputs_(inputs) {}

  Result<void> make(const graph::Node& placeholder) {
    const graph::TensorType* const type = placeholder.type().tensor();
    if (type == nullptr || inputs_.contains(placeholder.name())) return {};  // a generator, or made already
    TANDEM_ASSIGN(const Dims sizes, to_dims(type->shape));
    const auto dtype = graph::dtype_of(type->dtype);
    if (!dtype) return failf(ErrorCode::kUnsupported, "'{}' is {}", placeholder.name(), type->dtype);
    HostTensor value(sizes, *dtype);
    if (is_floating(*dtype)) {
      TANDEM_ASSIGN(value, floating(placeholder, value));
    }
    inputs_.emplace(placeholder.name(), std::move(value));
    return {};
  }

 private:
  Result<HostTensor> floating(const graph::Node& placeholder, const HostTensor& like) {
    Use use;
    std::set<const graph::Node*> seen;
    follow(placeholder, use, seen);
    // Scales come of maxima over all ranks, and single numbers are the program's, unless each rank's part has
    // its own.
    const bool is_shared = (use.is_scale || use.is_inverse || like.numel() == 1) && !use.is_gathered;
    Numbers numbers(seed_, is_shared ? 0 : rank_, placeholder.name());
    const auto make = [&](double (*value)(double)) {
      return filled(like.sizes(), like.dtype(), numbers, value);
    };
    if (is_f8(like.dtype())) {
      TANDEM_ASSIGN(const double inverse, known_inverse(use));
      return f8(like, inverse, numbers);
    }
    if (use.is_inverse) return make([](double x) { return 1 / scale_at(x); });
    if (use.is_scale) return make(scale_at);
    if (use.is_positive || is_factor(like)) return make([](double x) { return 0.75 + x / 2; });
    return make([](double x) { return x - 0.5; });
  }

  static HostTensor f8(const HostTensor& like, double inverse, Numbers& numbers) {
    std::vector<double> values(static_cast<std::size_t>(like.numel()));
    for (double& value : values) value = (numbers.next() - 0.5) / inverse;
    return HostTensor::from(std::span<const double>(values), like.sizes(), like.dtype());
  }

  /// That of an f8 placeholder, if it is one number and a placeholder too; else a scale's in the middle.
  Result<double> known_inverse(const Use& use) {
    for (const graph::Node* inverse : use.inverses) {
      const bool is_number = inverse != nullptr && inverse->kind() == graph::NodeKind::kPlaceholder &&
                             inverse->type().tensor() != nullptr && inverse->type().tensor()->numel() == 1;
      if (!is_number) continue;
      TANDEM_TRY(make(*inverse));
      return element_as_f64(inputs_.find(inverse->name())->second.view(), 0);
    }
    return 1 / scale_at(0.5);
  }

  std::uint64_t seed_;
  int rank_;
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
  NodeSet sources;               ///< of q, k and v
};

std::vector<SavedAttention> saved_attentions(const graph::Graph& program) {
  const auto placeholder_at = [](const graph::Node& node, std::size_t idx) {
    const graph::Node* const made = node_at(node, idx);
    return made != nullptr && made->kind() == graph::NodeKind::kPlaceholder ? made : nullptr;
  };
  std::vector<SavedAttention> all;
  for (const graph::Node& node : program.nodes()) {
    if (!node.is_call_of(graph::op::kAttentionBackward)) continue;
    SavedAttention saved{&node, placeholder_at(node, 4), placeholder_at(node, 5),
                         sources_of({node_at(node, 1), node_at(node, 2), node_at(node, 3)})};
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
  Inputs inputs;
  Maker maker(seed, ranks.group.rank(), inputs);
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
