#include "fused/gather/builder.hpp"

#include "base/format.hpp"
#include "base/with_last.hpp"

namespace tandem::fused {

using program::all_of;
using program::Checked;
using program::kNone;
using program::Lane;
using program::Operand;
using program::part_of;
using program::RootId;
using program::Space;

GatherBuilder::GatherBuilder(const GatherProblem& problem, Algorithm algorithm, int rank, int num_lanes)
    : problem_(problem),
      rank_(rank),
      builder_(fmt::format("{} {}", problem.op(), to_string(algorithm)), rank % problem.ranks_per_host(),
               problem.ranks_per_host(), num_lanes, symm::kGatherChannel),
      slice_lane_(static_cast<std::size_t>(problem.world), Lane{-1}) {
  for (int i = 0; i < num_travelling(problem); ++i) {
    const Travelling& tensor = tensors_.emplace_back(travelling(problem, i));
    GatherRoots::Travel& travel = roots_.travels.emplace_back();
    travel.front = travel.shard =
        builder_.input(tensor.name, Checked::kBefore, problem.gathers_last() ? 0 : problem.dim);
    if (tensor.is_kept) travel.whole = builder_.caller(fmt::format("all of {}", tensor.name));
    if (tensor.is_copied) {
      const std::int64_t own = tensor.part_of(problem.world, rank).size;
      travel.shard =
          builder_.scratch(fmt::format("{} in order", tensor.name), tensor.sizes_of(own), tensor.dtype);
    }
  }
  if (problem.quantize) {
    const Dims& sizes = tensors_.front().sizes;
    quantized_ = builder_.scratch("quantized a", sizes, *problem.quantize);
    quantized_scale_ = builder_.scratch("scale of a", with_last(sizes, problem.scale_columns()), DType::kF32);
  } else if (problem.is_scaled && !problem.has_sharded_scale() && problem.scale_mode != ScaleMode::kNone) {
    // Of rows, the gathered dim stands in front: see bind().
    const bool moves = problem.scale_mode != ScaleMode::kTensorwise && !problem.gathers_last();
    roots_.a_scale = builder_.input("a_scale", Checked::kBeside, moves ? problem.dim : 0);
  }
  const std::int64_t sums_bytes = problem.rows() * problem.sum_n * size_bytes(DType::kF32);
  const std::int64_t sums_at = problem.gathers_last() ? builder_.reserve_scratch(sums_bytes) : 0;
  for (int i = 0; i < problem.num_b; ++i) {
    GatherRoots::PerB& per_b = roots_.per_b.emplace_back();
    per_b.b = builder_.input(fmt::format("b{}", i), Checked::kBeside);
    per_b.out = builder_.caller(fmt::format("out{}", i));
    if (problem.is_scaled || problem.has_bias)
      per_b.bias = builder_.input(fmt::format("bias{}", i), Checked::kBeside);
    if (problem.is_scaled) per_b.b_scale = builder_.input(fmt::format("b_scale{}", i), Checked::kBeside);
    if (problem.is_scaled)
      per_b.result_scale = builder_.input(fmt::format("result_scale{}", i), Checked::kBeside);
    if (problem.gathers_last())
      per_b.sum = builder_.bound_scratch(fmt::format("sum{}", i), sums_at, sums_bytes);
  }
}

void GatherBuilder::add_gathered() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Travelling& tensor = tensors_[i];
    GatherRoots::Travel& travel = roots_.travels[i];
    const std::string name = fmt::format("gathered {}", tensor.name);
    if (!tensor.by_slices) {
      // Only whole units can be gathered into the caller's tensor.
      travel.gathered = tensor.is_kept ? travel.whole : builder_.scratch(name, tensor.sizes, tensor.dtype);
      continue;
    }
    const Dims units = {tensor.total, tensor.unit_elements()};
    travel.gathered = builder_.scratch(name, units, tensor.dtype);
    const std::int64_t begin = builder_.root(travel.gathered).offset_bytes;
    for (int source = 0; source < world(); ++source) {
      const Shard part = tensor.part_of(world(), source);
      travel.slices.push_back(builder_.at(
          Space::kScratch, begin + part.offset * tensor.unit_elements() * size_bytes(tensor.dtype),
          fmt::format("slice {} of {}", source, tensor.name), tensor.sizes_of(part.size), tensor.dtype));
    }
  }
}

RootId GatherBuilder::add_flat(int i, const Dims& sizes) {
  const auto idx = static_cast<std::size_t>(i);
  const std::string name = fmt::format("{} as {}", tensors_[idx].name, tandem::to_string(sizes));
  RootId& flat = roots_.travels[idx].flat;
  flat = tensors_[idx].is_copied ? builder_.at(Space::kScratch, builder_.root(travel(i).shard).offset_bytes,
                                               name, sizes, tensors_[idx].dtype)
                                 : builder_.caller(name);
  return flat;
}

Operand GatherBuilder::own_shard(int i) const {
  return i == 0 && own_ ? *own_ : all_of(travel(i).shard);
}

