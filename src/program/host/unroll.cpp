#include "program/host/unroll.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "base/format.hpp"
#include "base/try.hpp"
#include "program/builder.hpp"

namespace tandem::program::host {
namespace {

using Container = HostProgram::Container;

/// Rows [first, first + count) of a root.
struct Rows {
  RootId root = kNone;
  std::int64_t first = 0;
  std::int64_t count = 0;
  [[nodiscard]] Operand operand() const { return part_of(root, 0, first, count); }
  [[nodiscard]] Rows part(std::int64_t skipped, std::int64_t size) const {
    return {root, first + skipped, size};
  }
};

/// Sizes of what one rank stores of a tensor.
Result<Dims> stored_sizes(const SymbolicTensor& tensor, const ScalarValues& values) {
  Dims sizes;
  for (const IterDomain& axis : tensor.axes()) {
    if (axis.is_reduction()) continue;
    TANDEM_ASSIGN(const std::int64_t extent, axis.extent().evaluate(values));
    sizes.push_back(axis.is_sharded() ? 1 : extent);
  }
  return sizes;
}

Dims as_matrix(const Dims& sizes) {
  Dims leading = sizes;
  const std::int64_t columns = leading.erase(leading.size() - 1);
  return {numel(leading), columns};
}

/// Which tensors peers read, and what every slice is a slice of: known before the first step is written.
class Uses {
 public:
  explicit Uses(const Container& container) { look(container.nodes); }
  [[nodiscard]] bool is_read_by_peers(int tensor) const { return read_by_peers_.count(tensor) > 0; }

  void look(const Nodes& nodes) {
    for (const Node& node : nodes) std::visit(*this, node);
  }
  void operator()(const Select& node) { whole_[node.out] = whole_of(node.in); }
  void operator()(const Communication& node) { read_by_peers_.insert(whole_of(node.in)); }
  void operator()(const P2PCommunication& node) { read_by_peers_.insert(whole_of(node.buffer)); }
  void operator()(const std::shared_ptr<const ForLoop>& loop) { look(loop->body); }
  void operator()(const std::shared_ptr<const IfThenElse>& branch) {
    look(branch->then);
    look(branch->otherwise);
  }
  template <class Other>
  void operator()(const Other&) {}

 private:
  [[nodiscard]] int whole_of(int tensor) const {
    const auto found = whole_.find(tensor);
    return found == whole_.end() ? tensor : found->second;
  }
  std::map<int, int> whole_;
  std::set<int> read_by_peers_;
};

/// Walks the host program as an executor would, and writes down what it would enqueue.
class Unroller {
 public:
  Unroller(const Container& container, const ScalarValues& extents, int rank, int place, int num_streams)
      : container_(container),
        uses_(container),
        values_(extents),
        place_(place),
        builder_("host program", rank, mesh().size(), 1 + num_streams, symm::kHostProgramChannel),
        stacks_(static_cast<std::size_t>(1 + num_streams), kNone) {
    values_[std::string(kOwnDevice)] = place;
  }

  Result<Unrolled> unroll(int num_streams);

  Result<void> operator()(const GetCurrentStream&) { return {}; }  // lane 0 from the start
  Result<void> operator()(const SetCurrentStream& node);
  Result<void> operator()(const Synchronize& node);
  Result<void> operator()(const Allocate& node);
  Result<void> operator()(const Select& node);
  Result<void> operator()(const Communication& node);
  Result<void> operator()(const P2PCommunication& node);
  Result<void> operator()(const StartCoalescing&);
  Result<void> operator()(const EndCoalescing& node);
  Result<void> operator()(const Wait& node);
  Result<void> operator()(const Multiply& node);
  Result<void> operator()(const Set& node);
  Result<void> operator()(const std::shared_ptr<const ForLoop>& loop);
  Result<void> operator()(const std::shared_ptr<const IfThenElse>& branch);

