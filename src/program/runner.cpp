#include "program/runner.hpp"

#include <array>
#include <chrono>
#include <optional>
#include <tandem/gemm/quantize.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/control.hpp"
#include "bootstrap/hosts.hpp"
#include "coll/nan_check.hpp"
#include "coll/steps.hpp"
#include "device/profiler.hpp"
#include "gemm/product.hpp"
#include "program/noted_steps.hpp"
#include "symm/chunk_words.hpp"

namespace tandem::program {
namespace {

/// The operands of a product as one call binds them. Those that are absent are null. Scaled ones keep their
/// dims, but where their left operand arrives or their rows go to their owners; others are matrices.
class BoundProduct {
 public:
  BoundProduct(const Product& product, const Bindings& bindings)
      : a_(bindings.view(product.a)),
        out_(product.out.is_absent() ? TensorView() : bindings.view(product.out)) {
    TensorView* const addend = add(product.addend, bindings);
    TensorView* const a_scale = add(product.a_scale, bindings);
    args_ = {.a = &a_,
             .b = add(product.b, bindings),
             .out = &out_,
             .bias = add(product.bias, bindings),
             .a_scale = a_scale,
             .b_scale = add(product.b_scale, bindings),
             .result_scale = add(product.result_scale, bindings),
             .addend = addend,
             .accumulate = product.accumulate,
             .fast_accum = product.fast_accum};
    if (product.scaled && !product.arrival && !product.departure) return;
    a_ = a_.flatten_rows();
    if (!product.out.is_absent()) out_ = out_.flatten_rows();
    if (addend != nullptr) *addend = addend->flatten_rows();
    if (a_scale != nullptr && a_scale->numel() > 1) *a_scale = a_scale->flatten_rows();
  }
  BoundProduct(const BoundProduct&) = delete;
  BoundProduct& operator=(const BoundProduct&) = delete;

  [[nodiscard]] const gemm::ProductArgs& args() const { return args_; }
  [[nodiscard]] bool is_empty() const { return out_.numel() == 0; }

 private:
  TensorView* add(const Operand& operand, const Bindings& bindings) {
    if (bindings.is_absent(operand)) return nullptr;
    TensorView& view = others_[num_others_++];
    view = bindings.view(operand);
    return &view;
  }

  TensorView a_;
  TensorView out_;
  std::array<TensorView, 6> others_;
  std::size_t num_others_ = 0;
  gemm::ProductArgs args_;
};

/// The same of a product whose rows go to their owners.
class DepartingProduct {
 public:
  DepartingProduct(const Product& product, const Program& program, const Bindings& bindings)
      : bound_(product, bindings), args_(bound_.args()) {
    const bool is_mean = product.departure->reduce_op == coll::ReduceOp::kAvg;
    departure_ = {.world = program.world,
                  .rank = program.rank,
                  .gives_all = product.departure->gives_all,
                  .place = bindings.kernel_inbox(),
                  .divisor = is_mean ? static_cast<float>(program.world) : 1.0F};
    if (!bindings.is_absent(product.departure->kept)) {
      kept_ = bindings.view(product.departure->kept).flatten_rows();
      departure_.product = &kept_;
    }
    if (!bindings.is_absent(product.departure->bias)) {
      bias_ = bindings.view(product.departure->bias);
      departure_.bias = &bias_;
    }
    args_.departure = &departure_;
  }
  DepartingProduct(const DepartingProduct&) = delete;
  DepartingProduct& operator=(const DepartingProduct&) = delete;

  [[nodiscard]] const gemm::ProductArgs& args() const { return args_; }

 private:
  BoundProduct bound_;
  TensorView kept_;
  TensorView bias_;
  gemm::Departure departure_;
  gemm::ProductArgs args_;
};

std::optional<TensorView> optional_view(const Bindings& bindings, const Operand& operand) {
  if (bindings.is_absent(operand)) return std::nullopt;
  return bindings.view(operand);
}

/// One program with the bindings of one call. `timeline` is null where nothing is noted.
class Run {
 public:
  Run(const Program& program, const Bindings& bindings, Timeline::Impl* timeline)
      : program_(program), bindings_(bindings), timeline_(timeline) {}

