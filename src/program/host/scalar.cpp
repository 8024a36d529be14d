#include <fmt/format.h>

#include <tandem/program/host/scalar.hpp>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::program::host {

struct Scalar::Node {
  char operation = 0;  ///< 0: a number or a symbol
  std::int64_t value = 0;
  std::string name = {};  ///< empty: a number
  Scalar x;
  Scalar y;
  Node() : x(nullptr), y(nullptr) {}
};

Scalar::Scalar(std::int64_t value) {
  auto node = std::make_shared<Node>();
  node->value = value;
  node_ = std::move(node);
}

Scalar::Scalar(char operation, const Scalar& x, const Scalar& y) {
  auto node = std::make_shared<Node>();
  node->operation = operation;
  node->x = x;
  node->y = y;
  node_ = std::move(node);
}

Scalar Scalar::named(std::string name) {
  auto node = std::make_shared<Node>();
  node->name = std::move(name);
  return Scalar(std::shared_ptr<const Node>(std::move(node)));
}

std::string Scalar::to_string() const {
  if (node_->operation == 0) return node_->name.empty() ? std::to_string(node_->value) : node_->name;
  const std::string symbol = node_->operation == '=' ? "==" : std::string(1, node_->operation);
  return fmt::format("( {} {} {} )", node_->x.to_string(), symbol, node_->y.to_string());
}

Result<std::int64_t> Scalar::evaluate(const ScalarValues& values) const {
  if (node_->operation == 0) {
    if (node_->name.empty()) return node_->value;
    const auto found = values.find(node_->name);
    if (found != values.end()) return found->second;
    return failf(ErrorCode::kInvalidArgument, "symbol {} has no value", node_->name);
  }
  TANDEM_ASSIGN(const std::int64_t x, node_->x.evaluate(values));
  TANDEM_ASSIGN(const std::int64_t y, node_->y.evaluate(values));
  std::int64_t result = 0;
  bool overflows = false;
  switch (node_->operation) {
    case '+':
      overflows = __builtin_add_overflow(x, y, &result);
      break;
    case '-':
      overflows = __builtin_sub_overflow(x, y, &result);
      break;
    case '*':
      overflows = __builtin_mul_overflow(x, y, &result);
      break;
    case '=':
      result = x == y ? 1 : 0;
      break;
    default:
      if (y < 1) {
        return failf(ErrorCode::kInvalidArgument, "{}: got a remainder by {}, need at least 1", to_string(),
                     y);
      }
      result = x % y;
  }
  if (overflows) return failf(ErrorCode::kInvalidArgument, "{} is beyond 64 bits", to_string());
  return result;
}

}  // namespace tandem::program::host
