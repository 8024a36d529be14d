#include "program/program.hpp"

#include <string_view>

#include "base/format.hpp"

namespace tandem::program {
namespace {

std::string_view name_of(Space space) {
  switch (space) {
    case Space::kCaller:
      return "caller";
    case Space::kScratch:
      return "scratch";
    case Space::kWorkspace:
      return "workspace";
    case Space::kInPlace:
      return "in place";
    case Space::kInbox:
      return "inbox";
    case Space::kInboxWords:
      return "inbox words";
    case Space::kInboxFlags:
      return "inbox flags";
  }
  return "?";
}

/// The text form of one program.
class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {}

  std::string text() {
    text_ = fmt::format("{}: rank {} of {}, {} lane{}\n", program_.name, program_.rank, program_.world,
                        program_.num_lanes, program_.num_lanes == 1 ? "" : "s");
    for (const Root& root : program_.roots) print(root);
    for (const Step& step : program_.steps) text_ += "  " + of(step) + "\n";
    return std::move(text_);
  }
  [[nodiscard]] std::string of(const Step& step) const;

 private:
  void print(const Root& root) {
    text_ += fmt::format("  {}: {}", root.name, name_of(root.space));
    if (root.space != Space::kCaller && root.space != Space::kInPlace)
      text_ += fmt::format(" at {}", root.offset_bytes);
    if (!root.sizes.empty())
      text_ += fmt::format(", {} {}", to_string(root.dtype), tandem::to_string(root.sizes));
    text_ += "\n";
  }
  [[nodiscard]] std::string of(const Operand& operand) const {
    const std::string& name = program_.roots[static_cast<std::size_t>(operand.root)].name;
    if (operand.dim < 0) return name;
    const std::string range = fmt::format("{}:{}", operand.first, operand.first + operand.size);
    return operand.dim == 0 ? fmt::format("{}[{}]", name, range)
                            : fmt::format("{}[dim {}, {}]", name, operand.dim, range);
  }
  [[nodiscard]] std::string plus(const char* text, const Operand& operand) const {
    return operand.is_absent() ? std::string() : text + of(operand);
  }
  [[nodiscard]] std::string of(const Product& product) const;
  [[nodiscard]] std::string departing(const Product& product) const;
  [[nodiscard]] std::string sum_of(const Product& product) const;