 private:
  [[nodiscard]] const DeviceMesh& mesh() const { return container_.at(container_.product.a).device_mesh(); }
  [[nodiscard]] int num_ranks() const { return mesh().size(); }
  [[nodiscard]] int rank_at(std::int64_t place) const {
    return mesh().devices()[static_cast<std::size_t>(place)];
  }
  Result<void> walk(const Nodes& nodes) {
    for (const Node& node : nodes) TANDEM_TRY(std::visit(*this, node));
    return {};
  }
  Result<Lane> lane_of(const StreamRef& stream) const;
  Result<void> add_inputs();
  Result<void> add_root(int tensor, Space space);
  RootId in_workspace(std::string name, const Dims& matrix, DType dtype);
  /// Where a tensor, or a slice of one, lies on the rank at `place` of the mesh.
  Result<Rows> rows_of(int tensor, std::int64_t place) const;
  Result<Rows> rows_of(int tensor) const { return rows_of(tensor, place_); }
  [[nodiscard]] const Dims& matrix_of(RootId root) const { return matrices_[static_cast<std::size_t>(root)]; }
  Rows publish(const Rows& own);
  /// Ranks at the same place in the same lane's work meet; all that was written before is readable behind it.
  void meet() {
    builder_.barrier(lane_, lane_);
    communicates_ = true;
  }
  void all_gather(const Rows& from, const Rows& to);
  void reduce_scatter(const Rows& from, const Rows& to);
  Result<void> receive(const P2PCommunication& node);

