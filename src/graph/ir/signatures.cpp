#include "graph/ir/signatures.hpp"

#include <algorithm>
#include <tandem/graph/text.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/ops.hpp"

namespace tandem::graph {
namespace {

// Kinds of arguments, a letter each. One that may be missing or null is followed by a question mark.
//   T tensor   L list of tensors   P one or the other   M node that makes several tensors
//   O tensor or number   N number   I whole number   S list of whole numbers   B bool   X text
//   Z, z  the same as S, I, or sizes that the program does not know   R dtype, device, ...   A anything
struct Signature {
  std::string_view target;
  std::string_view arguments;
  std::string_view names;  ///< of the arguments that may be given by name, each with a space behind it
};

constexpr Signature kSignatures[] = {
    {"<built-in function getitem>", "MI", ""},
    {"_c10d_functional.all_gather_into_tensor.default", "TIX", ""},
    {"_c10d_functional.all_reduce.default", "TXX", ""},
    {"_c10d_functional.reduce_scatter_tensor.default", "TXIX", ""},
    {"_c10d_functional.wait_tensor.default", "T", ""},
    {"aten._scaled_dot_product_cudnn_attention.default", "TTTT?BN?B?B?", "scale "},
    {"aten._scaled_dot_product_cudnn_attention_backward.default", "TTTTTTTTT?T?T?zzNB", "scale "},
    {"aten._scaled_mm.default", "TTTTT?T?R?B?", ""},
    {"aten._scaled_mm_v2.default", "TTAAAAAAA?A?A?A?", ""},
    {"aten._unsafe_view.default", "TZ", ""},
    {"aten.abs.default", "T", ""},
    {"aten.add.Scalar", "TN", "alpha "},
    {"aten.add.Tensor", "OO", "alpha "},
    {"aten.addmm.default", "TTT", "alpha beta "},
    {"aten.amax.default", "TS?B?", ""},
    {"aten.bmm.default", "TT", ""},
    {"aten.cat.default", "LI?", ""},
    {"aten.clamp_max.default", "TN", ""},
    {"aten.clamp_min.default", "TN", ""},
    {"aten.clone.default", "T", "memory_format "},
    {"aten.constant_pad_nd.default", "TZN?", ""},
    {"aten.div.Scalar", "TN", ""},
    {"aten.div.Tensor", "OO", ""},
    {"aten.exp.default", "T", ""},
    {"aten.exp2.default", "T", ""},
    {"aten.expand.default", "TZ", ""},
    {"aten.floor.default", "T", ""},
    {"aten.full.default", "ZN", "device dtype layout pin_memory "},
    {"aten.log2.default", "T", ""},
    {"aten.max.default", "T", ""},
    {"aten.mean.dim", "TS?B?", "dtype "},
    {"aten.mm.default", "TT", ""},
    {"aten.mul.Scalar", "TN", ""},
    {"aten.mul.Tensor", "OO", ""},
    {"aten.neg.default", "T", ""},
    {"aten.permute.default", "TS", ""},
    {"aten.pow.Tensor_Scalar", "TN", ""},
    {"aten.reciprocal.default", "T", ""},
    {"aten.relu.default", "T", ""},
    {"aten.repeat.default", "TZ", ""},
    {"aten.reshape.default", "TZ", ""},
    {"aten.rsqrt.default", "T", ""},
    {"aten.slice.Tensor", "TI?z?z?I?", ""},
    {"aten.split.Tensor", "TzI?", ""},
    {"aten.split_with_sizes.default", "TZI?", ""},
    {"aten.squeeze.dim", "TI", ""},
    {"aten.sub.Tensor", "OO", "alpha "},
    {"aten.sum.default", "T", "dtype "},
    {"aten.sum.dim_IntList", "TS?B?", "dtype "},
    {"aten.unsqueeze.default", "TI", ""},
    {"aten.view.default", "TZ", ""},
    {"aten.view.dtype", "TR", ""},
    {"graphsafe_run_with_rng_state", "RA?A?A?A?A?A?A?A?A?A?A?A?A?A?A?", "rng_state "},
    {"prims.convert_element_type.default", "TR", ""},
    {"symm_mem._low_contention_all_gather.default", "TX", ""},
    {"symm_mem._low_contention_reduce_scatter.default", "TXX", ""},
    {"symm_mem.fused_all_gather_matmul.default", "TLIX", "bias gather_size return_A "},
    {"symm_mem.fused_all_gather_scaled_matmul.default", "TLTLIXAAAA",
     "also_gather gather_size return_A scale_mode "},
    {"symm_mem.fused_matmul_reduce_scatter.default", "PPXIX", "bias padded return_product "},
    {"symm_mem.fused_scaled_matmul_reduce_scatter.default", "PPAAXIIXSAARA", "padded return_product "},
    {"tandem.all_gather.default", "TIIX", "gather_size piece "},
    {"tandem.fused_matmul_all_reduce.default", "PPXX", "bias return_product "},
    {"tandem.fused_scaled_matmul_all_reduce.default", "PPAAXXAARA", "return_product "},
    {"tandem.reduce_scatter.default", "TXIIX", "piece "},
};
static_assert(std::is_sorted(std::begin(kSignatures), std::end(kSignatures),
                             [](const Signature& a, const Signature& b) { return a.target < b.target; }));

const Signature* find_signature(std::string_view target) {
  const auto* const found =
      std::lower_bound(std::begin(kSignatures), std::end(kSignatures), target,
                       [](const Signature& one, std::string_view name) { return one.target < name; });
  return found != std::end(kSignatures) && found->target == target ? found : nullptr;
}

bool makes_tensor(const Argument& argument) {
  return argument.node() != nullptr && argument.node()->type().tensor() != nullptr;
}

bool is_number(const Argument& argument) {
  return std::holds_alternative<std::int64_t>(argument.value) ||
         std::holds_alternative<double>(argument.value) || std::holds_alternative<bool>(argument.value);
}

template <class Is>
bool is_list_of(const Argument& argument, Is is) {
  const auto* const list = argument.list();
  return list != nullptr && std::all_of(list->begin(), list->end(), is);
}

bool is_kind(const Argument& argument, char kind) {
  switch (kind) {
    case 'T':
      return makes_tensor(argument);
    case 'L':
      return is_list_of(argument, makes_tensor) && !argument.list()->empty();
    case 'P':
      return makes_tensor(argument) || is_kind(argument, 'L');
    case 'M':
      return argument.node() != nullptr && argument.node()->type().kind == NodeType::Kind::kList;
    case 'O':
      return makes_tensor(argument) || is_number(argument);
    case 'I':
      return argument.integer().has_value();
    case 'S':
      return is_list_of(argument, [](const Argument& one) { return one.integer().has_value(); });
    case 'z':
      return argument.integer().has_value() || argument.is_symbolic();
    case 'Z':
      return is_list_of(argument, [](const Argument& one) { return is_kind(one, 'z'); });
    case 'N':
      return is_number(argument);
    case 'B':
      return std::holds_alternative<bool>(argument.value);
    case 'X':
      return std::holds_alternative<std::string>(argument.value);
    case 'R':
      return std::holds_alternative<Repr>(argument.value);
    default:
      return true;
  }
}

std::string_view words_for(char kind) {
  switch (kind) {
    case 'T':
      return "a tensor";
    case 'L':
      return "a list of tensors, not empty";
    case 'P':
      return "a tensor or a list of tensors, not empty";
    case 'M':
      return "a node that makes several tensors";
    case 'O':
      return "a tensor or a number";
    case 'I':
    case 'z':
      return "a whole number";
    case 'S':
    case 'Z':
      return "a list of whole numbers";
    case 'N':
      return "a number";
    case 'B':
      return "true or false";
    case 'X':
      return "text";
    case 'R':
      return "a type, a device or a layout";
    default:
      return "anything";
  }
}

/// For an error: cut where it is long.
std::string describe(const Argument& argument) {
  constexpr std::size_t kMost = 60;
  std::string text = to_text(argument);
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

}  // namespace

bool is_known_op(const Node& node) {
  return node.kind() == NodeKind::kCall && find_signature(node.target()) != nullptr;
}

Result<void> check_signature(const Node& node) {
  const Signature* const signature = find_signature(node.target());
  if (signature == nullptr) return {};
  const Argument::List& arguments = node.arguments();
  std::size_t idx = 0;
  for (std::size_t at = 0; at < signature->arguments.size(); ++at, ++idx) {
    const char kind = signature->arguments[at];
    const bool may_be_missing = signature->arguments.substr(at + 1, 1) == "?";
    if (may_be_missing) ++at;
    if (idx >= arguments.size()) {
      if (may_be_missing) continue;
      return failf(ErrorCode::kInvalidArgument, "argument {} is missing, need {}", idx, words_for(kind));
    }
    const Argument& argument = arguments[idx];
    if (may_be_missing && std::holds_alternative<std::monostate>(argument.value)) continue;
    if (is_kind(argument, kind)) continue;
    return failf(ErrorCode::kInvalidArgument, "argument {} is {}, need {}", idx, describe(argument),
                 words_for(kind));
  }
  if (arguments.size() > idx) {
    return failf(ErrorCode::kInvalidArgument, "has {} arguments, need at most {}", arguments.size(), idx);
  }
  for (const auto& [name, value] : node.named_arguments()) {
    if (signature->names.find(name + " ") == std::string_view::npos) {
      return failf(ErrorCode::kInvalidArgument, "has an argument '{}', which {} does not take", name,
                   node.target());
    }
  }
  const bool may_make_several = signature->target == op::kGetItem || signature->target == op::kSplit ||
                                signature->target == op::kSplitSizes || op::is_fused(signature->target) ||
                                signature->target.find("attention") != std::string_view::npos ||
                                signature->target == op::kWithRngState;
  if (may_make_several || node.type().tensor() != nullptr) return {};  // passes look at the one tensor
  return fail(ErrorCode::kInvalidArgument, "makes no tensor, need one");
}

}  // namespace tandem::graph
