#include "fused/scatter/problem.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/hash.hpp"

namespace tandem::fused {

TensorView front_of(const TensorView& a, int scatter_dim) {
  return scatter_dim == a.dim() - 1 ? a : a.movedim(scatter_dim, 0);
}

std::int64_t ScatterProblem::rows() const {
  std::int64_t product = 1;
  for (int d = 0; d < sizes.size() - 1; ++d) product *= sizes[d];
  return product;
}

std::int64_t ScatterProblem::unit_rows() const {
  std::int64_t product = scatters_last() ? 0 : 1;
  for (int d = 0; d < sizes.size() - 1; ++d) product *= d == dim ? 1 : sizes[d];
  return product;
}

std::int64_t ScatterProblem::chunk_units(int chunks) const {
  return std::max<std::int64_t>(1, (shard_stride(total(), world) + chunks - 1) / chunks);
}

Shard ScatterProblem::chunk_of(int rank, int idx, int chunks) const {
  const Shard part = part_of(rank);
  const std::int64_t first = std::min(idx * chunk_units(chunks), part.size);
  return {part.offset + first, std::min(chunk_units(chunks), part.size - first)};
}

bool ScatterProblem::out_is_matrix() const {
  bool is_first = true;
  for (int d = 0; d < dim; ++d) is_first = is_first && sizes[d] == 1;
  return is_first;
}

std::int64_t ScatterProblem::unit_elements() const {
  return scatters_last() ? rows() : unit_rows() * n();
}

Dims ScatterProblem::sizes_of(std::int64_t units) const {
  Dims part = sizes;
  if (scatters_last()) {
    part[dim] = units;
    return part;
  }
  part.insert(0, part.erase(dim));
  part[0] = units;
  return part;
}

std::size_t hash_of(const ScatterProblem& p) {
  return Hash()
      .add(p.dtype)
      .add(p.partials)
      .add(p.sizes)
      .add(p.dim)
      .add(p.reduce_op)
      .add(p.asked)
      .add(p.plan_k)
      .add(p.batch_invariant)
      .add(p.checks_nan)
      .add(p.push_chunks)
      .add(p.tells)
      .add(p.has_core_a_lane)
      .add(p.has_link)
      .add(p.rounds)
      .add(p.num_products)
      .add(p.sum_k)
      .add(p.num_copied)
      .add(p.copied_bytes)
      .add(p.copied)
      .add(p.has_bias)
      .add(p.keeps_product)
      .add(p.gives_all)
      .add(p.is_scaled)
      .add(p.a_scale)
      .add(p.fast_accum)
      .add(p.gives_while_multiplying)
      .value();
}

Support can_send_rows(const ScatterProblem& problem) {
  if (problem.device.kind != DeviceKind::kCuda) return Support::no("this is no GPU");
  if (problem.world == 1) return Support::no("there are no peers");
  if (problem.num_hosts > 1) return Support::no("ranks are on several hosts");
  if (problem.scatters_last()) return Support::no("columns are scattered");
  if (problem.partials != problem.dtype) return Support::no("partials have another type than out");
  if (problem.rows() == 0 || problem.n() == 0) return Support::no("there is nothing to multiply");
  return Support::yes();
}

std::string scale_in_words(const ScatterProblem& problem) {
  return problem.a_scale == gemm::Scale::kNone ? "" : fmt::format(", scaled {}", to_string(problem.a_scale));
}

std::string dim_in_words(const ScatterProblem& problem) {
  return problem.gives_all ? "" : fmt::format(" dim {}", problem.dim);
}

std::string to_string(const ScatterProblem& problem) {
  return fmt::format("{} {}{} {} w{}{} partials {}{}{}{}", to_string(problem.dtype), to_string(problem.sizes),
                     dim_in_words(problem), to_string(problem.reduce_op), problem.world,
                     problem.num_hosts == 1 ? "" : fmt::format(" on {} hosts", problem.num_hosts),
                     to_string(problem.partials), scale_in_words(problem),
                     problem.plan_k == 0 ? "" : fmt::format(" plan_k {}", problem.plan_k),
                     problem.batch_invariant ? ", batch invariant" : "");
}

}  // namespace tandem::fused