  const Program& program_;
  std::string text_;
};

std::string Printer::departing(const Product& product) const {
  const Departure& departure = *product.departure;
  return fmt::format("{} = {} rows of the {} over ranks of {}{}{}{}", of(product.out),
                     departure.gives_all ? "all" : "own", coll::to_string(departure.reduce_op),
                     product.b.is_absent() ? of(product.a) : sum_of(product), plus(" + ", departure.bias),
                     product.fast_accum ? ", fast sums" : "", plus(", kept in ", departure.kept));
}

std::string Printer::sum_of(const Product& product) const {
  std::string sum =
      fmt::format("{} * {}{}{}{}", of(product.a), product.b.is_absent() ? "nothing" : of(product.b),
                  plus(" * ", product.a_scale), plus(" * ", product.b_scale), plus(" + ", product.bias));
  if (!product.bias.is_absent() && !product.result_scale.is_absent()) sum = fmt::format("({})", sum);
  return sum + plus(" * ", product.result_scale);
}

std::string Printer::of(const Product& product) const {
  if (product.departure) return departing(product);
  std::string text =
      fmt::format("{} {} {}{}", product.out.is_absent() ? "nothing" : of(product.out),
                  product.accumulate ? "+=" : "=", sum_of(product), plus(" + ", product.addend));
  if (product.fast_accum) text += ", fast sums";
  if (product.telling) text += fmt::format(", tells owners of rows by {}", of(product.telling->word));
  if (!product.arrival) return text;
  const Arrival& arrival = *product.arrival;
  text += fmt::format(", as {} says", of(arrival.words));
  if (!arrival.own.is_absent()) {
    text += fmt::format(", own chunks [{}:{}] in {}", arrival.first_own, arrival.first_own + arrival.num_own,
                        of(arrival.own));
  }
  if (arrival.held) text += ", others where they are held";
  if (arrival.are_relayed) text += ", once they have crossed the link";
  if (arrival.scales_arrive()) text += fmt::format(", their scales in {}", of(arrival.own_scale));
  if (arrival.left_free > 0) text += fmt::format(", leaves {} multiprocessors free", arrival.left_free);
  if (arrival.piece_peers > 0) {
    text += fmt::format(", {} pieces to the {} ranks before{}", arrival.sends ? "sends" : "has sent",
                        arrival.piece_peers, arrival.own_in_pieces ? " and to itself" : "");
  }
  if (arrival.begins_early) text += ", begins early";
  return text;
}

std::string Printer::of(const Step& step) const {
  const std::string lane = lane_name(step.lane, program_.num_lanes);
  switch (step.kind) {
    case StepKind::kCopy:
      return fmt::format("{}: copy {} -> {}", lane, of(step.from), of(step.to));
    case StepKind::kGet:
      return fmt::format("{}: get {} of rank {} -> {}", lane, of(step.from), step.peer, of(step.to));
    case StepKind::kRead:
      return fmt::format("{}: read {} of rank {} -> {}", lane, of(step.from), step.peer, of(step.to));
    case StepKind::kCross:
      return fmt::format("{}: what other ranks tell of by {} crosses the link, in {} parts{}", lane,
                         of(step.from), step.parts, plus(", as then says ", step.to));
    case StepKind::kPut:
      return fmt::format("{}: put {} -> {} of rank {}", lane, of(step.from), of(step.to), step.peer);
    case StepKind::kReset:
      return fmt::format("{}: reset {}, then barrier {}", lane, of(step.to), step.channel);
    case StepKind::kWriteWord:
      return fmt::format("{}: write {} of rank {}", lane, of(step.to), step.peer);
    case StepKind::kAwait:
      return fmt::format("{}: await {} from rank {}", lane, of(step.from), step.peer);
    case StepKind::kBarrier:
      return fmt::format("{}: barrier {}", lane, step.channel);
    case StepKind::kJoin:
      return fmt::format("{} > {}", lane, lane_name(step.other, program_.num_lanes));
    case StepKind::kNap:
      return fmt::format("{}: nap", lane);
    case StepKind::kProduct:
      return fmt::format("{}: {}", lane, of(program_.products[static_cast<std::size_t>(step.product)]));
    case StepKind::kSum:
      return fmt::format("{}: {} = {} of {}{}", lane, of(step.to), coll::to_string(step.reduce_op),
                         of(step.from), plus(" + ", step.bias));
    case StepKind::kSumRanks:
      return fmt::format("{}: {} = {} of {} over ranks{}", lane, of(step.to), coll::to_string(step.reduce_op),
                         of(step.from), plus(" + ", step.bias));
    case StepKind::kCast:
      return fmt::format("{}: {} = {}{}, rounded", lane, of(step.to), of(step.from), plus(" + ", step.bias));
    case StepKind::kQuantize:
      return fmt::format("{}: quantize {} -> {} by {}", lane, of(step.from), of(step.to), of(step.scale));
    case StepKind::kAllGather:
      return fmt::format("{}: all_gather {} -> {}", lane, of(step.from), of(step.to));
    case StepKind::kProductScatter:
      return fmt::format("{}: {}", lane, of(program_.products[static_cast<std::size_t>(step.product)]));
    case StepKind::kReduceScatter:
    case StepKind::kAllReduce:
      return fmt::format("{}: {} {} of {} -> {}{}", lane,
                         step.kind == StepKind::kAllReduce ? "all_reduce" : "reduce_scatter",
                         coll::to_string(step.reduce_op), of(step.from), of(step.to), plus(" + ", step.bias));
    case StepKind::kCheck:
      return fmt::format("{}: check {} for NaN", lane, of(step.from));
    case StepKind::kExchange:
      return fmt::format("{}: send {} to rank {} of another host, receive {} from rank {}", lane,
                         of(step.from), step.peer, of(step.to), step.source);
    case StepKind::kExchanged:
      return fmt::format("{}: await {} from rank {} of another host", lane, of(step.to), step.source);
  }
  return "?";
}

}  // namespace

std::string lane_name(Lane lane, int num_lanes) {
  if (lane == kCurrent) return "cur";
  return num_lanes <= 2 ? "bk" : fmt::format("s{}", lane);
}

std::int64_t MemoryNeeds::bytes_of(Space space) const {
  constexpr std::int64_t kWordBytes = 4;
  switch (space) {
    case Space::kScratch:
      return scratch_bytes;
    case Space::kWorkspace:
      return workspace_bytes;
    case Space::kInbox:
      return inbox_bytes;
    case Space::kInboxWords:
      return inbox_words * kWordBytes;
    case Space::kInboxFlags:
      return inbox_flags * kWordBytes;
    case Space::kCaller:
    case Space::kInPlace:
      break;
  }
  return 0;
}

std::string Program::to_string() const {
  return Printer(*this).text();
}

std::string Program::to_string(const Step& step) const {
  return Printer(*this).of(step);
}

std::vector<trace::Step> Program::traced() const {
  std::vector<trace::Step> traced;
  for (const Step& step : steps) {
    if (const auto one = program::traced(step)) traced.push_back(*one);
  }
  return traced;
}

std::optional<trace::Step> traced(const Step& step) {
  if (!step.label) return std::nullopt;
  return trace::Step{.kind = *step.label,
                     .stream = step.lane == kCurrent ? trace::StreamRole::kCurrent : trace::StreamRole::kSide,
                     .peer = step.peer,
                     .channel = step.channel,
                     .slot = step.slot};
}

}  // namespace tandem::program
