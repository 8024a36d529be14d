#include "collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tandem/base/convert.hpp>
#include <tandem/symm/symmetric_memory.hpp>
#include <vector>

#include "failure.hpp"
#include "harness/operands.hpp"

namespace tandem::cli {

std::string_view to_string(CollectiveOp op) {
  return op == CollectiveOp::kLowContentionAllGather ? "low_contention_all_gather"
                                                     : "low_contention_reduce_scatter";
}

std::optional<CollectiveOp> collective_named(const std::string& name) {
  for (const CollectiveOp op : kCollectives) {
    if (to_string(op) == name) return op;
  }
  return std::nullopt;
}

std::string names_of_collectives() {
  return fmt::format("{}, {}", to_string(kCollectives[0]), to_string(kCollectives[1]));
}

Dims CollectiveCase::part_sizes(int rank, int world) const {
  Dims part = sizes;
  part[dim] = part_of(rank, world).size;
  return part;
}

std::string to_text(const CollectiveCase& c, int world) {
  return fmt::format("{}{} {} {} along {} over {} ranks{}", to_string(c.op),
                     c.gathers() ? "" : fmt::format(" {}", coll::to_string(c.reduce)),
                     tandem::to_string(c.dtype), tandem::to_string(c.sizes), c.dim, world,
                     c.symmetric ? ", symmetric" : "");
}

Dims RankCollective::input_sizes() const {
  return case_.gathers() ? case_.part_sizes(session_.rank(), session_.size()) : case_.sizes;
}

RankCollective::RankCollective(const CollectiveCase& c, const Session& session)
    : case_(c), session_(session) {
  const Dims part = c.part_sizes(session.rank(), session.size());
  output_ = harness::GuardedTensor(session.device(), c.gathers() ? c.sizes : part, c.dtype);
  input_ = harness::GuardedTensor(session.device(), input_sizes(), c.dtype);
  if (!c.symmetric) return;
  const Dims largest = c.gathers() ? c.part_sizes(0, session.size()) : c.sizes;
  symmetric_ = take(symm::empty({numel(largest)}, c.dtype, session.device()));
  handle_ = take(symm::rendezvous(symmetric_, session.group()));
}

namespace {

/// Where an input of these sizes begins in symmetric memory.
TensorView input_in(const Tensor& memory, const Dims& sizes) {
  return TensorView::contiguous(memory.view().data, sizes, memory.dtype(), memory.view().device);
}

}  // namespace

void RankCollective::fill() const {
  const int rank = session_.rank();
  const Tensor values = Tensor::host(input_sizes(), case_.dtype);
  if (case_.gathers()) {
    harness::generate({.seed = case_.seed,
                       .sizes = case_.sizes,
                       .dim = case_.dim,
                       .offset = case_.part_of(rank, session_.size()).offset},
                      values.view());
  } else {
    harness::generate({.seed = case_.seed + static_cast<std::uint64_t>(rank), .sizes = case_.sizes},
                      values.view());
  }
  fill(values.view());
}

void RankCollective::fill(const TensorView& values) const {
  input_.fill(values);
  if (!handle_ || values.numel() == 0) return;
  const Tensor packed = Tensor::host(values.sizes, case_.dtype);
  take(convert(values, packed.view()));
  take(session_.device().copy_from_host(packed.view().data, input_in(symmetric_, values.sizes)));
}

void RankCollective::enqueue(Stream& stream) const {
  const TensorView input = handle_ ? input_in(symmetric_, input_sizes()) : input_.view();
  if (case_.gathers()) {
    return take(coll::low_contention_all_gather(
        {.input = input, .output = output_.view(), .gather_dim = case_.dim, .input_handle = handle_},
        session_.group(), stream));
  }
  take(coll::low_contention_reduce_scatter(
      {.input = input, .output = output_.view(), .op = case_.reduce, .scatter_dim = case_.dim},
      session_.group(), stream));
}

void RankCollective::enqueue_ordinary(Stream& stream) const {
  const TensorView input = handle_ ? input_in(symmetric_, input_sizes()) : input_.view();
  if (case_.gathers())
    return take(coll::all_gather({.input = input, .output = output_.view()}, session_.group(), stream));
  take(coll::reduce_scatter(
      {.input = input, .output = output_.view(), .op = case_.reduce, .bias = std::nullopt}, session_.group(),
      stream));
}

Tensor RankCollective::expected() const {
  const int world = session_.size();
  Tensor want = Tensor::host(output_.view().sizes, case_.dtype);
  if (case_.gathers()) {
    harness::generate({.seed = case_.seed, .sizes = case_.sizes}, want.view());
    return want;
  }
  // f32, in rank order, rounded once.
  const Tensor part = Tensor::host(want.sizes(), case_.dtype);
  const Tensor wide = Tensor::host(want.sizes(), DType::kF32);
  std::vector<float> sums(static_cast<std::size_t>(part.view().numel()));
  const auto* const values = wide.view().data_as<const float>();
  for (int q = 0; q < world; ++q) {
    harness::generate({.seed = case_.seed + static_cast<std::uint64_t>(q),
                       .sizes = case_.sizes,
                       .dim = case_.dim,
                       .offset = case_.part_of(session_.rank(), world).offset},
                      part.view());
    take(convert(part.view(), wide.view()));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = q == 0 ? values[i] : sums[i] + values[i];
  }
  if (case_.reduce == coll::ReduceOp::kAvg) {
    for (float& sum : sums) sum /= static_cast<float>(world);
  }
  take(convert(TensorView::contiguous(sums.data(), want.sizes(), DType::kF32), want.view()));
  return want;
}

void RankCollective::check(harness::Wrong& wrong) const {
  output_.download();
  input_.download();
  const Tensor want = expected();
  const auto width = static_cast<std::size_t>(size_bytes(case_.dtype));
  const auto* const got_bytes = output_.host().data_as<const std::byte>();
  const auto* const want_bytes = want.view().data_as<const std::byte>();
  for (std::size_t i = 0; i < static_cast<std::size_t>(want.view().numel()); ++i) {
    if (std::memcmp(got_bytes + i * width, want_bytes + i * width, width) == 0) continue;
    wrong.add(fmt::format("{}, rank {}: element {} is {}, need {}", to_text(case_, session_.size()),
                          session_.rank(), i, element_as_f64(output_.host(), static_cast<std::int64_t>(i)),
                          element_as_f64(want.view(), static_cast<std::int64_t>(i))));
  }
  if (!output_.guards_are_whole() || !input_.guards_are_whole())
    wrong.add(to_text(case_, session_.size()) + ": bytes beside a tensor were overwritten");
}

const TensorView& RankCollective::result() const {
  output_.download();
  return output_.host();
}

}  // namespace tandem::cli