  Result<void> enqueue(const Step& step) const;
  /// And notes it as `pattern` says.
  Result<void> enqueue_noted(const Step& step, const timeline::Pattern& pattern) const;
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
  Result<void> scatter_product(const Product& product, Stream& stream) const;
  /// How much the step copies.
  [[nodiscard]] std::int64_t copied_bytes(const Step& step) const;
  /// Where the product that is enqueued next notes its waits.
  [[nodiscard]] ChunkWaitLog chunk_waits() const {
    return timeline_ == nullptr ? ChunkWaitLog{} : timeline_->chunk_waits();
  }
  [[nodiscard]] std::uint32_t word_value() const {
    return program_.word_value.value_or(bindings_.inbox().epoch);
  }
  Result<void> read(const Step& step, Stream& stream) const;
  Result<void> cross(const Step& step, Stream& stream) const;
  Result<void> write_word(const Step& step, Stream& stream) const;
  Result<void> await_words(const Step& step, Stream& stream) const;
  Result<void> sum(const Step& step, Stream& stream) const;
  Result<void> sum_ranks(const Step& step, Stream& stream) const;
  Result<void> cast(const Step& step, Stream& stream) const;
  Result<void> reduce_scatter(const Step& step, Stream& stream) const;
  Result<void> all_reduce(const Step& step, Stream& stream) const;
  Result<void> check(const Step& step, Stream& stream) const;
  Result<void> exchange(const Step& step, Stream& stream) const;
  Result<void> await_exchange(const Step& step, Stream& stream) const;

