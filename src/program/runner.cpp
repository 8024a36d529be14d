#include "program/runner.hpp"

#include <tandem/gemm/async_input_mm.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/scaled_mm.hpp>

#include <chrono>

#include "base/try.hpp"
#include "coll/steps.hpp"
#include "symm/chunk_words.hpp"

namespace tandem::program {
namespace {

std::optional<TensorView> optional_view(const Bindings& bindings, const Operand& operand) {
  if (bindings.is_absent(operand)) return std::nullopt;
  return bindings.view(operand);
}

/// The view, or one without memory where the operand is absent.
TensorView view_or_none(const Bindings& bindings, const Operand& operand) {
  return bindings.is_absent(operand) ? TensorView{} : bindings.view(operand);
}

gemm::MmArgs plain_product(const Product& product, const Bindings& bindings) {
  return {.a = bindings.view(product.a).flatten_rows(),
          .b = bindings.view(product.b),
          .out = bindings.view(product.out).flatten_rows(),
          .bias = optional_view(bindings, product.bias),
          .accumulate = product.accumulate};
}

gemm::ScaledMmArgs scaled_product(const Product& product, const Bindings& bindings) {
  return {.a = bindings.view(product.a),
          .b = bindings.view(product.b),
          .a_scale = view_or_none(bindings, product.a_scale),
          .b_scale = view_or_none(bindings, product.b_scale),
          .out = bindings.view(product.out),
          .bias = optional_view(bindings, product.bias),
          .result_scale = optional_view(bindings, product.result_scale),
          .fast_accum = product.fast_accum,
          .addend = optional_view(bindings, product.addend)};
}

/// One program with the bindings of one call.
class Run {
 public:
  Run(const Program& program, const Bindings& bindings, Group& group)
      : program_(program), bindings_(bindings), group_(group) {}

  Result<void> enqueue(const Step& step) const;
  /// Whatever broke off, nothing is left running when the caller's lane is done.
  void join_all() const;

 private:
  [[nodiscard]] TensorView view(const Operand& operand) const { return bindings_.view(operand); }
  /// Of the operand's first element, from the handle's own offset, in elements.
  [[nodiscard]] std::int64_t offset_of(const Operand& operand) const {
    const Bindings::Bound& bound = bindings_.root(operand.root);
    const std::int64_t first = operand.dim < 0 ? 0 : operand.first * bound.view.stride(operand.dim);
    return bound.offset_bytes / size_bytes(bound.view.dtype) + first;
  }
  [[nodiscard]] symm::Handle& handle_of(const Operand& operand) const {
    return *bindings_.root(operand.root).handle;
  }
  Result<void> multiply(const Product& product, Stream& stream) const;
  Result<void> multiply_arriving(const Product& product, Stream& stream) const;
  Result<void> write_word(const Step& step, Stream& stream) const;
  Result<void> await_words(const Step& step, Stream& stream) const;
  Result<void> sum(const Step& step, Stream& stream) const;
  Result<void> cast(const Step& step, Stream& stream) const;
  Result<void> reduce_scatter(const Step& step, Stream& stream) const;

