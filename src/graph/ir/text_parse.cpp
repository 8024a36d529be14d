#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <tandem/graph/text.hpp>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "graph/ir/limits.hpp"
#include "graph/ir/words.hpp"

namespace tandem::graph {
namespace {

/// Reads tokens, between which white space is skipped.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  [[nodiscard]] bool at_end() {
    skip_space();
    return at_ == text_.size();
  }
  [[nodiscard]] char peek() { return at_end() ? '\0' : text_[at_]; }
  [[nodiscard]] bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  Result<void> expect(char c) {
    if (take(c)) return {};
    return expected(std::string(1, c));
  }
  /// A word of letters, digits, dots and underscores; empty if there is none.
  std::string_view word() {
    skip_space();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_word_character(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  Result<void> expect_word(std::string_view wanted) {
    const std::size_t begin = at_;
    if (word() == wanted) return {};
    at_ = begin;
    return expected(wanted);
  }
  /// A word, or text in quotes.
  Result<std::string> name();
  Result<std::string> quoted();
  /// All up to `end`, which is stepped over.
  Result<std::string> up_to(char end);
  Result<std::int64_t> integer();
  /// A whole number, or with a dot or an exponent a double; or infinity, -infinity, nan.
  Result<Argument> number();

  [[nodiscard]] tl::unexpected<Error> expected(std::string_view what) {
    const char found = peek();
    return refusal(fmt::format("expected {}, found {}", what,
                               at_end()                     ? "the end"
                               : found < ' ' || found > '~' ? "a byte that is not ASCII"
                                                            : fmt::format("'{}'", found)));
  }
  [[nodiscard]] tl::unexpected<Error> refusal(std::string_view why) const {
    const auto line = 1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    return failf(ErrorCode::kParse, "graph text: line {}: {}", line, why);
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  /// The characters of a number from here on.
  [[nodiscard]] std::string_view digits() {
    skip_space();
    std::size_t end = at_;
    while (end < text_.size() && (is_word_character(text_[end]) || text_[end] == '-' || text_[end] == '+')) {
      ++end;
    }
    return text_.substr(at_, end - at_);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

Result<std::string> Reader::quoted() {
  if (peek() != '"') return expected("text in quotes");
  std::size_t end = at_ + 1;
  while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
  if (end >= text_.size()) return refusal("a quote has no end");
  const auto json = nlohmann::json::parse(text_.substr(at_, end + 1 - at_), nullptr, false);
  if (!json.is_string()) return refusal("what stands in quotes is no JSON string");
  at_ = end + 1;
  return json.get<std::string>();
}

Result<std::string> Reader::name() {
  if (peek() == '"') return quoted();
  const std::string_view found = word();
  if (!is_word(found)) return expected("a name");
  return std::string(found);
}

Result<std::string> Reader::up_to(char end) {
  const std::size_t found = text_.find(end, at_);
  if (found == std::string_view::npos) return refusal(fmt::format("no '{}' follows", end));
  std::string text(text_.substr(at_, found - at_));
  if (!is_plain_repr(text)) return refusal("a repr has characters that need quotes");
  at_ = found + 1;
  return text;
}

Result<std::int64_t> Reader::integer() {
  const std::string_view found = digits();
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(found.data(), found.data() + found.size(), value);
  if (code != std::errc() || end != found.data() + found.size()) return expected("a whole number of 64 bits");
  at_ += found.size();
  return value;
}

Result<Argument> Reader::number() {
  const std::string_view found = digits();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr std::pair<std::string_view, double> kWords[] = {
      {"infinity", kInfinity}, {"-infinity", -kInfinity}, {"nan", std::numeric_limits<double>::quiet_NaN()}};
  for (const auto& [word, value] : kWords) {
    if (found != word) continue;
    at_ += found.size();
    return Argument{value};
  }
  if (found.find_first_of(".e") == std::string_view::npos) {
    TANDEM_ASSIGN(const std::int64_t value, integer());
    return Argument{value};
  }
  double value = 0;
  const auto [end, code] = std::from_chars(found.data(), found.data() + found.size(), value);
  if (code != std::errc() || end != found.data() + found.size() || !std::isfinite(value)) {
    return expected("a value");
  }
  at_ += found.size();
  return Argument{value};
}

/// Reads nodes into a graph.
class Parser {
 public:
  explicit Parser(std::string_view text) : reader_(text) {}
  Result<Graph> parse();

 private:
  Result<void> header();
  Result<void> group();
  Result<void> node();
  Result<void> type_of(NodeSpec& spec);
  Result<Constant> constant();
  Result<Node*> known_node();
  Result<SymbolicType::Item> item();
  Result<Argument::List> sizes(char end);
  Result<Argument> symbol();
  Result<Argument> argument(int depth);
  Result<Argument> list(int depth);
  Result<void> arguments(NodeSpec& spec);

  Reader reader_;
  Graph graph_;
  int depth_ = 0;  ///< of the part that is read
};

Result<void> Parser::header() {
  TANDEM_TRY(reader_.expect_word("graph"));
  TANDEM_TRY(reader_.expect_word("world"));
  TANDEM_ASSIGN(const std::int64_t world_size, reader_.integer());
  if (world_size < 1 || world_size > kMaxWorldSize) {
    return reader_.refusal(fmt::format("world is {}, need 1 to {}", world_size, kMaxWorldSize));
  }
  graph_.header.world_size = static_cast<int>(world_size);
  TANDEM_TRY(reader_.expect_word("group"));
  TANDEM_ASSIGN(graph_.header.group, reader_.quoted());
  TANDEM_TRY(reader_.expect_word("source"));
  TANDEM_ASSIGN(graph_.header.source, reader_.quoted());
  while (reader_.peek() == 'f') {
    TANDEM_TRY(reader_.expect_word("fuses"));
    TANDEM_ASSIGN(const std::string op, reader_.quoted());
    TANDEM_ASSIGN(graph_.header.pytorch_fuses[op], reader_.integer());
  }
  while (reader_.peek() == 'g') TANDEM_TRY(group());
  return {};
}

Result<void> Parser::group() {
  TANDEM_TRY(reader_.expect_word("group"));
  TANDEM_ASSIGN(const std::string name, reader_.quoted());
  ProcessGroup& group = graph_.header.groups[name];
  TANDEM_TRY(reader_.expect_word("ranks"));
  TANDEM_ASSIGN(group.num_ranks, reader_.integer());
  if (group.num_ranks < 1 || group.num_ranks > kMaxWorldSize) {
    return reader_.refusal(fmt::format("ranks is {}, need 1 to {}", group.num_ranks, kMaxWorldSize));
  }
  TANDEM_ASSIGN(group.description, reader_.quoted());
  while (reader_.peek() == '"') {
    TANDEM_ASSIGN(const std::string op, reader_.quoted());
    TANDEM_ASSIGN(group.collectives[op], reader_.integer());
  }
  return {};
}

Result<Argument::List> Parser::sizes(char end) {
  Argument::List found;
  if (reader_.take(end)) return found;
  do {
    if (reader_.peek() == '{') {
      TANDEM_ASSIGN(found.emplace_back(), symbol());
      continue;
    }
    TANDEM_ASSIGN(const std::int64_t size, reader_.integer());
    found.push_back(Argument{size});
  } while (reader_.take(','));
  TANDEM_TRY(reader_.expect(end));
  return found;
}

Result<SymbolicType::Item> Parser::item() {
  if (reader_.peek() == '{') {
    TANDEM_ASSIGN(Argument number, symbol());
    return SymbolicType::Item(std::get<Symbol>(std::move(number.value)));
  }
  TANDEM_ASSIGN(std::string dtype, reader_.name());
  if (dtype == "null") return SymbolicType::Item();
  SymbolicTensor tensor;
  tensor.dtype = std::move(dtype);
  TANDEM_TRY(reader_.expect('['));
  TANDEM_ASSIGN(tensor.shape, sizes(']'));
  if (reader_.take('{')) {
    TANDEM_ASSIGN(tensor.stride, sizes('}'));
    return SymbolicType::Item(std::move(tensor));
  }
  TensorType type{{}, std::vector<std::int64_t>(tensor.shape.size(), 0), {}};
  for (const Argument& size : tensor.shape) {
    if (size.is_symbolic()) return reader_.expected("strides in braces");
    type.shape.push_back(*size.integer());
  }
  // Before sizes are multiplied.
  if (const auto ok = check_type(type); !ok) return reader_.refusal(ok.error().text());
  for (const std::int64_t stride : contiguous_stride(type.shape)) tensor.stride.push_back(Argument{stride});
  return SymbolicType::Item(std::move(tensor));
}

Result<void> Parser::type_of(NodeSpec& spec) {
  SymbolicType type{.is_list = reader_.take('('), .items = {}};
  if (!type.is_list) {
    TANDEM_ASSIGN(type.items.emplace_back(), item());
  } else if (!reader_.take(')')) {
    do {
      TANDEM_ASSIGN(type.items.emplace_back(), item());
    } while (reader_.take(','));
    TANDEM_TRY(reader_.expect(')'));
  }
  auto hinted = type.hinted();
  if (!hinted) return reader_.refusal(hinted.error().text());
  spec.type = *std::move(hinted);
  if (type.has_symbols()) spec.symbolic = std::make_shared<const SymbolicType>(std::move(type));
  return {};
}

Result<Node*> Parser::known_node() {
  TANDEM_ASSIGN(const std::string name, reader_.name());
  Node* const node = graph_.find(name);
  if (node == nullptr) return reader_.refusal(fmt::format("no earlier node is named '{}'", name));
  return node;
}

Result<Argument> Parser::list(int depth) {
  if (depth > kMaxListDepth)
    return reader_.refusal(fmt::format("lists nested deeper than {}", kMaxListDepth));
  Argument::List list;
  if (reader_.take(']')) return Argument{std::move(list)};
  do {
    TANDEM_ASSIGN(list.emplace_back(), argument(depth + 1));
  } while (reader_.take(','));
  TANDEM_TRY(reader_.expect(']'));
  return Argument{std::move(list)};
}

Result<Argument> Parser::argument(int depth) {
  switch (reader_.peek()) {
    case '"': {
      TANDEM_ASSIGN(std::string text, reader_.quoted());
      return Argument{std::move(text)};
    }
    case '%': {
      static_cast<void>(reader_.take('%'));
      TANDEM_ASSIGN(Node* const node, known_node());
      return Argument{node};
    }
    case '[':
      static_cast<void>(reader_.take('['));
      return list(depth + 1);
    case '<': {
      static_cast<void>(reader_.take('<'));
      if (reader_.peek() != '"') {
        TANDEM_ASSIGN(std::string text, reader_.up_to('>'));
        return Argument{Repr{std::move(text)}};
      }
      TANDEM_ASSIGN(std::string text, reader_.quoted());
      TANDEM_TRY(reader_.expect('>'));
      return Argument{Repr{std::move(text)}};
    }
    case '{':
      return symbol();
    case 't':
      TANDEM_TRY(reader_.expect_word("true"));
      return Argument{true};
    case 'f':
      TANDEM_TRY(reader_.expect_word("false"));
      return Argument{false};
    case 'n':
      if (reader_.expect_word("null")) return Argument{};
      return reader_.number();  // nan
    default:
      return reader_.number();
  }
}

Result<Argument> Parser::symbol() {
  TANDEM_TRY(reader_.expect('{'));
  Symbol symbol;
  TANDEM_ASSIGN(symbol.text, reader_.quoted());
  constexpr std::string_view kFirstOfNumbers = "-0123456789tfni";  // true, false, nan, null, infinity
  if (kFirstOfNumbers.find(reader_.peek()) == std::string_view::npos) return reader_.expected("a hint");
  TANDEM_ASSIGN(const Argument hint, argument(1));
  if (const auto* const flag = std::get_if<bool>(&hint.value)) symbol.hint = *flag;
  if (const auto* const whole = std::get_if<std::int64_t>(&hint.value)) symbol.hint = *whole;
  if (const auto* const real = std::get_if<double>(&hint.value)) symbol.hint = *real;
  TANDEM_TRY(reader_.expect('}'));
  return Argument{std::move(symbol)};
}

Result<Constant> Parser::constant() {
  if (!reader_.take('{')) {
    TANDEM_ASSIGN(Argument value, argument(1));
    if (std::holds_alternative<std::monostate>(value.value)) return Constant{};
    if (auto* const list = std::get_if<Argument::List>(&value.value)) {
      if (const auto ok = check_elements(*list); !ok) return reader_.refusal(ok.error().text());
      return Constant{std::move(*list)};
    }
    if (auto* const repr = std::get_if<Repr>(&value.value)) return Constant{std::move(*repr)};
    return reader_.refusal("a value is neither null, a list, a repr nor a part in braces");
  }
  if (depth_ == kMaxPartDepth)
    return reader_.refusal(fmt::format("parts nested deeper than {}", kMaxPartDepth));
  Graph outer = std::exchange(graph_, Graph());
  ++depth_;
  while (!reader_.take('}')) TANDEM_TRY(node());
  --depth_;
  auto part = std::make_shared<const Graph>(std::exchange(graph_, std::move(outer)));
  return Constant{std::move(part)};
}

/// Positional ones, then those with names.
Result<void> Parser::arguments(NodeSpec& spec) {
  if (reader_.take(')')) return {};
  do {
    Reader before = reader_;
    constexpr std::string_view kNoNames = "%[<{-0123456789";  // a refusal counts lines: not for each argument
    const bool may_be_name = kNoNames.find(reader_.peek()) == std::string_view::npos;
    const auto name = may_be_name ? reader_.name() : Result<std::string>();
    if (may_be_name && name && reader_.take('=')) {
      TANDEM_ASSIGN(auto value, argument(1));
      if (!spec.named_arguments.emplace(*name, std::move(value)).second) {
        return reader_.refusal(fmt::format("'{}' is given twice", *name));
      }
      continue;
    }
    reader_ = before;
    if (!spec.named_arguments.empty()) return reader_.expected("an argument with a name");
    TANDEM_ASSIGN(spec.arguments.emplace_back(), argument(1));
  } while (reader_.take(','));
  return reader_.expect(')');
}

Result<void> Parser::node() {
  NodeSpec spec;
  TANDEM_TRY(reader_.expect('%'));
  TANDEM_ASSIGN(spec.name, reader_.name());
  TANDEM_TRY(reader_.expect(':'));
  TANDEM_TRY(type_of(spec));
  TANDEM_TRY(reader_.expect('='));
  const bool is_quoted = reader_.peek() == '"';
  TANDEM_ASSIGN(spec.target, reader_.name());
  if (!is_quoted && spec.target == "placeholder") spec.kind = NodeKind::kPlaceholder;
  if (!is_quoted && spec.target == "get_attr") spec.kind = NodeKind::kAttribute;
  if (!is_quoted && spec.target == "output") spec.kind = NodeKind::kOutput;
  const bool is_given = spec.kind == NodeKind::kPlaceholder || spec.kind == NodeKind::kAttribute;
  if (spec.kind != NodeKind::kCall) {
    if (is_given) spec.target = spec.name;
    if (reader_.peek() == '"') {
      TANDEM_ASSIGN(spec.target, reader_.quoted());
    }
  }
  if (spec.kind == NodeKind::kAttribute && reader_.peek() == 'v') {
    TANDEM_TRY(reader_.expect_word("value"));
    TANDEM_ASSIGN(Constant value, constant());
    spec.constant = std::make_shared<const Constant>(std::move(value));
  }
  if (reader_.take('(')) {
    TANDEM_TRY(arguments(spec));
  } else if (!is_given) {
    return reader_.expected("(");
  }
  if (auto added = graph_.add(std::move(spec)); !added) return reader_.refusal(added.error().text());
  return {};
}

Result<Graph> Parser::parse() {
  TANDEM_TRY(header());
  while (!reader_.at_end()) TANDEM_TRY(node());
  return std::move(graph_);
}

}  // namespace

Result<Graph> parse_text(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace tandem::graph
