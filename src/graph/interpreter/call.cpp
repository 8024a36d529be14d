#include "graph/interpreter/call.hpp"

#include <algorithm>
#include <tandem/graph/text.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/interpreter/sizes.hpp"

namespace tandem::graph::interpreter {
namespace {

bool is_null(const graph::Argument* argument) {
  return argument == nullptr || std::holds_alternative<std::monostate>(argument->value);
}

tl::unexpected<Error> wrong(const graph::Argument* argument, std::string_view need) {
  return failf(ErrorCode::kInvalidArgument, "an argument is {}, need {}{}",
               argument == nullptr ? "missing" : graph::to_text(*argument), need,
               argument != nullptr && argument->is_symbolic() ? "; the file has no hint of it" : "");
}

bool has_symbols(const graph::Argument& argument) {
  if (argument.list() == nullptr) return argument.is_symbolic();
  return std::any_of(argument.list()->begin(), argument.list()->end(), has_symbols);
}

/// Numbers in the place of symbols and nodes, as far as they are known.
void put_numbers(graph::Argument& argument, const ValueTable& values) {
  if (auto* const list = std::get_if<graph::Argument::List>(&argument.value)) {
    for (graph::Argument& entry : *list) put_numbers(entry, values);
  } else if (const auto* const symbol = std::get_if<graph::Symbol>(&argument.value)) {
    const auto hint = symbol->hint;
    std::visit(
        [&](auto number) {
          if constexpr (!std::is_same_v<decltype(number), std::monostate>) argument.value = number;
        },
        hint);
  } else if (argument.is_symbolic()) {
    const auto made = values.find(argument.node());
    const bool is_one = made != values.end() && made->second.size() == 1 && made->second.front();
    const auto number = is_one ? number_in(*made->second.front()) : std::nullopt;
    if (number) argument = *number;
  }
}

}  // namespace

std::optional<double> number_of(const graph::Argument& argument) {
  if (const auto* real = std::get_if<double>(&argument.value)) return *real;
  if (const auto* whole = std::get_if<std::int64_t>(&argument.value)) return static_cast<double>(*whole);
  if (const auto* flag = std::get_if<bool>(&argument.value)) return *flag ? 1.0 : 0.0;
  return std::nullopt;
}

Result<Dims> to_dims(std::span<const std::int64_t> shape) {
  if (shape.size() > kMaxDims) {
    return failf(ErrorCode::kUnsupported, "a tensor has {} dims, at most {} can be executed", shape.size(),
                 kMaxDims);
  }
  return Dims(shape);
}

Call::Call(const graph::Node& node, const ValueTable& values, const Ranks& ranks)
    : node_(node),
      values_(values),
      ranks_(ranks),
      arguments_(node.arguments()),
      named_arguments_(&node.named_arguments()) {
  const bool is_known = std::none_of(arguments_.begin(), arguments_.end(), has_symbols) &&
                        std::none_of(named_arguments_->begin(), named_arguments_->end(),
                                     [](const auto& named) { return has_symbols(named.second); });
  if (is_known) return;
  Arguments known{node.arguments(), node.named_arguments()};
  for (graph::Argument& argument : known.list) put_numbers(argument, values);
  for (auto& [name, argument] : known.named) put_numbers(argument, values);
  known_ = std::make_shared<const Arguments>(std::move(known));
  arguments_ = known_->list;
  named_arguments_ = &known_->named;
}

const graph::Argument* Call::argument(std::size_t idx) const {
  return idx < arguments_.size() && !is_null(&arguments_[idx]) ? &arguments_[idx] : nullptr;
}

const graph::Argument* Call::named(std::string_view name) const {
  const auto found = named_arguments_->find(name);
  return found == named_arguments_->end() || is_null(&found->second) ? nullptr : &found->second;
}

const graph::Argument* Call::argument(std::size_t idx, std::string_view name) const {
  const auto* const found = argument(idx);
  return found != nullptr ? found : named(name);
}

Result<std::optional<HostTensor>> Call::value_of(const graph::Argument* argument) const {
  if (is_null(argument)) return std::nullopt;
  if (argument->node() == nullptr) return wrong(argument, "a tensor");
  const auto found = values_.find(argument->node());
  if (found == values_.end() || found->second.size() != 1) return wrong(argument, "one tensor");
  return found->second.front();
}

Result<HostTensor> Call::tensor(std::size_t idx) const {
  TANDEM_ASSIGN(auto value, optional_tensor(idx));
  if (!value) return wrong(argument(idx), "a tensor");
  return *std::move(value);
}

Result<std::optional<HostTensor>> Call::optional_tensor(std::size_t idx) const {
  return value_of(argument(idx));
}

Result<std::vector<HostTensor>> Call::tensors_in(const graph::Argument* argument) const {
  TANDEM_ASSIGN(const Values values, optional_tensors_in(argument, 0));
  std::vector<HostTensor> all;
  for (const auto& value : values) {
    if (!value) return wrong(argument, "tensors");
    all.push_back(*value);
  }
  if (all.empty()) return wrong(argument, "one tensor at least");
  return all;
}

Result<Values> Call::optional_tensors_in(const graph::Argument* argument, std::size_t count) const {
  if (argument == nullptr) return Values(count);
  Values values;
  for (const graph::Argument& entry : argument->entries()) {
    TANDEM_ASSIGN(auto value, value_of(&entry));
    values.push_back(std::move(value));
  }
  if (count != 0 && values.size() != count) return wrong(argument, fmt::format("{} entries", count));
  return values;
}

Result<Values> Call::items(std::size_t idx) const {
  const auto* const found = argument(idx);
  const auto values = found == nullptr ? values_.end() : values_.find(found->node());
  if (values == values_.end()) return wrong(found, "a node that makes several tensors");
  return values->second;
}

Result<std::int64_t> Call::integer(std::size_t idx) const {
  const auto* const found = argument(idx);
  if (found == nullptr || !found->integer()) return wrong(found, "a whole number");
  return *found->integer();
}

Result<std::int64_t> Call::integer_or(std::size_t idx, std::int64_t otherwise) const {
  return argument(idx) == nullptr ? Result<std::int64_t>(otherwise) : integer(idx);
}

Result<int> Call::dim(const graph::Argument* argument, const HostTensor& tensor, int otherwise) const {
  if (argument != nullptr && !argument->integer()) return wrong(argument, "a whole number");
  std::int64_t dim = argument == nullptr ? otherwise : *argument->integer();
  const int num_dims = tensor.sizes().size();
  if (dim < 0) dim += num_dims;
  if (dim < 0 || dim >= num_dims)
    return wrong(argument, fmt::format("a dim of {}", to_string(tensor.sizes())));
  return static_cast<int>(dim);
}

Result<std::vector<bool>> Call::dims_or_all(std::size_t idx, const HostTensor& tensor) const {
  const auto* const found = argument(idx);
  const int num_dims = tensor.sizes().size();
  std::vector<bool> is_named(static_cast<std::size_t>(num_dims), false);
  const auto entries = found == nullptr ? std::span<const graph::Argument>() : found->entries();
  for (const graph::Argument& entry : entries) {
    if (!entry.integer()) return wrong(&entry, "a whole number");
    const std::int64_t dim = *entry.integer() < 0 ? *entry.integer() + num_dims : *entry.integer();
    if (dim < 0 || dim >= num_dims) {
      if (num_dims == 0 && dim >= -1 && dim <= 0) continue;  // of a number, which has none
      return failf(ErrorCode::kInvalidArgument, "dim {} does not exist in sizes {}", *entry.integer(),
                   to_string(tensor.sizes()));
    }
    is_named[static_cast<std::size_t>(dim)] = true;
  }
  if (entries.empty()) is_named.assign(is_named.size(), true);
  return is_named;
}

Result<std::vector<std::int64_t>> Call::integers(std::size_t idx) const {
  const auto* const found = argument(idx);
  if (found == nullptr || found->list() == nullptr) return wrong(found, "a list of whole numbers");
  std::vector<std::int64_t> all;
  for (const graph::Argument& entry : *found->list()) {
    if (!entry.integer()) return wrong(&entry, "a whole number");
    all.push_back(*entry.integer());
  }
  return all;
}

Result<double> Call::number(std::size_t idx) const {
  const auto* const found = argument(idx);
  const auto value = found == nullptr ? std::nullopt : number_of(*found);
  if (!value) return wrong(found, "a number");
  return *value;
}

Result<double> Call::number_or(const graph::Argument* argument, double otherwise) const {
  if (argument == nullptr) return otherwise;
  const auto value = number_of(*argument);
  if (!value) return wrong(argument, "a number");
  return *value;
}

Result<bool> Call::flag_or(const graph::Argument* argument, bool otherwise) const {
  if (argument == nullptr) return otherwise;
  if (!std::holds_alternative<bool>(argument->value)) return wrong(argument, "true or false");
  return std::get<bool>(argument->value);
}

Result<std::string_view> Call::text(std::size_t idx) const {
  const auto* const found = argument(idx);
  if (found == nullptr || !std::holds_alternative<std::string>(found->value)) return wrong(found, "text");
  return std::get<std::string>(found->value);
}

Result<DType> Call::dtype_or(const graph::Argument* argument, DType otherwise) const {
  if (argument == nullptr) return otherwise;
  constexpr std::string_view kPrefix = "torch.";
  const auto* const repr = std::get_if<graph::Repr>(&argument->value);
  const bool is_torch = repr != nullptr && repr->text.starts_with(kPrefix);
  const auto dtype =
      is_torch ? graph::dtype_of(std::string_view(repr->text).substr(kPrefix.size())) : std::nullopt;
  if (!dtype) return wrong(argument, "a type that tandem has");
  return *dtype;
}

Result<void> Call::named_is(std::string_view name, double need) const {
  const auto* const found = named(name);
  if (found == nullptr || number_of(*found) == need) return {};
  return failf(ErrorCode::kUnsupported, "{} is {}, can only be executed with {}", name,
               graph::to_text(*found), need);
}

}  // namespace tandem::graph::interpreter