void GatherBuilder::copy_shards() {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].is_copied) continue;
    const GatherRoots::Travel& travel = roots_.travels[i];
    builder_.copy(program::kCurrent, all_of(travel.front), all_of(travel.shard));
  }
}

Operand GatherBuilder::arrived(int i, const Arrived& arrived) const {
  if (arrived.is_chunk) return part_of(travel(i).gathered, 0, arrived.part.offset, arrived.part.size);
  if (arrived.source == rank()) return own_shard(i);
  if (arrived.source < 0) return all_of(travel(i).gathered);
  if (problem_.gathers_last()) return all_of(travel(i).slices[static_cast<std::size_t>(arrived.source)]);
  const Shard part = tensors_[static_cast<std::size_t>(i)].part_of(world(), arrived.source);
  return part_of(travel(i).gathered, 0, part.offset, part.size);
}

/// What has arrived of the quantised a, or of its scales.
Operand GatherBuilder::quantized(RootId root, const Arrived& arrived) const {
  return arrived.source < 0 ? all_of(root) : part_of(root, 0, arrived.part.offset, arrived.part.size);
}

/// The product of what has arrived with b_i, but where it goes.
program::Product GatherBuilder::product(int i, const Arrived& arrived) const {
  const GatherRoots::PerB& per_b = roots_.per_b[static_cast<std::size_t>(i)];
  program::Product product{.a = this->arrived(0, arrived),
                           .b = all_of(per_b.b),
                           .out = all_of(per_b.out),
                           .bias = all_of(per_b.bias),
                           .b_scale = all_of(per_b.b_scale),
                           .result_scale = all_of(per_b.result_scale),
                           .scaled = problem_.is_scaled,
                           .fast_accum = problem_.fast_accum};
  if (problem_.quantize) {
    product.a = quantized(quantized_, arrived);
    product.a_scale = quantized(quantized_scale_, arrived);
  }
  if (problem_.has_sharded_scale()) product.a_scale = this->arrived(1, arrived);
  if (roots_.a_scale == kNone) return product;
  product.a_scale = all_of(roots_.a_scale);
  if (arrived.source < 0) return product;
  // Bound as one element that counts for every part, or as rows of all ranks.
  const bool by_slices = problem_.gathers_last();
  const Shard part = by_slices ? problem_.scales_of(arrived.source) : arrived.part;
  product.a_scale =
      part_of(roots_.a_scale, by_slices ? problem_.sizes.size() - 1 : 0, part.offset, part.size);
  return product;
}

void GatherBuilder::multiply(Lane lane, const Arrived& arrived, Label label, Takes takes) {
  if (problem_.quantize) {
    builder_.quantize(lane, this->arrived(0, arrived), quantized(quantized_, arrived),
                      quantized(quantized_scale_, arrived), label, arrived.source);
    label.reset();
  }
  for (int i = 0; i < problem_.num_b; ++i) {
    if (!takes(i)) continue;
    program::Product one = product(i, arrived);
    if (arrived.source >= 0) {
      one.out =
          part_of(roots_.per_b[static_cast<std::size_t>(i)].out, 0, arrived.part.offset, arrived.part.size);
    }
    builder_.product(lane, one, label, arrived.source);
    label.reset();
  }
}

// Gathering the last dim cuts k: each rank's slice of a gives a product of full size, and out is their sum. A
// sum has to have one order to have the same bits on every rank, so slice q's product is added as soon as
// slices 0..q are here, whatever order they come in and on whichever of the two lanes: rank 0 adds each slice
// as it comes; rank W-1 waits for slice 0, which comes first there; the ranks between wait longer. Adding
// products of their own into a [W, rows, n] scratch would start earlier everywhere, for W times the memory.
void GatherBuilder::slice_arrived(Lane lane, int source) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].is_kept) continue;
    // Slices are not in the caller's order in memory: each goes to its columns by a copy of its own.
    const Shard part = tensors_[i].part_of(world(), source);
    builder_.copy(lane, arrived(static_cast<int>(i), from(source)),
                  part_of(roots_.travels[i].whole, tensors_[i].sizes.size() - 1, part.offset, part.size));
  }
  slice_lane_[static_cast<std::size_t>(source)] = lane;
  if (source != next_slice_) return;

  // The sum so far, if there is one, and slices that wait for this one may be the other lane's.
  Lane other = source == 0 ? lane : sum_lane_;
  for (int q = next_slice_; q < world() && slice_lane_[static_cast<std::size_t>(q)] >= 0; ++q) {
    if (slice_lane_[static_cast<std::size_t>(q)] != lane) other = slice_lane_[static_cast<std::size_t>(q)];
  }
  if (other != lane) builder_.join(other, lane);
  for (; next_slice_ < world() && slice_lane_[static_cast<std::size_t>(next_slice_)] >= 0; ++next_slice_)
    add_slice(lane, next_slice_);
  sum_lane_ = lane;
}