  const Container& container_;
  Uses uses_;
  ScalarValues values_;
  std::int64_t place_;  ///< of this rank in the mesh
  Builder builder_;
  Lane lane_ = kCurrent;
  bool communicates_ = false;
  int num_products_ = 0;
  std::map<int, RootId> roots_;         ///< by tensor
  std::vector<Dims> matrices_;          ///< by root
  std::map<int, Select> slices_;        ///< by tensor: the select that made it last
  std::map<RootId, RootId> published_;  ///< by a root that peers do not reach: its copy that they do
  std::vector<RootId> stacks_;          ///< by lane: as many matrices of [rows, columns] as there are ranks
  std::optional<std::vector<P2PCommunication>> coalesced_;
  std::set<int> posted_;
  Unrolled result_;
};

Result<Lane> Unroller::lane_of(const StreamRef& stream) const {
  if (!stream.index) return kCurrent;
  TANDEM_ASSIGN(const std::int64_t index, stream.index->evaluate(values_));
  return static_cast<Lane>(1 + index);
}

Result<void> Unroller::operator()(const SetCurrentStream& node) {
  TANDEM_ASSIGN(lane_, lane_of(node.stream));
  return {};
}

Result<void> Unroller::operator()(const Synchronize& node) {
  TANDEM_ASSIGN(const Lane lane, lane_of(node.stream));
  if (lane != lane_) builder_.join(lane, lane_);
  return {};
}

Result<void> Unroller::add_root(int tensor, Space space) {
  const SymbolicTensor& symbolic = container_.at(tensor);
  TANDEM_ASSIGN(const Dims sizes, stored_sizes(symbolic, values_));
  const Dims matrix = as_matrix(sizes);
  const std::string name = fmt::format("T{}", tensor);
  if (space == Space::kWorkspace) {
    roots_[tensor] = in_workspace(name, matrix, symbolic.dtype());
  } else {
    roots_[tensor] =
        space == Space::kScratch ? builder_.scratch(name, matrix, symbolic.dtype()) : builder_.caller(name);
    matrices_.push_back(matrix);
  }
  return {};
}

RootId Unroller::in_workspace(std::string name, const Dims& matrix, DType dtype) {
  MemoryNeeds& memory = builder_.memory();
  const RootId root = builder_.at(Space::kWorkspace, memory.workspace_bytes, std::move(name), matrix, dtype);
  memory.workspace_bytes += aligned_to_root(numel(matrix) * size_bytes(dtype));
  matrices_.push_back(matrix);
  return root;
}

Result<void> Unroller::operator()(const Allocate& node) {
  if (roots_.count(node.tensor) > 0) return {};  // bound already: the caller's
  return add_root(node.tensor, uses_.is_read_by_peers(node.tensor) ? Space::kWorkspace : Space::kScratch);
}

Result<void> Unroller::operator()(const Select& node) {
  slices_.insert_or_assign(node.out, node);
  return {};
}

Result<Rows> Unroller::rows_of(int tensor, std::int64_t place) const {
  const auto slice = slices_.find(tensor);
  if (slice == slices_.end()) {
    const auto root = roots_.find(tensor);
    if (root == roots_.end()) {
      return failf(ErrorCode::kInternal, "unroll: {} is used before it is allocated",
                   container_.at(tensor).to_string());
    }
    return Rows{root->second, 0, matrix_of(root->second)[0]};
  }
  const Select& select = slice->second;
  TANDEM_ASSIGN(const Rows whole, rows_of(select.in, place));
  ScalarValues there = values_;
  there.insert_or_assign(std::string(kOwnDevice), place);
  std::int64_t size = 1;  // of the selected axis
  std::int64_t before = 1;
  for (int i = 0; i <= select.axis; ++i) {
    const IterDomain& axis = container_.at(select.in).axis(i);
    if (axis.is_reduction()) continue;
    TANDEM_ASSIGN(const std::int64_t extent, axis.extent().evaluate(there));
    if (i < select.axis) before *= axis.is_sharded() ? 1 : extent;
    size = axis.is_sharded() ? 1 : extent;
  }
  TANDEM_ASSIGN(std::int64_t index, select.index.evaluate(there));
  if (size == 1) index = 0;
  if (before != 1 || index < 0 || index >= size) {
    return failf(ErrorCode::kInternal, "unroll: element {} of axis {} of {} is no run of rows", index,
                 select.axis, container_.at(select.in).to_string());
  }
  return whole.part(index * (whole.count / size), whole.count / size);
}

/// The rows where peers can read them: there, or in a copy at the same place.
Rows Unroller::publish(const Rows& own) {
  if (builder_.root(own.root).space == Space::kWorkspace) return own;
  const auto found = published_.find(own.root);
  if (found == published_.end()) {
    const std::string name = "published " + builder_.root(own.root).name;
    published_[own.root] =
        in_workspace(name, matrix_of(own.root), container_.at(container_.product.a).dtype());
  }
  const Rows there{published_[own.root], own.first, own.count};
  builder_.copy(lane_, own.operand(), there.operand());
  return there;
}

void Unroller::all_gather(const Rows& from, const Rows& to) {
  if (num_ranks() == 1) return builder_.copy(lane_, from.operand(), to.operand());
  const Rows published = publish(from);
  meet();
  builder_.copy(lane_, from.operand(), to.part(place_ * from.count, from.count).operand());
  for (std::int64_t step = 1; step < num_ranks(); ++step) {
    const std::int64_t peer = (place_ + step) % num_ranks();
    builder_.get(lane_, rank_at(peer), published.operand(), to.part(peer * from.count, from.count).operand());
  }
}

/// The sum is taken in the order of the mesh on every rank.
void Unroller::reduce_scatter(const Rows& from, const Rows& to) {
  if (num_ranks() == 1) return builder_.copy(lane_, from.operand(), to.operand());
  const std::int64_t columns = matrix_of(from.root)[1];
  const DType dtype = container_.at(container_.product.a).dtype();
  RootId& stack = stacks_[static_cast<std::size_t>(lane_)];
  if (stack == kNone) {
    // The same bytes twice: as rows, which are filled, and as a stack of matrices, which is summed.
    const std::string name = fmt::format("stack of lane {}", lane_);
    stack = builder_.scratch(name, {num_ranks() * to.count, columns}, dtype);
    builder_.at(Space::kScratch, builder_.root(stack).offset_bytes, name + " by rank",
                {num_ranks(), to.count, columns}, dtype);
    matrices_.resize(matrices_.size() + 2);
  }
  const Rows published = publish(from).part(place_ * to.count, to.count);
  meet();
  const auto slot = [&](std::int64_t peer) { return Rows{stack, peer * to.count, to.count}.operand(); };
  builder_.copy(lane_, from.part(place_ * to.count, to.count).operand(), slot(place_));
  for (std::int64_t step = 1; step < num_ranks(); ++step) {
    const std::int64_t peer = (place_ + step) % num_ranks();
    builder_.get(lane_, rank_at(peer), published.operand(), slot(peer));
  }
  builder_.sum(lane_, all_of(static_cast<RootId>(stack + 1)), to.operand(), coll::ReduceOp::kSum);
}

Result<void> Unroller::operator()(const Communication& node) {
  TANDEM_ASSIGN(const Rows from, rows_of(node.in));
  TANDEM_ASSIGN(const Rows to, rows_of(node.out));
  posted_.insert(node.number);
  if (node.type == CommunicationType::kAllgather) {
    all_gather(from, to);
  } else {
    reduce_scatter(from, to);
  }
  return {};
}

Result<void> Unroller::operator()(const StartCoalescing&) {
  coalesced_.emplace();
  return {};
}

Result<void> Unroller::operator()(const P2PCommunication& node) {
  if (!coalesced_) {
    return failf(ErrorCode::kInternal, "unroll: P2PCommunication {} stands outside StartCoalescing",
                 node.number);
  }
  coalesced_->push_back(node);
  return {};
}

/// What one rank sends another one fetches: once all have posted, what is sent can be read.
Result<void> Unroller::operator()(const EndCoalescing& node) {
  if (!coalesced_) return failf(ErrorCode::kInternal, "unroll: EndCoalescing {} ends nothing", node.number);
  meet();
  for (const P2PCommunication& one : *coalesced_) {
    if (one.type == P2PType::kRecv) TANDEM_TRY(receive(one));
  }
  coalesced_.reset();
  posted_.insert(node.number);
  return {};
}

Result<void> Unroller::receive(const P2PCommunication& node) {
  TANDEM_ASSIGN(const std::int64_t peer, node.peer.evaluate(values_));
  TANDEM_ASSIGN(const Rows to, rows_of(node.buffer));
  ScalarValues there = values_;
  there.insert_or_assign(std::string(kOwnDevice), peer);
  for (const P2PCommunication& sent : *coalesced_) {
    if (sent.type != P2PType::kSend) continue;
    TANDEM_ASSIGN(const std::int64_t receiver, sent.peer.evaluate(there));
    TANDEM_ASSIGN(const Rows from, rows_of(sent.buffer, peer));
    if (receiver != place_ || from.count != to.count) continue;
    builder_.get(lane_, rank_at(peer), from.operand(), to.operand());
    return {};
  }
  return failf(ErrorCode::kInternal,
               "unroll: P2PCommunication {} receives {} rows that place {} of the mesh does not send",
               node.number, to.count, peer);
}

Result<void> Unroller::operator()(const Wait& node) {
  // What was posted runs on the lane that waits for it, so the lane's order is the wait.
  if (posted_.erase(node.number) > 0) return {};
  return failf(ErrorCode::kInternal, "unroll: Wait {} {}: it was not posted", node.what, node.number);
}

Result<void> Unroller::operator()(const Multiply& node) {
  TANDEM_ASSIGN(const Rows a, rows_of(node.a));
  TANDEM_ASSIGN(const Rows out, rows_of(node.out));
  constexpr int kMostProducts = std::numeric_limits<std::int16_t>::max();
  if (++num_products_ > kMostProducts) {
    return failf(ErrorCode::kUnsupported, "unroll: more than {} products: make axis 0 of {} shorter",
                 kMostProducts, container_.at(container_.product.a).to_string());
  }
  Product product{.a = a.operand(), .b = all_of(roots_.at(node.b)), .out = out.operand()};
  if (node.bias >= 0) product.bias = all_of(roots_.at(node.bias));
  builder_.product(lane_, product);
  return {};
}

Result<void> Unroller::operator()(const Set& node) {
  TANDEM_ASSIGN(const Rows from, rows_of(node.in));
  TANDEM_ASSIGN(const Rows to, rows_of(node.out));
  builder_.copy(lane_, from.operand(), to.operand());
  return {};
}

Result<void> Unroller::operator()(const std::shared_ptr<const ForLoop>& loop) {
  TANDEM_ASSIGN(const std::int64_t extent,
                container_.at(loop->tensor).axis(loop->axis).extent().evaluate(values_));
  constexpr std::int64_t kMostIterations = 65536;  // each has steps of its own
  if (extent > kMostIterations) {
    return failf(ErrorCode::kInvalidArgument,
                 "host program: a loop over {} has {} iterations, need at most {}",
                 container_.at(loop->tensor).axis(loop->axis).to_string(), extent, kMostIterations);
  }
  for (std::int64_t i = 0; i < extent; ++i) {
    values_.insert_or_assign(loop->index, i);
    TANDEM_TRY(walk(loop->body));
  }
  values_.erase(loop->index);
  return {};
}

Result<void> Unroller::operator()(const std::shared_ptr<const IfThenElse>& branch) {
  TANDEM_ASSIGN(const std::int64_t holds, branch->predicate.evaluate(values_));
  return walk(holds != 0 ? branch->then : branch->otherwise);
}

Result<void> Unroller::add_inputs() {
  for (const int id : container_.inputs) {
    TANDEM_TRY(add_root(id, Space::kCaller));
    Unrolled::Input input{.root = roots_[id], .matrix = matrix_of(roots_[id])};
    input.is_transposed = container_.product.kind == OpKind::kLinear && id == container_.product.b;
    if (input.is_transposed) input.matrix = {input.matrix[1], input.matrix[0]};
    if (container_.at(id).dim() == 1) input.matrix = {input.matrix[1]};
    result_.inputs.push_back(input);
  }
  return {};
}

Result<Unrolled> Unroller::unroll(int num_streams) {
  values_[std::string(kNumberOfStreams)] = num_streams;
  TANDEM_TRY(add_inputs());
  TANDEM_TRY(add_root(container_.result, Space::kCaller));
  result_.out = roots_[container_.result];
  result_.out_matrix = matrix_of(result_.out);
  TANDEM_ASSIGN(result_.out_sizes, stored_sizes(container_.at(container_.result), values_));
  TANDEM_TRY(walk(container_.nodes));
  if (lane_ != kCurrent) {
    return failf(ErrorCode::kInternal, "unroll: lane {} is current at the end, not the caller's", lane_);
  }
  if (communicates_) {
    builder_.barrier(kCurrent, 0);  // peers may write what was read here
    std::int64_t& num_bytes = builder_.memory().workspace_bytes;
    num_bytes = std::max(num_bytes, kRootAlignment);  // barriers need the pads
  }
  result_.program = builder_.take();
  return std::move(result_);
}

/// Two extents that the product, or the mesh, makes one.
Result<void> check_equal(const SymbolicTensor& x, int axis_of_x, const SymbolicTensor& y, int axis_of_y,
                         const ScalarValues& values) {
  TANDEM_ASSIGN(const std::int64_t of_x, x.axis(axis_of_x).extent().evaluate(values));
  TANDEM_ASSIGN(const std::int64_t of_y, y.axis(axis_of_y).extent().evaluate(values));
  if (of_x == of_y) return {};
  return failf(ErrorCode::kInvalidArgument,
               "host program: axis {} of {} is {}, axis {} of {} is {}: need them equal", axis_of_x,
               x.to_string(), of_x, axis_of_y, y.to_string(), of_y);
}

Result<void> check_product(const Container& container, const ScalarValues& values) {
  const FusionOp& op = container.product;
  const SymbolicTensor& a = container.at(op.a);
  const SymbolicTensor& b = container.at(op.b);
  const int k_of_b = op.kind == OpKind::kLinear ? b.dim() - 1 : b.dim() - 2;
  TANDEM_TRY(check_equal(a, a.dim() - 1, b, k_of_b, values));
  if (op.bias < 0) return {};
  return check_equal(container.at(op.bias), 0, b, 0, values);
}

Result<void> check_mesh(const Container& container, const ScalarValues& values) {
  const int devices = container.at(container.product.a).device_mesh().size();
  for (const SymbolicTensor& tensor : container.tensors) {
    for (int axis = 0; axis < tensor.dim(); ++axis) {
      if (!tensor.axis(axis).is_sharded()) continue;
      TANDEM_ASSIGN(const std::int64_t extent, tensor.axis(axis).extent().evaluate(values));
      if (extent == devices) continue;
      return failf(ErrorCode::kInvalidArgument,
                   "host program: axis {} of {} is {}, need {}, a part for each device", axis,
                   tensor.to_string(), extent, devices);
    }
  }
  return {};
}

/// Binds one size on one rank to its axis's extent.
Result<void> bind_extent(const SymbolicTensor& tensor, int axis, std::int64_t size, ScalarValues& values) {
  const IterDomain& domain = tensor.axis(axis);
  if (domain.is_sharded() && size != 1) {
    return failf(ErrorCode::kInvalidArgument,
                 "host program: axis {} of {} is sharded, need size 1 on a rank, got {}", axis,
                 tensor.to_string(), size);
  }
  const std::int64_t extent = domain.is_sharded() ? tensor.device_mesh().size() : size;
  const auto known = domain.extent().evaluate(values);
  if (!known) {
    values.emplace(domain.extent().to_string(), extent);
    return {};
  }
  if (*known == extent) return {};
  return failf(ErrorCode::kInvalidArgument, "host program: axis {} of {} is {}, need {}", axis,
               tensor.to_string(), extent, *known);
}

}  // namespace

Result<ScalarValues> bind_extents(const Container& container, std::span<const Dims> inputs) {
  if (inputs.size() != container.inputs.size()) {
    return failf(ErrorCode::kInvalidArgument, "host program: got {} inputs, need {}", inputs.size(),
                 container.inputs.size());
  }
  ScalarValues values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const SymbolicTensor& tensor = container.at(container.inputs[i]);
    if (inputs[i].size() != tensor.dim()) {
      return failf(ErrorCode::kInvalidArgument, "host program: got sizes {} for {}, need {} axes",
                   tandem::to_string(inputs[i]), tensor.to_string(), tensor.dim());
    }
    for (int axis = 0; axis < tensor.dim(); ++axis) {
      TANDEM_TRY(bind_extent(tensor, axis, inputs[i][axis], values));
    }
  }
  TANDEM_TRY(check_product(container, values));
  TANDEM_TRY(check_mesh(container, values));
  return values;
}

Result<Unrolled> unroll(const Container& container, const ScalarValues& extents, int rank, int num_streams) {
  if (!container.workers_wait) {
    return fail(
        ErrorCode::kInvalidArgument,
        "host program: its streams do not wait for the caller's, and may read inputs that are not written "
        "yet: lower it with workers_wait");
  }
  if (num_streams < 1 || num_streams >= kMaxLanes) {
    return failf(ErrorCode::kInvalidArgument, "host program: got {} streams, need 1 to {}", num_streams,
                 kMaxLanes - 1);
  }
  const auto& devices = container.at(container.product.a).device_mesh().devices();
  const auto found = std::find(devices.begin(), devices.end(), rank);
  if (found == devices.end()) {
    return failf(ErrorCode::kInvalidArgument, "host program: rank {} is none of DeviceMesh{{{}}}", rank,
                 fmt::join(devices, " "));
  }
  return Unroller(container, extents, rank, static_cast<int>(found - devices.begin()), num_streams)
      .unroll(num_streams);
}

}  // namespace tandem::program::host