  const Program& program_;
  const Bindings& bindings_;
  Timeline::Impl* timeline_;
  /// Of exchanges that were started, by their numbers.
  mutable std::vector<std::shared_ptr<Transport::Pending>> exchanges_;
};

Result<void> Run::enqueue_noted(const Step& step, const timeline::Pattern& pattern) const {
  Stream& stream = bindings_.lane(busy_lane(step));
  TANDEM_TRY(timeline_->begin(stream, pattern.event.stream));
  const std::size_t before = timeline_->num_events();
  TANDEM_TRY(enqueue(step));
  // A collective has noted its parts.
  if (timeline_->num_events() > before) return {};
  if (step.kind == StepKind::kJoin) return timeline_->join(stream, bindings_.lane(step.lane), pattern);
  if (step.kind == StepKind::kWriteWord || step.kind == StepKind::kNap)
    return timeline_->pass(stream, pattern);
  return timeline_->end(stream, pattern, copied_bytes(step));
}

std::int64_t Run::copied_bytes(const Step& step) const {
  switch (step.kind) {
    case StepKind::kCopy:
    case StepKind::kGet:
    case StepKind::kRead:
      return view(step.to).size_bytes();
    case StepKind::kPut:
      return view(step.from).size_bytes();
    default:
      return 0;
  }
}

Result<void> Run::enqueue(const Step& step) const {
  constexpr std::chrono::nanoseconds kNap{100};
  Stream& stream = bindings_.lane(step.lane);
  switch (step.kind) {
    case StepKind::kCopy:
      return stream.copy(view(step.from), view(step.to));
    case StepKind::kGet:
      return handle_of(step.from).get(stream, view(step.to), step.peer, offset_of(step.from));
    case StepKind::kRead:
      return read(step, stream);
    case StepKind::kCross:
      return cross(step, stream);
    case StepKind::kPut:
      return handle_of(step.to).put(stream, view(step.from), step.peer, offset_of(step.to));
    case StepKind::kReset:
      return symm::reset_words(*bindings_.workspace(), view(step.to), program_.base_channel + step.channel,
                               stream);
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
    case StepKind::kProductScatter:
      return scatter_product(program_.products[static_cast<std::size_t>(step.product)], stream);
    case StepKind::kSum:
      return sum(step, stream);
    case StepKind::kSumRanks:
      return sum_ranks(step, stream);
    case StepKind::kCast:
      return cast(step, stream);
    case StepKind::kQuantize:
      return gemm::quantize_rows({.input = view(step.from), .out = view(step.to), .scale = view(step.scale)},
                                 stream);
    case StepKind::kAllGather:
      return coll::enqueue_all_gather({.input = view(step.from), .output = view(step.to)},
                                      bindings_.workspace(), bindings_.group(), stream);
    case StepKind::kReduceScatter:
      return reduce_scatter(step, stream);
    case StepKind::kAllReduce:
      return all_reduce(step, stream);
    case StepKind::kCheck:
      return check(step, stream);
    case StepKind::kExchange:
      return exchange(step, stream);
    case StepKind::kExchanged:
      return await_exchange(step, stream);
  }
  return {};
}

void Run::join_all() const {
  for (Lane lane = 1; lane < program_.num_lanes; ++lane)
    static_cast<void>(bindings_.lane(kCurrent).wait(bindings_.lane(lane)));
}

Result<void> Run::multiply(const Product& product, Stream& stream) const {
  if (product.arrival) return multiply_arriving(product, stream);
  const BoundProduct bound(product, bindings_);
  if (bound.is_empty()) return {};
  if (!product.telling) return gemm::run(bound.args(), stream);
  const Operand& word = product.telling->word;
  const Bindings::Bound& words = bindings_.root(word.root);
  gemm::ProductArgs args = bound.args();
  const gemm::Telling telling{.handle = words.handle,
                              .word_bytes = words.handle->offset_bytes() + words.offset_bytes +
                                            word.first * size_bytes(words.view.dtype),
                              .value = word_value()};
  args.telling = &telling;
  return gemm::run(args, stream);
}

Result<void> Run::scatter_product(const Product& product, Stream& stream) const {
  const DepartingProduct bound(product, program_, bindings_);
  const ChunkWaitLog waits = chunk_waits();
  gemm::ProductArgs args = bound.args();
  args.chunk_waits = &waits;
  return gemm::run(args, stream);
}

Result<void> Run::multiply_arriving(const Product& product, Stream& stream) const {
  const Arrival& arrival = *product.arrival;
  // Without an output it only exchanges pieces; with an empty one there is nothing to do.
  if (!product.out.is_absent() && view(product.out).numel() == 0) return {};
  const BoundProduct bound(product, bindings_);
  gemm::ProductArgs args = bound.args();
  const TensorView& a = *args.a;
  const TensorView no_columns = TensorView::contiguous(nullptr, {a.size(1), 0}, a.dtype, a.device);
  const TensorView no_out = TensorView::contiguous(nullptr, {a.size(0), 0}, a.dtype, a.device);
  if (product.b.is_absent()) args.b = &no_columns;
  if (product.out.is_absent()) args.out = &no_out;
  // Where a host has one rank, that one tells itself of all chunks.
  const std::int64_t per_rank = program_.world == 1 ? view(arrival.words).size(0) : program_.chunks_per_rank;
  gemm::Arrival comes{.signals = view(arrival.words),
                      .pivot = arrival.first_own,
                      .expected = word_value(),
                      .chunks_together = arrival.together > 0 ? arrival.together : program_.chunks_per_rank,
                      .in_order = false,
                      .senders = gemm::ChunkSenders{.handle = bindings_.root(arrival.words.root).handle,
                                                    .chunks_per_rank = per_rank},
                      .held = arrival.held,
                      .are_relayed = arrival.are_relayed,
                      .begins_early = arrival.begins_early,
                      .left_free = arrival.left_free};
  if (!arrival.own.is_absent()) {
    comes.complete = {
        .rows = view(arrival.own).flatten_rows(), .first = arrival.first_own, .count = arrival.num_own};
  }
  if (arrival.piece_peers > 0) {
    comes.pieces = {.peers = arrival.piece_peers,
                    .rows_bytes = bindings_.root(product.a.root).offset_bytes,
                    .flags_bytes = bindings_.root(arrival.flags).offset_bytes,
                    .sends = arrival.sends};
  }
  if (arrival.scales_arrive()) comes.complete_scale = view(arrival.own_scale).flatten_rows();
  args.arrival = &comes;
  const ChunkWaitLog waits = chunk_waits();
  args.chunk_waits = &waits;
  return gemm::run(args, stream);
}

Result<void> Run::read(const Step& step, Stream& stream) const {
  const TensorView to = view(step.to);
  const symm::Handle& handle = handle_of(step.from);
  const std::int64_t offset = handle.offset_bytes() / size_bytes(to.dtype) + offset_of(step.from);
  TANDEM_ASSIGN(const TensorView from, handle.get_buffer(step.peer, to.sizes, to.dtype, offset));
  return stream.copy(from, to);
}

Result<void> Run::cross(const Step& step, Stream& stream) const {
  const Bindings::Bound& words = bindings_.root(step.from.root);
  symm::Crossing crossing{.told = {.words = words.view.data_as<const std::uint32_t>(),
                                   .first = step.from.first,
                                   .count = program_.num_chunks,
                                   .chunks_per_rank = program_.chunks_per_rank,
                                   .expected = word_value()},
                          .parts = step.parts};
  if (!step.to.is_absent()) crossing.arrived = bindings_.root(step.to.root).view.data_as<std::uint32_t>();
  return symm::cross_link(*words.handle, crossing, stream);
}

Result<void> Run::write_word(const Step& step, Stream& stream) const {
  const Bindings::Bound& words = bindings_.root(step.to.root);
  TANDEM_ASSIGN(const TensorView of_peer,
                words.handle->get_buffer(step.peer, words.view.sizes, words.view.dtype,
                                         words.offset_bytes / size_bytes(words.view.dtype)));
  return symm::write_word(*words.handle, step.peer, of_peer, step.to.first, word_value(), stream);
}

Result<void> Run::await_words(const Step& step, Stream& stream) const {
  const Bindings::Bound& words = bindings_.root(step.from.root);
  // Each host's chunks have words of all ranks of this one: the waits count from the first of them.
  const std::int64_t of_host = program_.chunks_per_rank * program_.world;
  const std::int64_t skipped = step.from.first / of_host * of_host;
  return symm::await_chunks(*words.handle,
                            {.words = words.view.data_as<const std::uint32_t>() + skipped,
                             .first = step.from.first - skipped,
                             .count = step.from.size,
                             .chunks_per_rank = program_.chunks_per_rank,
                             .expected = word_value()},
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

Result<void> Run::sum_ranks(const Step& step, Stream& stream) const {
  const Bindings::Bound& layers = bindings_.root(step.from.root);
  return coll::reduce_ranks(
      {.handle = layers.handle,
       .offset_bytes = layers.handle->offset_bytes() + offset_of(step.from) * size_bytes(layers.view.dtype),
       .dtype = layers.view.dtype,
       .out = view(step.to),
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
                                      bindings_.workspace(), bindings_.group(), stream);
}

Result<void> Run::all_reduce(const Step& step, Stream& stream) const {
  return coll::enqueue_all_reduce({.input = view(step.from),
                                   .output = view(step.to),
                                   .op = step.reduce_op,
                                   .bias = optional_view(bindings_, step.bias)},
                                  bindings_.workspace(), bindings_.group(), stream);
}

/// The bytes of a tensor that is contiguous, as all are that travel.
std::span<std::byte> bytes_of(const TensorView& view) {
  return {static_cast<std::byte*>(view.data), static_cast<std::size_t>(view.size_bytes())};
}

Result<void> Run::exchange(const Step& step, Stream& stream) const {
  const bootstrap::HostLink& link = *bootstrap::link_of(bindings_.group());
  TANDEM_ASSIGN(auto pending,
                link.transport->start({.to = step.peer,
                                       .sent = bytes_of(view(step.from)),
                                       .from = step.source,
                                       .received = bytes_of(view(step.to)),
                                       .channel = link.channel,
                                       .beside_product = step.beside_product,
                                       .fingerprint = bootstrap::Fingerprint::of(program_.fingerprint).hash},
                                      stream));
  exchanges_.push_back(std::move(pending));
  return {};
}

Result<void> Run::await_exchange(const Step& step, Stream& stream) const {
  const bootstrap::HostLink& link = *bootstrap::link_of(bindings_.group());
  return link.transport->await(exchanges_[static_cast<std::size_t>(step.exchange)], link.timeout, link.watch,
                               stream);
}

/// As the caller has it: errors name indices in that order.
Result<void> Run::check(const Step& step, Stream& stream) const {
  if (bindings_.is_absent(step.from)) return {};
  const Root& root = program_.roots[static_cast<std::size_t>(step.from.root)];
  TensorView input = view(step.from);
  const bool is_moved = root.front_dim > 0 && !bindings_.root(step.from.root).is_every_part;
  if (is_moved) input = input.movedim(0, root.front_dim);
  return coll::enqueue_nan_check(program_.label, {root.name, &input}, bindings_.group(), stream);
}

/// "rank 1 bk".
void name_lanes(Profiler& profiler, const Program& program, const Bindings& bindings) {
  for (Lane lane = 0; lane < program.num_lanes; ++lane) {
    profiler.name_stream(bindings.lane(lane),
                         fmt::format("rank {} {}", program.rank, lane_name(lane, program.num_lanes)));
  }
}

}  // namespace

Result<void> run(const Program& program, const Bindings& bindings,
                 std::shared_ptr<const timeline::StepList>* steps) {
  Timeline::Impl* const timeline = steps == nullptr ? nullptr : timeline::noting(bindings.group());
  const timeline::Patterns* patterns = nullptr;
  if (timeline != nullptr) {
    if (*steps == nullptr) *steps = noted_steps_of(program);
    patterns = &timeline->patterns_of(*steps);
    timeline->set_schedule(patterns->schedule);
  }
  Profiler* const profiler = bindings.lane(kCurrent).device().service<Profiler>();
  if (profiler != nullptr) name_lanes(*profiler, program, bindings);
  const Run run(program, bindings, timeline);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    std::optional<Stream::Range> range;
    if (profiler != nullptr) range.emplace(bindings.lane(step.lane), program.to_string(step));
    auto enqueued = patterns == nullptr ? run.enqueue(step) : run.enqueue_noted(step, patterns->steps[i]);
    if (!enqueued) {
      run.join_all();
      return enqueued;
    }
  }
  return {};
}

Result<void> prepare(const Program& program, const Bindings& bindings) {
  for (const Step& step : program.steps) {
    if (step.kind == StepKind::kProductScatter) {
      const Product& departing = program.products[static_cast<std::size_t>(step.product)];
      const DepartingProduct bound(departing, program, bindings);
      TANDEM_TRY(gemm::prepare(bound.args(), bindings.lane(step.lane)));
    }
    if (step.kind != StepKind::kProduct) continue;
    const Product& product = program.products[static_cast<std::size_t>(step.product)];
    if (product.arrival) continue;
    const BoundProduct bound(product, bindings);
    if (bound.is_empty()) continue;
    const gemm::Telling of_anybody;
    gemm::ProductArgs args = bound.args();
    if (product.telling) args.telling = &of_anybody;
    TANDEM_TRY(gemm::prepare(args, bindings.lane(step.lane)));
  }
  return {};
}

}  // namespace tandem::program