/// Plain slices are added up in f32 and rounded in the end. Scaled ones take their scales before they are
/// added; the last one is rounded into out together with the sum and the bias.
void GatherBuilder::add_slice(Lane lane, int source) {
  const Shard part = problem_.part_of(source);
  const bool is_last = source == world() - 1;
  if (part.size == 0 && source > 0 && !(problem_.is_scaled && is_last)) return;
  Label label = trace::StepKind::kConsume;
  if (source == rank()) label = trace::StepKind::kConsumeOwn;
  if (builder_.num_lanes() == 1) label.reset();
  for (int i = 0; i < problem_.num_b; ++i) {
    const GatherRoots::PerB& per_b = roots_.per_b[static_cast<std::size_t>(i)];
    program::Product one = product(i, from(source));
    one.b = part_of(per_b.b, 0, part.offset, part.size);
    if (problem_.is_scaled_by_blocks()) {
      const Shard blocks = problem_.scales_of(source);
      one.b_scale = part_of(per_b.b_scale, 0, blocks.offset, blocks.size);
    }
    const bool rounds = problem_.is_scaled && is_last;
    if (!rounds) one.bias = {};
    if (!rounds) one.out = all_of(per_b.sum);
    if (problem_.is_scaled && source > 0) one.addend = all_of(per_b.sum);
    one.accumulate = !problem_.is_scaled && source > 0;
    builder_.product(lane, one, label, source);
    label.reset();
  }
}

void GatherBuilder::finish_slices() {
  if (problem_.is_scaled) return;
  for (const GatherRoots::PerB& per_b : roots_.per_b)
    builder_.cast(program::kCurrent, all_of(per_b.sum), all_of(per_b.out), all_of(per_b.bias));
}

void GatherBuilder::keep_own(Lane lane, Label label) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!tensors_[i].is_kept) continue;
    const Shard part = tensors_[i].part_of(world(), rank());
    builder_.copy(lane, own_shard(static_cast<int>(i)),
                  part_of(roots_.travels[i].whole, 0, part.offset, part.size), label, rank());
    label.reset();
  }
}

namespace {

void bind_travelling(const GatherCall& call, const GatherProblem& problem, const GatherRoots& roots,
                     program::Bindings& bindings) {
  for (std::size_t i = 0; i < roots.travels.size(); ++i) {
    const GatherRoots::Travel& travel = roots.travels[i];
    const int idx = static_cast<int>(i);
    const TensorView front = call.front(problem, idx);
    bindings.bind(travel.front, front);
    if (travel.whole != kNone) bindings.bind(travel.whole, *call.whole(problem, idx));
    if (travel.flat == kNone || (problem.copied >> i & 1U) != 0) continue;
    // Units are columns, or rows of the last dim.
    std::int64_t rows = 1;
    for (int d = 0; d < front.dim() - 1; ++d) rows *= front.size(d);
    const std::int64_t last = front.sizes.back();
    const Dims sizes = problem.gathers_last() ? Dims{last, rows} : Dims{rows, last};
    bindings.bind(travel.flat, TensorView::contiguous(front.data, sizes, front.dtype, front.device));
  }
}

}  // namespace

void bind(const GatherCall& call, const GatherProblem& problem, const GatherRoots& roots,
          program::Bindings& bindings) {
  bind_travelling(call, problem, roots, bindings);
  if (roots.a_scale != kNone) {
    TensorView scale = *call.a_scale;
    const int last = scale.dim() - 1;
    if (problem.scale_mode == ScaleMode::kTensorwise) {
      bindings.bind_for_every_part(roots.a_scale, scale);
    } else if (!problem.gathers_last()) {
      bindings.bind(roots.a_scale, scale.movedim(problem.dim, 0));
    } else {
      // One column for all slices counts as one a slice.
      if (scale.size(last) == 1 && !problem.is_scaled_by_blocks()) {
        scale.sizes[last] = problem.world;
        scale.strides[last] = 0;
      }
      bindings.bind(roots.a_scale, scale);
    }
  }
  if (roots.in_place != kNone)
    bindings.bind_in_place(roots.in_place, call.a, call.a_handle.get(), problem.in_place_offset);
  std::int64_t column = 0;
  for (int i = 0; i < problem.num_b; ++i) {
    const auto idx = static_cast<std::size_t>(i);
    const GatherRoots::PerB& per_b = roots.per_b[idx];
    const TensorView& out = call.out[idx];
    bindings.bind(per_b.b, call.b[idx]);
    bindings.bind(per_b.out, problem.gathers_last() ? out : out.movedim(problem.dim, 0));
    bindings.bind_optional(per_b.bias, call.bias.at(i));
    bindings.bind_optional(per_b.b_scale, call.b_scale.at(i));
    bindings.bind_optional(per_b.result_scale, call.result_scale.at(i));
    if (per_b.sum == kNone) continue;
    bindings.bind_in_scratch(per_b.sum, problem.rows() * column * size_bytes(DType::kF32), out.sizes,
                             DType::kF32, problem.device);
    column += out.sizes.back();
  }
}

}  // namespace tandem::fused
