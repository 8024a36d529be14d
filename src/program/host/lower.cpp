#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/format.hpp"
#include "base/try.hpp"
#include "program/host/container.hpp"

namespace tandem::program::host {
namespace {

/// The tensors of a fusion that the rule looks at.
struct Parts {
  FusionOp product;
  const SymbolicTensor* a = nullptr;
  const SymbolicTensor* b = nullptr;
  const SymbolicTensor* bias = nullptr;     ///< null: none
  const SymbolicTensor* partial = nullptr;  ///< of a scatter: what is summed; null: a gather
  const SymbolicTensor* out = nullptr;
};

const SymbolicTensor* tensor_of(const Fusion& fusion, int id) {
  return id < 0 ? nullptr : &fusion.tensors()[static_cast<std::size_t>(id)];
}

/// Nothing where the fusion is no product, or product and sum.
std::optional<Parts> parts_of(const Fusion& fusion) {
  const auto& ops = fusion.ops();
  if (ops.empty() || ops.size() > 2 || ops[0].kind == OpKind::kSum) return std::nullopt;
  Parts parts{.product = ops[0],
              .a = tensor_of(fusion, ops[0].a),
              .b = tensor_of(fusion, ops[0].b),
              .bias = tensor_of(fusion, ops[0].bias),
              .out = tensor_of(fusion, ops[0].out)};
  if (ops.size() == 2) {
    const bool sums_the_product = ops[1].kind == OpKind::kSum && ops[1].a == ops[0].out;
    if (!sums_the_product || ops[0].kind != OpKind::kMatmul) return std::nullopt;
    parts.partial = parts.out;
    parts.out = tensor_of(fusion, ops[1].out);
  }
  return parts;
}

std::string ops_in_short(const Fusion& fusion) {
  std::string text;
  for (const FusionOp& op : fusion.ops()) text += (text.empty() ? "" : ", ") + to_string(op.kind);
  return text.empty() ? "no op" : text;
}

/// Reasons that the rule does not apply, written down as the conditions are looked at. The first one counts.
class Conditions {
 public:
  void need(bool holds, const char* what, const SymbolicTensor& tensor) {
    if (!holds && why_not_.empty()) why_not_ = fmt::format("need {}; got {}", what, tensor.to_string());
  }
  [[nodiscard]] Support support() const { return why_not_.empty() ? Support::yes() : Support::no(why_not_); }

