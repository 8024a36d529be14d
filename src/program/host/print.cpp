#include <fmt/format.h>
#include <fmt/ranges.h>

#include "program/host/container.hpp"

namespace tandem::program::host {
namespace {

std::string to_string(const StreamRef& stream) {
  return fmt::format("Stream {}", stream.index ? stream.index->to_string() : "0");
}

/// Writes a container line by line, one overload a kind of node.
class Printer {
 public:
  explicit Printer(const HostProgram::Container& container) : container_(container) {}

  void print(const Nodes& nodes, int depth) {
    const int outer = depth_;
    depth_ = depth;
    for (const Node& node : nodes) std::visit(*this, node);
    depth_ = outer;
  }
  [[nodiscard]] std::string take() { return std::move(text_); }

  void operator()(const GetCurrentStream& node) { line("GetCurrentStream into {}", to_string(node.into)); }
  void operator()(const SetCurrentStream& node) { line("SetCurrentStream to {}", to_string(node.stream)); }
  void operator()(const Synchronize& node) { line("Synchronize {}", to_string(node.stream)); }
  void operator()(const Allocate& node) {
    line("{} = ALLOCATE(buffer={}, mem_type=global, size={}, zero_init=false, resets_to_zero=false)",
         name(node.tensor), name(node.tensor), allocated_size(container_.at(node.tensor)).to_string());
  }
  void operator()(const Select& node) {
    line("{}", name(node.out));
    line("   = select( {}, axis = {}, index = {} )", name(node.in),
         container_.at(node.in).axis(node.axis).to_string(), node.index.to_string());
  }
  void operator()(const Communication& node) {
    line("Communication {} (type={}, team=({}), input={}, output={})", node.number,
         node.type == CommunicationType::kAllgather ? "Allgather" : "ReduceScatter",
         fmt::join(node.team, " "), name(node.in), name(node.out));
  }
  void operator()(const P2PCommunication& node) {
    line("P2PCommunication {} (type={}, buffer={}, peer={})", node.number,
         node.type == P2PType::kSend ? "send" : "recv", name(node.buffer), node.peer.to_string());
  }
  void operator()(const StartCoalescing&) { line("StartCoalescing"); }
  void operator()(const EndCoalescing& node) { line("EndCoalescing {}", node.number); }
  void operator()(const Wait& node) { line("Wait {} {}", node.what, node.number); }
  void operator()(const Multiply& node) {
    line("{}", name(node.out));
    line("   = {}({},", host::to_string(node.kind), name(node.a));
    // Both forms have names of six letters, so the operands stand under each other.
    line("            {}{}", name(node.b), node.bias < 0 ? ")" : ",");
    if (node.bias >= 0) line("            {})", name(node.bias));
  }
  void operator()(const Set& node) {
    line("{}", name(node.out));
    line("   = Set( {}, cache_op=Streaming )", name(node.in));
  }
  void operator()(const std::shared_ptr<const ForLoop>& loop) {
    line("FOR {} in {}:", loop->index, container_.at(loop->tensor).axis(loop->axis).to_string());
    print(loop->body, depth_ + 1);
  }
  void operator()(const std::shared_ptr<const IfThenElse>& branch) {
    line("IF Manual {}:", branch->predicate.to_string());
    print(branch->then, depth_ + 1);
    line("ELSE:");
    print(branch->otherwise, depth_ + 1);
  }

 private:
  [[nodiscard]] std::string name(int id) const { return container_.at(id).to_string(); }
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_.append(2 * static_cast<std::size_t>(depth_), ' ');
    text_ += fmt::format(format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  const HostProgram::Container& container_;
  int depth_ = 0;
  std::string text_;
};

}  // namespace

Scalar allocated_size(const SymbolicTensor& tensor) {
  std::optional<Scalar> size;
  for (const IterDomain& axis : tensor.axes()) {
    if (axis.is_reduction() || axis.is_sharded()) continue;
    size = size ? *size * axis.extent() : axis.extent();
  }
  return size.value_or(Scalar(1));
}

std::string HostProgram::to_string() const {
  const auto names = [&](const std::vector<int>& ids) {
    std::vector<std::string> all;
    all.reserve(ids.size());
    for (const int id : ids) all.push_back(container_->at(id).to_string());
    return fmt::format("({})", fmt::join(all, ", "));
  };
  Printer printer(*container_);
  printer.print(container_->nodes, 1);
  return fmt::format("%HostIrContainer {{ {} -> {} :\n{}}} // %HostIrContainer\n", names(container_->inputs),
                     names(container_->outputs), printer.take());
}

}  // namespace tandem::program::host
