#include "graph/ir/limits.hpp"

#include "base/format.hpp"

namespace tandem::graph {

Result<void> check_type(const TensorType& type) {
  if (type.shape.size() > kMaxDims) {
    return failf(ErrorCode::kParse, "{} dims, need at most {}", type.shape.size(), kMaxDims);
  }
  if (type.shape.size() != type.stride.size()) {
    return failf(ErrorCode::kParse, "{} sizes and {} strides", type.shape.size(), type.stride.size());
  }
  // Sizes of 0 count as 1: what is left of an empty tensor must fit as well.
  std::int64_t count = 1;
  for (std::size_t d = 0; d < type.shape.size(); ++d) {
    const std::int64_t size = type.shape[d];
    if (size < 0) return failf(ErrorCode::kParse, "size {} in dim {}", size, d);
    if (size > 1 && count > kMaxNumel / size) {
      return failf(ErrorCode::kParse, "more than 2^62 elements in [{}]",
                   fmt::join(type.shape.begin(), type.shape.end(), ", "));
    }
    count *= std::max<std::int64_t>(size, 1);
  }
  return {};
}

Result<void> check_elements(const Argument::List& elements) {
  for (const Argument& element : elements) {
    const bool fits =
        std::holds_alternative<bool>(element.value) || std::holds_alternative<std::int64_t>(element.value) ||
        std::holds_alternative<double>(element.value) || std::holds_alternative<Repr>(element.value);
    if (!fits) return fail(ErrorCode::kParse, "an element is neither a number, a truth value nor a repr");
  }
  return {};
}

}  // namespace tandem::graph
