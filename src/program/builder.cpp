#include "program/builder.hpp"

#include <algorithm>

namespace tandem::program {

RootId Builder::add(Root root) {
  program_.roots.push_back(std::move(root));
  return static_cast<RootId>(program_.roots.size() - 1);
}

std::int64_t Builder::reserve_scratch(std::int64_t num_bytes) {
  const std::int64_t begin = program_.memory.scratch_bytes;
  program_.memory.scratch_bytes += aligned_to_root(num_bytes);
  return begin;
}

RootId Builder::scratch(std::string name, const Dims& sizes, DType dtype) {
  const std::int64_t begin = reserve_scratch(numel(sizes) * size_bytes(dtype));
  return at(Space::kScratch, begin, std::move(name), sizes, dtype);
}

RootId Builder::at(Space space, std::int64_t offset_bytes, std::string name, const Dims& sizes, DType dtype) {
  return add({.name = std::move(name),
              .space = space,
              .offset_bytes = offset_bytes,
              .sizes = sizes,
              .dtype = dtype,
              .most_bytes = numel(sizes) * size_bytes(dtype)});
}

RootId Builder::bound_scratch(std::string name, std::int64_t offset_bytes, std::int64_t most_bytes) {
  return add({.name = std::move(name),
              .space = Space::kScratch,
              .offset_bytes = offset_bytes,
              .most_bytes = most_bytes});
}

void Builder::copy(Lane lane, const Operand& from, const Operand& to, Label label, int peer) {
  program_.steps.push_back({.kind = StepKind::kCopy,
                            .lane = lane,
                            .peer = static_cast<std::int16_t>(peer),
                            .from = from,
                            .to = to,
                            .label = label});
}

void Builder::get(Lane lane, int peer, const Operand& from, const Operand& to, Label label, int slot) {
  program_.steps.push_back({.kind = StepKind::kGet,
                            .lane = lane,
                            .peer = static_cast<std::int16_t>(peer),
                            .from = from,
                            .to = to,
                            .slot = static_cast<std::int16_t>(slot),
                            .label = label});
}

void Builder::read(Lane lane, int peer, const Operand& from, const Operand& to) {
  program_.steps.push_back({.kind = StepKind::kRead,
                            .lane = lane,
                            .peer = static_cast<std::int16_t>(peer),
                            .from = from,
                            .to = to});
}

void Builder::cross(Lane lane, const Operand& told, int parts, const Operand& arrived, int slot) {
  program_.steps.push_back({.kind = StepKind::kCross,
                            .lane = lane,
                            .parts = static_cast<std::int16_t>(parts),
                            .from = told,
                            .to = arrived,
                            .slot = static_cast<std::int16_t>(slot),
                            .label = trace::StepKind::kGet});
}

void Builder::put(Lane lane, int peer, const Operand& from, const Operand& to, Label label, int slot) {
  program_.steps.push_back({.kind = StepKind::kPut,
                            .lane = lane,
                            .peer = static_cast<std::int16_t>(peer),
                            .from = from,
                            .to = to,
                            .slot = static_cast<std::int16_t>(slot),
                            .label = label});
}

void Builder::reset(Lane lane, const Operand& words, int channel) {
  program_.steps.push_back({.kind = StepKind::kReset,
                            .lane = lane,
                            .channel = static_cast<std::int16_t>(channel),
                            .to = words,
                            .label = trace::StepKind::kBarrier});
}

void Builder::write_word(Lane lane, int peer, const Operand& word, Label label, int slot) {
  program_.steps.push_back({.kind = StepKind::kWriteWord,
                            .lane = lane,
                            .peer = static_cast<std::int16_t>(peer),
                            .to = word,
                            .slot = static_cast<std::int16_t>(slot),
                            .label = label});
}

void Builder::await(Lane lane, int peer, const Operand& words, Label label, int slot) {
  program_.steps.push_back({.kind = StepKind::kAwait,
                            .lane = lane,
                            .peer = static_cast<std::int16_t>(peer),
                            .from = words,
                            .slot = static_cast<std::int16_t>(slot),
                            .label = label});
}

void Builder::barrier(Lane lane, int channel) {
  program_.steps.push_back({.kind = StepKind::kBarrier,
                            .lane = lane,
                            .channel = static_cast<std::int16_t>(channel),
                            .label = trace::StepKind::kBarrier});
}

void Builder::join(Lane lane, Lane waiter) {
  program_.steps.push_back(
      {.kind = StepKind::kJoin, .lane = lane, .other = waiter, .label = trace::StepKind::kJoin});
}

void Builder::nap(Lane lane) {
  program_.steps.push_back({.kind = StepKind::kNap, .lane = lane, .label = trace::StepKind::kNap});
}

void Builder::product(Lane lane, const Product& product, Label label, int peer, int slot) {
  program_.products.push_back(product);
  program_.steps.push_back({.kind = StepKind::kProduct,
                            .lane = lane,
                            .peer = static_cast<std::int16_t>(peer),
                            .product = static_cast<std::int16_t>(program_.products.size() - 1),
                            .slot = static_cast<std::int16_t>(slot),
                            .label = label});
}

void Builder::product_scatter(Lane lane, const Product& product) {
  program_.products.push_back(product);
  program_.steps.push_back({.kind = StepKind::kProductScatter,
                            .lane = lane,
                            .product = static_cast<std::int16_t>(program_.products.size() - 1)});
}

void Builder::sum(Lane lane, const Operand& from, const Operand& to, coll::ReduceOp op, const Operand& bias) {
  program_.steps.push_back(
      {.kind = StepKind::kSum, .lane = lane, .from = from, .to = to, .bias = bias, .reduce_op = op});
}

void Builder::sum_ranks(Lane lane, const Operand& from, const Operand& to, coll::ReduceOp op,
                        const Operand& bias) {
  program_.steps.push_back(
      {.kind = StepKind::kSumRanks, .lane = lane, .from = from, .to = to, .bias = bias, .reduce_op = op});
}

void Builder::cast(Lane lane, const Operand& from, const Operand& to, const Operand& bias) {
  program_.steps.push_back({.kind = StepKind::kCast, .lane = lane, .from = from, .to = to, .bias = bias});
}

void Builder::quantize(Lane lane, const Operand& from, const Operand& to, const Operand& scale, Label label,
                       int peer) {
  program_.steps.push_back({.kind = StepKind::kQuantize,
                            .lane = lane,
                            .peer = static_cast<std::int16_t>(peer),
                            .from = from,
                            .to = to,
                            .scale = scale,
                            .label = label});
}

void Builder::all_gather(Lane lane, const Operand& from, const Operand& to) {
  program_.steps.push_back({.kind = StepKind::kAllGather, .lane = lane, .from = from, .to = to});
}

void Builder::reduce_scatter(Lane lane, const Operand& from, const Operand& to, coll::ReduceOp op,
                             const Operand& bias) {
  program_.steps.push_back({.kind = StepKind::kReduceScatter,
                            .lane = lane,
                            .from = from,
                            .to = to,
                            .bias = bias,
                            .reduce_op = op});
}

void Builder::all_reduce(Lane lane, const Operand& from, const Operand& to, coll::ReduceOp op,
                         const Operand& bias) {
  program_.steps.push_back(
      {.kind = StepKind::kAllReduce, .lane = lane, .from = from, .to = to, .bias = bias, .reduce_op = op});
}

std::size_t Builder::exchange(Lane lane, int destination, const Operand& from, int source, const Operand& to,
                              bool beside_product) {
  const auto number = static_cast<std::int16_t>(
      std::count_if(program_.steps.begin(), program_.steps.end(),
                    [](const Step& step) { return step.kind == StepKind::kExchange; }));
  program_.steps.push_back({.kind = StepKind::kExchange,
                            .lane = lane,
                            .peer = static_cast<std::int16_t>(destination),
                            .source = static_cast<std::int16_t>(source),
                            .exchange = number,
                            .beside_product = beside_product,
                            .from = from,
                            .to = to});
  return program_.steps.size() - 1;
}

void Builder::exchanged(Lane lane, std::size_t exchange) {
  Step step = program_.steps[exchange];
  step.kind = StepKind::kExchanged;
  step.lane = lane;
  program_.steps.push_back(step);
}

}  // namespace tandem::program