  const Program& program_;
  const Bindings& bindings_;
  Group& group_;
};

Result<void> Run::enqueue(const Step& step) const {
  constexpr std::chrono::nanoseconds kNap{100};
  Stream& stream = bindings_.lane(step.lane);
  switch (step.kind) {
    case StepKind::kCopy:
      return stream.copy(view(step.from), view(step.to));
    case StepKind::kGet:
      return handle_of(step.from).get(stream, view(step.to), step.peer, offset_of(step.from));
    case StepKind::kPut:
      return handle_of(step.to).put(stream, view(step.from), step.peer, offset_of(step.to));
    case StepKind::kWriteWord:
      return write_word(step, stream);
    case StepKind::kAwait:
      return await_words(step, stream);
    case StepKind::kBarrier:
      return bindings_.workspace()->barrier(stream, program_.base_channel + step.channel);
    case StepKind::kJoin:
      return bindings_.lane(step.other).wait(stream);
    case StepKind::kNap:
      return stream.sleep(kNap);
    case StepKind::kProduct:
      return multiply(program_.products[static_cast<std::size_t>(step.product)], stream);
    case StepKind::kSum:
      return sum(step, stream);
    case StepKind::kCast:
      return cast(step, stream);
    case StepKind::kAllGather:
      return coll::enqueue_all_gather({.input = view(step.from), .output = view(step.to)},
                                      bindings_.workspace(), group_, stream);
    case StepKind::kReduceScatter:
      return reduce_scatter(step, stream);
  }
  return {};
}

void Run::join_all() const {
  for (Lane lane = 1; lane < program_.num_lanes; ++lane)
    static_cast<void>(bindings_.lane(kCurrent).wait(bindings_.lane(lane)));
}

Result<void> Run::multiply(const Product& product, Stream& stream) const {
  if (product.arrival) return multiply_arriving(product, stream);
  if (view(product.out).numel() == 0) return {};
  if (product.scaled) return gemm::scaled_matmul(scaled_product(product, bindings_), stream);
  return gemm::mm(plain_product(product, bindings_), stream);
}

Result<void> Run::multiply_arriving(const Product& product, Stream& stream) const {
  const Arrival& arrival = *product.arrival;
  const BoundInbox& inbox = bindings_.inbox();
  // Without an output it only exchanges pieces; with an empty one there is nothing to do.
  if (!product.out.is_absent() && view(product.out).numel() == 0) return {};
  const TensorView a = view(product.a).flatten_rows();
  const TensorView nothing = TensorView::contiguous(nullptr, {a.size(1), 0}, a.dtype, a.device);
  const TensorView no_out = TensorView::contiguous(nullptr, {a.size(0), 0}, a.dtype, a.device);
  gemm::AsyncInputMmArgs args{
      .a = a,
      .b = product.b.is_absent() ? nothing : view(product.b),
      .out = product.out.is_absent() ? no_out : view(product.out).flatten_rows(),
      .a_chunk_signals = view(arrival.words),
      .a_chunk_pivot = arrival.first_own,
      .expected = inbox.epoch,
      .chunks_together = program_.chunks_per_rank,
      .in_order = false,
      .complete = gemm::CompleteChunks{.rows = view(arrival.own).flatten_rows(),
                                       .first = arrival.first_own,
                                       .count = arrival.num_own},
      .senders = gemm::ChunkSenders{.handle = inbox.handle, .chunks_per_rank = program_.chunks_per_rank}};
  if (arrival.piece_peers > 0) {
    args.patches = {.peers = arrival.piece_peers,
                    .rows_bytes = inbox.data_bytes,
                    .stamps_bytes = inbox.flags_bytes,
                    .sends = arrival.sends};
  }
  return gemm::async_input_mm(args, stream);
}

Result<void> Run::write_word(const Step& step, Stream& stream) const {
  const Bindings::Bound& words = bindings_.root(step.to.root);
  TANDEM_ASSIGN(const TensorView of_peer,
                words.handle->get_buffer(step.peer, words.view.sizes, words.view.dtype,
                                         words.offset_bytes / size_bytes(words.view.dtype)));
  return stream.stream_write_value32(of_peer, step.to.first, bindings_.inbox().epoch);
}

Result<void> Run::await_words(const Step& step, Stream& stream) const {
  const Bindings::Bound& words = bindings_.root(step.from.root);
  return symm::await_chunks(*words.handle,
                            {.words = words.view.data_as<const std::uint32_t>(),
                             .first = step.from.first,
                             .count = step.from.size,
                             .chunks_per_rank = program_.chunks_per_rank,
                             .expected = bindings_.inbox().epoch},
                            stream);
}

Result<void> Run::sum(const Step& step, Stream& stream) const {
  const TensorView out = view(step.to);
  if (out.numel() == 0) return {};
  return coll::reduce_stack({.stack = view(step.from),
                             .out = out,
                             .op = step.reduce_op,
                             .bias = optional_view(bindings_, step.bias)},
                            stream);
}

Result<void> Run::cast(const Step& step, Stream& stream) const {
  TensorView from = view(step.from);
  TensorView to = view(step.to);
  if (to.numel() == 0) return {};
  const std::optional<TensorView> bias = optional_view(bindings_, step.bias);
  if (from.dtype == to.dtype && !bias) return stream.copy(from, to);
  if (from.can_flatten_rows() && to.can_flatten_rows()) {
    from = from.flatten_rows();
    to = to.flatten_rows();
  }
  from.sizes.insert(0, 1);
  from.strides.insert(0, from.numel());
  return coll::reduce_stack({.stack = from, .out = to, .op = coll::ReduceOp::kSum, .bias = bias}, stream);
}

Result<void> Run::reduce_scatter(const Step& step, Stream& stream) const {
  return coll::enqueue_reduce_scatter({.input = view(step.from),
                                       .output = view(step.to),
                                       .op = step.reduce_op,
                                       .bias = optional_view(bindings_, step.bias)},
                                      bindings_.workspace(), group_, stream);
}

}  // namespace

Result<void> run(const Program& program, const Bindings& bindings, Group& group) {
  const Run run(program, bindings, group);
  for (const Step& step : program.steps) {
    if (auto enqueued = run.enqueue(step); !enqueued) {
      run.join_all();
      return enqueued;
    }
  }
  return {};
}

Result<void> prepare(const Program& program, const Bindings& bindings) {
  for (const Step& step : program.steps) {
    if (step.kind != StepKind::kProduct) continue;
    const Product& product = program.products[static_cast<std::size_t>(step.product)];
    if (product.arrival || product.scaled || bindings.view(product.out).numel() == 0) continue;
    TANDEM_TRY(gemm::prepare(plain_product(product, bindings), bindings.lane(step.lane)));
  }
  return {};
}

}  // namespace tandem::program
