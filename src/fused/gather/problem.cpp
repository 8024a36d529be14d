#include "fused/gather/problem.hpp"

#include <tandem/gemm/scaled_mm.hpp>

#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/with_last.hpp"

namespace tandem::fused {
namespace {

/// What ranks have in common besides a: " quantize f8e4m3 scale rowwise_sharded beside bf16 4".
std::string scaled_text(const GatherProblem& problem) {
  std::string text = problem.quantize ? fmt::format(" quantize {}", to_string(*problem.quantize)) : "";
  text += fmt::format("{} scale {} beside", problem.fast_accum ? " fast" : "",
                      tandem::to_string(problem.scale_mode));
  for (int i = 0; i < problem.num_also_gathered; ++i) {
    const auto& one = problem.also_gather[static_cast<std::size_t>(i)];
    text += fmt::format(" {}", to_string(one.dtype));
    if (!problem.gathers_last()) text += fmt::format(" {}", one.last);
  }
  return text;
}

}  // namespace

std::int64_t GatherProblem::rows() const {
  std::int64_t product = 1;
  for (int d = 0; d < sizes.size() - 1; ++d) product *= sizes[d];
  return product;
}

std::int64_t GatherProblem::unit_rows() const {
  std::int64_t product = gathers_last() ? 0 : 1;
  for (int d = 0; d < sizes.size() - 1; ++d) product *= d == dim ? 1 : sizes[d];
  return product;
}

std::int64_t GatherProblem::unit_elements() const {
  return gathers_last() ? rows() : unit_rows() * k();
}

std::int64_t GatherProblem::also_gathered_bytes() const {
  std::int64_t num_bytes = 0;
  for (int i = 1; i < num_travelling(*this); ++i) num_bytes += travelling(*this, i).part_bytes(world);
  return num_bytes;
}

std::int64_t GatherProblem::scale_columns() const {
  if (is_scaled_by_blocks()) return gemm::num_scale_blocks(k());
  return gathers_last() ? world : 1;
}

std::size_t hash_of(const GatherProblem& p) {
  Hash hash;
  hash.add(p.dtype).add(p.sizes).add(p.dim).add(p.num_hosts).add(p.asked).add(p.is_scaled).add(p.scale_mode);
  hash.add(p.quantize.has_value()).add(p.factor());
  hash.add(p.num_also_gathered).add(p.in_place_offset).add(p.plan_n).add(p.is_capturing).add(p.piece_peers);
  hash.add(p.pulls).add(p.has_link);
  hash.add(p.num_b).add(p.sum_n).add(p.keeps_gathered).add(p.copied).add(p.has_bias).add(p.by_mm);
  hash.add(p.batch_invariant).add(p.checks_nan);
  hash.add(p.first_consumed).add(p.aligns_own).add(p.orders_scale).add(p.fast_accum);
  hash.add(p.left_free);
  for (const GatherProblem::AlsoGathered& one : p.also_gather) hash.add(one.dtype).add(one.last);
  return hash.value();
}

std::string to_string(const GatherProblem& problem) {
  return fmt::format(
      "{} {} dim {} w{}{}{}{}{}{}", to_string(problem.dtype), to_string(problem.sizes), problem.dim,
      problem.world, problem.num_hosts == 1 ? "" : fmt::format(" on {} hosts", problem.num_hosts),
      problem.plan_n == 0 ? "" : fmt::format(" plan_n {}", problem.plan_n),
      problem.in_place_offset < 0 ? "" : fmt::format(" in place at {}", problem.in_place_offset),
      problem.is_scaled ? scaled_text(problem) : "", problem.batch_invariant ? ", batch invariant" : "");
}

std::int64_t Travelling::unit_elements() const {
  std::int64_t product = 1;
  for (int d = 0; d < sizes.size(); ++d) {
    if (d != (by_slices ? sizes.size() - 1 : 0)) product *= sizes[d];
  }
  return product;
}

Dims Travelling::sizes_of(std::int64_t units) const {
  Dims part = sizes;
  part[by_slices ? part.size() - 1 : 0] = units;
  return part;
}

int num_travelling(const GatherProblem& problem) {
  return 1 + (problem.has_sharded_scale() ? 1 : 0) + problem.num_also_gathered;
}

Travelling travelling(const GatherProblem& problem, int i) {
  const bool by_slices = problem.gathers_last();
  Travelling tensor{.name = "a",
                    .dtype = problem.dtype,
                    .sizes = problem.sizes,
                    .total = problem.total(),
                    .by_slices = by_slices,
                    .is_kept = problem.keeps_gathered,
                    .is_copied = (problem.copied >> i & 1U) != 0};
  if (!by_slices) tensor.sizes.insert(0, tensor.sizes.erase(problem.dim));
  if (i == 0) return tensor;
  const int first_also = problem.has_sharded_scale() ? 2 : 1;
  if (i < first_also) {
    tensor.name = "a_scale";
    tensor.dtype = DType::kF32;
    tensor.is_kept = false;
    tensor.sizes = with_last(tensor.sizes, problem.scale_columns());
    if (by_slices) tensor.total = problem.scale_columns();
    return tensor;
  }
  const auto& also = problem.also_gather[static_cast<std::size_t>(i - first_also)];
  tensor.name = fmt::format("also_gather{}", i - first_also);
  tensor.dtype = also.dtype;
  tensor.is_kept = true;
  if (!by_slices) tensor.sizes = with_last(tensor.sizes, also.last);
  return tensor;
}

}  // namespace tandem::fused
