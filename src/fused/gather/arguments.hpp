#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/fused/report.hpp>

#include "bootstrap/hosts.hpp"
#include "fused/gather/call.hpp"
#include "fused/gather/problem.hpp"

namespace tandem::fused {

// Checks that both gather ops make.

/// What is gathered, and along which dim.
struct Gathering {
  const TensorView& a;
  int dim;
  std::int64_t size;  ///< of that dim over all ranks
};
template <class Args>
[[nodiscard]] Gathering gathering_of(const Args& args) {
  return {args.a, args.gather_dim, args.gather_size};
}

/// a's sizes over all ranks: what the layouts depend on.
[[nodiscard]] Result<Dims> gathered_sizes(std::string_view who, const Gathering& gathering);

/// Whether a has this rank's part of the gathered dim.
[[nodiscard]] Result<void> check_shard(std::string_view who, const Gathering& gathering, const Group& group);

/// Sizes of out[i]: `gathered` with the columns of b[i].
[[nodiscard]] Result<Dims> output_sizes(std::string_view who, const TensorView& b, const Dims& gathered,
                                        int i);

/// What out[i], and all of a, must look like: gather-dim-major.
[[nodiscard]] Result<Layout> output_layout(std::string_view who, const Gathering& gathering,
                                           std::span<const TensorView> b, int i);
[[nodiscard]] Result<Layout> gathered_layout(std::string_view who, const Gathering& gathering);

/// What checked arguments come down to in either op, but for a handle; `sizes` are those of all of a.
template <class Args>
[[nodiscard]] GatherProblem gather_problem_of(const Args& args, const Dims& sizes, const Group& group,
                                              const Device& device) {
  GatherProblem problem{.dtype = args.a.dtype,
                        .sizes = sizes,
                        .dim = args.gather_dim,
                        .world = group.size(),
                        .num_hosts = group.num_hosts(),
                        .asked = args.algorithm,
                        .plan_n = args.plan_n,
                        .batch_invariant = device.config().batch_invariant,
                        .has_link = group.config().link_delay.count() > 0,
                        .device = device.id(),
                        .checks_nan = group.nan_check(),
                        .num_b = static_cast<int>(args.b.size()),
                        .keeps_gathered = args.gathered.has_value()};
  for (const TensorView& b : args.b) problem.sum_n += b.size(1);
  if (const auto* const link = bootstrap::link_of(group);
      link != nullptr && device.id().kind == DeviceKind::kCuda)
    problem.left_free = link->transport->num_multiprocessors();
  return problem;
}
/// Which shards have strides that need a copy.
void find_copies(const GatherCall& call, GatherProblem& problem);

}  // namespace tandem::fused
