#include "fused/scatter/builder.hpp"

#include "base/format.hpp"
#include "base/with_last.hpp"
#include "fused/scatter/arguments.hpp"

namespace tandem::fused {

using program::all_of;
using program::Checked;
using program::kNone;
using program::Lane;
using program::Operand;
using program::part_of;
using program::RootId;

ScatterBuilder::ScatterBuilder(const ScatterProblem& problem, Algorithm algorithm, int rank, int num_lanes)
    : problem_(problem),
      rank_(rank),
      builder_(fmt::format("{} {}", problem.op(), to_string(algorithm)), rank % problem.ranks_per_host(),
               problem.ranks_per_host(), num_lanes, symm::kScatterChannel) {
  const std::int64_t copies_at = problem.num_copied > 0 ? builder_.reserve_scratch(problem.copied_bytes) : 0;
  // See arranged().
  const int front_dim = problem.gives_all || problem.scatters_last() ? 0 : problem.dim;
  for (int j = 0; j < problem.num_products; ++j) {
    ScatterRoots::PerProduct& one = roots_.products.emplace_back();
    one.front = one.a = builder_.input(fmt::format("a{}", j), Checked::kBefore, front_dim);
    if (problem.is_copied(j)) {
      const std::string name = fmt::format("a{} in order", j);
      one.a = one.copy = builder_.bound_scratch(name, copies_at, problem.copied_bytes);
      if (problem.gives_all)
        one.a = builder_.bound_scratch(name + ", as a matrix", copies_at, problem.copied_bytes);
    }
    one.b = builder_.input(fmt::format("b{}", j), Checked::kBefore);
    if (!problem.is_scaled) continue;
    one.a_scale = builder_.input(fmt::format("a_scale{}", j), Checked::kBefore, front_dim);
    one.b_scale = builder_.input(fmt::format("b_scale{}", j), Checked::kBefore);
    one.bias = builder_.input(fmt::format("bias{}", j), Checked::kBefore);
    one.result_scale = builder_.input(fmt::format("result_scale{}", j), Checked::kBefore);
  }
  roots_.out = builder_.caller("out");
  if (problem.has_bias) roots_.bias = builder_.input("bias", Checked::kBeside);
  if (problem.keeps_product) roots_.product = builder_.caller("product");
}

void ScatterBuilder::add_sums(Lane lane, std::int64_t most_units) {
  if (!problem_.sums_in_scratch()) return;
  sums_at_[lane] = builder_.reserve_scratch(most_units * problem_.unit_elements() * size_bytes(DType::kF32));
}

void ScatterBuilder::copy_operands() {
  for (const ScatterRoots::PerProduct& one : roots_.products) {
    if (one.copy != kNone) builder_.copy(program::kCurrent, all_of(one.front), all_of(one.copy));
  }
}

Operand ScatterBuilder::rows_of(RootId root, Shard part) const {
  if (root == kNone || problem_.scatters_last()) return all_of(root);
  return part_of(root, 0, part.offset, part.size);
}

Operand ScatterBuilder::columns_of(RootId root, int dim, Shard part) const {
  if (root == kNone || !problem_.scatters_last()) return all_of(root);
  return part_of(root, dim, part.offset, part.size);
}

program::Product ScatterBuilder::product(int j, Shard part) const {
  const ScatterRoots::PerProduct& one = roots_.products[static_cast<std::size_t>(j)];
  return {.a = rows_of(one.a, part),
          .b = columns_of(one.b, 1, part),
          .out = {},
          .bias = columns_of(one.bias, 0, part),
          .a_scale = rows_of(one.a_scale, part),
          .b_scale = columns_of(one.b_scale, 1, part),
          .result_scale = all_of(one.result_scale),
          .scaled = problem_.is_scaled,
          .fast_accum = problem_.fast_accum};
}

void ScatterBuilder::make_partial(Lane lane, Shard part, const Operand& to, program::Builder::Label label,
                                  int peer, int slot) {
  make_rounded(lane, part, to, label, peer, slot);
  keep(lane, part, to);
}

void ScatterBuilder::make_rounded(Lane lane, Shard part, const Operand& to, program::Builder::Label label,
                                  int peer, int slot) {
  Operand sum = to;
  if (problem_.sums_in_scratch()) {
    sum = all_of(builder_.at(program::Space::kScratch, sums_at_[lane],
                             fmt::format("sum of [{}:{}]", part.offset, part.offset + part.size),
                             problem_.sizes_of(part.size), DType::kF32));
  }
  make_sums(lane, part, sum, to, label, peer, slot);
  if (!problem_.is_scaled && problem_.sums_in_scratch()) builder_.cast(lane, sum, to);
}

void ScatterBuilder::make_sums(Lane lane, Shard part, const Operand& sum, const Operand& to,
                               program::Builder::Label label, int peer, int slot) {
  for (int j = 0; j < problem_.num_products; ++j) {
    program::Product one = product(j, part);
    // Scaled products are rounded together with the sum; plain ones are added to it, and it is rounded then.
    const bool rounds = problem_.is_scaled && j == problem_.num_products - 1;
    one.out = rounds ? to : sum;
    if (problem_.is_scaled && j > 0) one.addend = sum;
    one.accumulate = !problem_.is_scaled && j > 0;
    builder_.product(lane, one, label, peer, slot);
    label.reset();
  }
}

void ScatterBuilder::add_products(Lane lane, Shard part, const Operand& to, const Operand& addend,
                                  program::Builder::Label label, int peer, int slot) {
  if (problem_.batch_invariant) return make_rounded(lane, part, to, label, peer, slot);
  for (int j = 0; j < problem_.num_products; ++j) {
    program::Product one = product(j, part);
    one.out = to;
    one.addend = j == 0 ? addend : to;
    builder_.product(lane, one, label, peer, slot);
    label.reset();
  }
}

void ScatterBuilder::keep(Lane lane, Shard part, const Operand& partial) {
  if (!problem_.keeps_product) return;
  const int dim = problem_.scatters_last() ? problem_.dim : 0;
  builder_.cast(lane, partial, part_of(roots_.product, dim, part.offset, part.size));
}

Operand ScatterBuilder::own_out(Shard units) const {
  return part_of(roots_.out, 0, problem_.gives_all ? units.offset : units.offset - own().offset, units.size);
}

Operand ScatterBuilder::own_bias() const {
  return columns_of(roots_.bias, 0, own());
}

namespace {

/// What a program sees of a tensor of the product's rows: the scattered dim in front, or, where all ranks get
/// all, one dim of rows.
TensorView arranged(const TensorView& rows, const ScatterProblem& problem) {
  return problem.gives_all ? rows.flatten_rows() : front_of(rows, problem.dim);
}

/// One number is bound for every part; what has more as `of_parts` arranges it.
template <class OfParts>
void bind_scale(program::Bindings& bindings, RootId root, const TensorView* scale, OfParts of_parts) {
  if (root == kNone || scale == nullptr) return bindings.bind_optional(root, nullptr);
  if (scale->numel() == 1) return bindings.bind_for_every_part(root, *scale);
  bindings.bind(root, of_parts(*scale));
}

void bind_out(const ScatterCall& call, const ScatterProblem& problem, const ScatterRoots& roots,
              program::Bindings& bindings) {
  const TensorView& out = call.out;
  const bool as_matrix = problem.scatters_last() || problem.gives_all;
  bindings.bind(roots.out, as_matrix ? out.flatten_rows() : out.movedim(problem.dim, 0));
  if (roots.out_units != kNone) {
    const TensorView matrix = out.flatten_rows();
    bindings.bind(roots.out_units,
                  TensorView::contiguous(out.data, {matrix.size(1), matrix.size(0)}, out.dtype, out.device));
  }
  if (roots.bias != kNone) bindings.bind(roots.bias, *call.bias);
  if (roots.product != kNone) bindings.bind(roots.product, arranged(*call.product, problem));
}

}  // namespace

void bind(const ScatterCall& call, const ScatterProblem& problem, const ScatterRoots& roots,
          program::Bindings& bindings) {
  std::int64_t copies_at = 0;
  for (int j = 0; j < problem.num_products; ++j) {
    const auto idx = static_cast<std::size_t>(j);
    const ScatterRoots::PerProduct& one = roots.products[idx];
    const TensorView& a = call.a[idx];
    if (one.copy == kNone) {
      bindings.bind(one.front, arranged(a, problem));
    } else {
      const TensorView front = problem.gives_all ? a : front_of(a, problem.dim);
      bindings.bind(one.front, front);
      bindings.bind_in_scratch(one.copy, copies_at, front.sizes, front.dtype, problem.device);
      const Dims matrix = {problem.rows(), a.sizes.back()};
      if (one.a != one.copy) bindings.bind_in_scratch(one.a, copies_at, matrix, a.dtype, problem.device);
      copies_at += front.size_bytes();
    }
    bindings.bind(one.b, call.b[idx]);
    bind_scale(bindings, one.a_scale, call.a_scale.at(j), [&](const TensorView& scale) {
      if (problem.gives_all) return scale.flatten_rows();
      const Dims& sizes = call.a[idx].sizes;
      return front_of(scale.dim() == sizes.size() ? scale : unflatten_rows(scale, sizes), problem.dim);
    });
    bind_scale(bindings, one.b_scale, call.b_scale.at(j), [](const TensorView& scale) { return scale; });
    bindings.bind_optional(one.bias, call.product_bias.at(j));
    bindings.bind_optional(one.result_scale, call.result_scale.at(j));
  }
  bind_out(call, problem, roots, bindings);
}

}  // namespace tandem::fused