 private:
  std::string why_not_;
};

bool is(const SymbolicTensor& tensor, int axis, ParallelType type) {
  return axis < tensor.dim() && tensor.axis(axis).parallel_type() == type;
}

/// Whether all axes but those in `apart` are Serial.
bool others_are_serial(const SymbolicTensor& tensor, std::initializer_list<int> apart) {
  for (int i = 0; i < tensor.dim(); ++i) {
    if (std::find(apart.begin(), apart.end(), i) != apart.end()) continue;
    if (!is(tensor, i, ParallelType::kSerial)) return false;
  }
  return true;
}

bool is_looped_over(const SymbolicTensor& tensor) {
  return is(tensor, 0, ParallelType::kStream) || is(tensor, 0, ParallelType::kSerial);
}

void check_a(const SymbolicTensor& a, Conditions& conditions) {
  conditions.need(is(a, 0, ParallelType::kSerial), "axis 0 of a Serial: it is the host's loop", a);
  conditions.need(is(a, 1, ParallelType::kDIDx), "axis 1 of a sharded (DIDx)", a);
  conditions.need(others_are_serial(a, {0, 1}), "no other axis of a parallel", a);
}

Support check_gather(const Parts& parts) {
  Conditions conditions;
  conditions.need(!parts.b->is_sharded(), "b not sharded", *parts.b);
  if (parts.bias != nullptr) conditions.need(!parts.bias->is_sharded(), "bias not sharded", *parts.bias);
  conditions.need(!parts.out->is_sharded(), "the output not sharded", *parts.out);
  conditions.need(parts.a->dim() == 4, "a of 4 axes [S, D, m, K]", *parts.a);
  check_a(*parts.a, conditions);
  conditions.need(parts.b->dim() == 2 && others_are_serial(*parts.b, {}), "b of 2 axes, both Serial",
                  *parts.b);
  conditions.need(is_looped_over(*parts.out), "axis 0 of the output Stream or Serial", *parts.out);
  conditions.need(others_are_serial(*parts.out, {0}), "no other axis of the output parallel", *parts.out);
  return conditions.support();
}

Support check_scatter(const Fusion& fusion, const Parts& parts) {
  Conditions conditions;
  conditions.need(fusion.ops()[1].summed == std::vector<int>{1}, "a sum over axis 1 of the product",
                  *parts.out);
  conditions.need(parts.a->dim() == 5, "a of 5 axes [S, D, D, m, k]", *parts.a);
  check_a(*parts.a, conditions);
  const SymbolicTensor& b = *parts.b;
  conditions.need(b.dim() == 4 && b.axis(1).is_broadcast(), "b of 4 axes [D, 1, k, N]", b);
  conditions.need(is(b, 0, ParallelType::kDIDx) && others_are_serial(b, {0}),
                  "axis 0 of b alone sharded (DIDx)", b);
  conditions.need(is_looped_over(*parts.partial) && is(*parts.partial, 1, ParallelType::kDIDx) &&
                      others_are_serial(*parts.partial, {0, 1}),
                  "the product with axis 0 Stream or Serial and axis 1 sharded (DIDx)", *parts.partial);
  conditions.need(is_looped_over(*parts.out), "axis 0 of the output Stream or Serial", *parts.out);
  conditions.need(is(*parts.out, 2, ParallelType::kDIDx) && others_are_serial(*parts.out, {0, 2}),
                  "axis 2 of the output alone sharded (DIDx)", *parts.out);
  return conditions.support();
}

Result<void> check_mesh(const Fusion& fusion, const Parts& parts) {
  const DeviceMesh& mesh = parts.a->device_mesh();
  if (mesh.empty()) {
    return failf(ErrorCode::kInvalidArgument, "lower: a has no device mesh: {}", parts.a->to_string());
  }
  const std::set<int> devices(mesh.devices().begin(), mesh.devices().end());
  if (static_cast<int>(devices.size()) != mesh.size() || *devices.begin() < 0) {
    return failf(ErrorCode::kInvalidArgument, "lower: got {}, need different devices from 0 up",
                 mesh.to_string());
  }
  for (const SymbolicTensor& tensor : fusion.tensors()) {
    if (tensor.device_mesh() == mesh) continue;
    return failf(ErrorCode::kInvalidArgument, "lower: got {}, need the mesh of a, {}", tensor.to_string(),
                 mesh.to_string());
  }
  return {};
}

bool contains(const std::vector<int>& ids, int id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// What is wrong with a fusion in itself, whatever the rule says.
Result<void> check_whole(const Fusion& fusion, const Parts& parts) {
  if (fusion.outputs().size() != 1 || fusion.outputs()[0] != parts.out->id()) {
    return failf(ErrorCode::kInvalidArgument, "lower: got {} outputs, need one: {}", fusion.outputs().size(),
                 parts.out->to_string());
  }
  for (const SymbolicTensor* operand : {parts.a, parts.b, parts.bias}) {
    if (operand == nullptr || contains(fusion.inputs(), operand->id())) continue;
    return failf(ErrorCode::kInvalidArgument, "lower: {} is an operand, but no input", operand->to_string());
  }
  return check_mesh(fusion, parts);
}

Result<void> check_options(const Parts& parts, const LowerOptions& options) {
  if (options.offset_by_rank && !options.point_to_point) {
    return fail(
        ErrorCode::kInvalidArgument,
        "lower: offset_by_rank needs point_to_point: every rank takes part in the same collective, so "
        "all ranks have one order");
  }
  if (options.point_to_point && parts.partial != nullptr) {
    return fail(ErrorCode::kUnsupported,
                "lower: point_to_point is of gathers; the sum over the mesh becomes a ReduceScatter");
  }
  return {};
}

/// Writes the program down.
class Emitter {
 public:
  Emitter(const Fusion& fusion, const Parts& parts, const LowerOptions& options)
      : parts_(parts),
        options_(options),
        num_axes_(fusion.num_axes()),
        next_symbol_(fusion.num_symbols()),
        index_(fmt::format("i{}", next_symbol_++)) {
    container_->tensors = fusion.tensors();
    container_->inputs = fusion.inputs();
    container_->product = parts.product;
    container_->result = parts.out->id();
    container_->workers_wait = options.workers_wait;
    worker_ = {Scalar::named(index_) % Scalar::named(std::string(kNumberOfStreams))};
  }

  HostProgram emit() {
    top().push_back(GetCurrentStream{caller_});
    Nodes body = parts_.partial != nullptr ? scatter_body() : gather_body();
    if (options_.workers_wait) loop_over_a({SetCurrentStream{worker_}, Synchronize{caller_}});
    body.push_back(SetCurrentStream{caller_});
    if (options_.joining_loop) {
      loop_over_a(std::move(body));
      loop_over_a({Synchronize{worker_}});
    } else {
      body.push_back(Synchronize{worker_});
      loop_over_a(std::move(body));
    }
    container_->outputs.push_back(parts_.out->id());
    return HostProgram(container_);
  }

 private:
  [[nodiscard]] Nodes& top() { return container_->nodes; }
  [[nodiscard]] const SymbolicTensor& at(int id) const { return container_->at(id); }
  void loop_over_a(Nodes body) {
    top().push_back(std::make_shared<const ForLoop>(ForLoop{parts_.a->id(), 0, index_, std::move(body)}));
  }

  /// A tensor with axes like those of `model`, on the same mesh.
  int add_like(const SymbolicTensor& model, const std::vector<IterDomain>& axes, MemoryType memory) {
    std::vector<IterDomain> own;
    for (const IterDomain& axis : axes) {
      own.emplace_back(num_axes_++, axis.extent(), axis.kind());
      own.back().parallelize(axis.parallel_type());
    }
    const int id = static_cast<int>(container_->tensors.size());
    container_->tensors.emplace_back(id, model.dtype(), memory, std::move(own));
    container_->tensors.back().set_device_mesh(parts_.a->device_mesh());
    return id;
  }

  /// What is left of `in` when `axis` is selected.
  int add_slice(int in, int axis, MemoryType memory = MemoryType::kLocal) {
    std::vector<IterDomain> axes;
    for (int i = 0; i < at(in).dim(); ++i) {
      if (i != axis && !at(in).axis(i).is_reduction()) axes.push_back(at(in).axis(i));
    }
    return add_like(at(in), axes, memory);
  }

  int add_gathered() {
    std::vector<IterDomain> axes = parts_.a->axes();
    axes[1].parallelize(ParallelType::kSerial);
    const int gathered = add_like(*parts_.a, axes, MemoryType::kGlobal);
    top().push_back(Allocate{gathered});
    return gathered;
  }

  /// The slice of a: first in the body, so that its numbers come first.
  int select_a(Nodes& body) {
    const int a = parts_.a->id();
    const auto memory = options_.single_select ? MemoryType::kLocal : MemoryType::kGlobal;
    const int slice = add_slice(a, 0, memory);
    body.push_back(Select{a, 0, Scalar::named(index_), slice});
    if (!options_.single_select) {
      body.push_back(Select{a, 0, Scalar::named(index_), slice});
      container_->outputs.push_back(slice);
    }
    return slice;
  }
  int select(Nodes& body, int in, int axis, const Scalar& index) {
    const int slice = add_slice(in, axis);
    body.push_back(Select{in, axis, index, slice});
    return slice;
  }
  void multiply(Nodes& body, int a, int out) {
    const FusionOp& op = parts_.product;
    body.push_back(Multiply{op.kind, a, op.b, op.bias, out});
  }
  void communicate(Nodes& body, CommunicationType type, int in, int out) {
    const int number = next_symbol_++;
    body.push_back(Communication{number, type, parts_.a->device_mesh().devices(), in, out});
    body.push_back(Wait{"Communication", number});
  }

  Nodes gather_body();
  void exchange_shards(Nodes& body, int own, int gathered, int out);
  Nodes scatter_body();

  const Parts& parts_;
  const LowerOptions& options_;
  std::shared_ptr<HostProgram::Container> container_ = std::make_shared<HostProgram::Container>();
  int num_axes_;
  int next_symbol_;  ///< communications count on from the symbols
  std::string index_;
  StreamRef caller_;
  StreamRef worker_;
};

Nodes Emitter::gather_body() {
  const Scalar index = Scalar::named(index_);
  const int gathered = add_gathered();
  top().push_back(Allocate{parts_.out->id()});
  Nodes body{SetCurrentStream{worker_}};
  const int own = select_a(body);
  const int whole = select(body, gathered, 0, index);
  if (options_.point_to_point) {
    const int out = select(body, parts_.out->id(), 0, index);
    exchange_shards(body, own, whole, out);
    return body;
  }
  communicate(body, CommunicationType::kAllgather, own, whole);
  const int out = select(body, parts_.out->id(), 0, index);
  multiply(body, whole, out);
  return body;
}

/// Step 0 multiplies the own shard; each later one receives a shard, sends one, and multiplies what came.
void Emitter::exchange_shards(Nodes& body, int own, int gathered, int out) {
  const std::string step_name = fmt::format("i{}", next_symbol_++);
  const Scalar step = Scalar::named(step_name);
  const Scalar rank = Scalar::named(std::string(kOwnDevice));
  const Scalar num_ranks = at(gathered).axis(0).extent();
  const Scalar one(1);
  const bool pairwise = options_.offset_by_rank;
  const Scalar shard = (pairwise ? rank + step : rank + (num_ranks - step)) % num_ranks;
  const Scalar sent = pairwise ? rank : (shard + one) % num_ranks;
  const Scalar from = pairwise ? shard : (rank + (num_ranks - one)) % num_ranks;
  const Scalar to = pairwise ? (rank + (num_ranks - step)) % num_ranks : (rank + one) % num_ranks;

  Nodes steps;
  const int here = select(steps, gathered, 0, shard);
  const int product = select(steps, out, 0, shard);
  IfThenElse branch{Scalar::equal(step, Scalar(0)), {}, {}};
  const int only = select(branch.then, own, 0, Scalar(0));
  branch.then.push_back(Set{only, here});
  const int leaving = select(branch.otherwise, gathered, 0, sent);
  const int first = next_symbol_;
  next_symbol_ += 3;
  branch.otherwise.push_back(StartCoalescing{});
  branch.otherwise.push_back(P2PCommunication{first, P2PType::kRecv, here, from});
  branch.otherwise.push_back(P2PCommunication{first + 1, P2PType::kSend, leaving, to});
  branch.otherwise.push_back(EndCoalescing{first + 2});
  branch.otherwise.push_back(Wait{"EndCoalescing", first + 2});
  steps.push_back(std::make_shared<const IfThenElse>(std::move(branch)));
  multiply(steps, here, product);
  body.push_back(std::make_shared<const ForLoop>(ForLoop{gathered, 0, step_name, std::move(steps)}));
}

Nodes Emitter::scatter_body() {
  const Scalar index = Scalar::named(index_);
  top().push_back(Allocate{parts_.partial->id()});
  top().push_back(Allocate{parts_.out->id()});
  Nodes body{SetCurrentStream{worker_}};
  const int own = select_a(body);
  const int partial = select(body, parts_.partial->id(), 0, index);
  multiply(body, own, partial);
  const int out = select(body, parts_.out->id(), 0, index);
  communicate(body, CommunicationType::kReduceScatter, partial, out);
  return body;
}

}  // namespace

Support can_lower(const Fusion& fusion) {
  if (const auto status = fusion.status(); !status) return Support::no(status.error().text());
  const auto parts = parts_of(fusion);
  if (!parts) {
    return Support::no(
        fmt::format("need a matmul, a linear, or a matmul and its sum; got {}", ops_in_short(fusion)));
  }
  if (const auto whole = check_whole(fusion, *parts); !whole) return Support::no(whole.error().text());
  return parts->partial == nullptr ? check_gather(*parts) : check_scatter(fusion, *parts);
}

Result<HostProgram> lower(const Fusion& fusion, const LowerOptions& options) {
  TANDEM_TRY(fusion.status());
  const auto parts = parts_of(fusion);
  if (parts) {
    TANDEM_TRY(check_whole(fusion, *parts));
    TANDEM_TRY(check_options(*parts, options));
  }
  const Support support = can_lower(fusion);
  if (!support) return failf(ErrorCode::kUnsupported, "lower: {}", support.why_not);
  HostProgram program = Emitter(fusion, *parts, options).emit();
  if (options.dump && options.device == 0) options.dump(program.to_string());
  return program;
}

}  // namespace tandem::program::host
