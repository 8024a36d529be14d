#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>
#include <tandem/symm/handle.hpp>

#include "fused/all_gather_scaled_matmul_check.hpp"
#include "fused/gather_steps.hpp"
#include "fused/op_memory.hpp"

namespace tandem::fused {

/// One checked call with the memory it works in.
struct ScaledGatherOp {
  static constexpr std::size_t kMaxCarried = kMaxBeside + 2;
  static_assert(kMaxCarried <= static_cast<std::size_t>(pipeline::kMaxShards));

  const AllGatherScaledMatmulArgs& args;
  const ScaledGatherProblem& problem;
  Group& group;
  Stream& stream;
  SliceMarks& marks;
  /// a, then its scale if that is sharded, then what travels beside.
  std::size_t num_carried = 0;
  std::array<Carried, kMaxCarried> carried = {};
  std::array<TensorView, kMaxCarried> shards = {};
  std::array<TensorView, kMaxCarried> gathered = {};
  TensorView all_scales = {};  ///< of a replicated scale: the gathered dim in front, unless that is the last
  TensorView sums = {};        ///< f32 [rows * sum_n], where slices of the last dim are summed
};
/// Finds the memory, without touching it.
[[nodiscard]] Result<ScaledGatherOp> prepare(const AllGatherScaledMatmulArgs& args,
                                             const ScaledGatherProblem& problem, Group& group,
                                             Stream& stream);
[[nodiscard]] std::int64_t workspace_bytes(const ScaledGatherOp& op, Algorithm algorithm);

/// Puts the op on its streams: the collectives, then the products; or one product a chunk, beside the copies.
[[nodiscard]] Result<void> enqueue(const ScaledGatherOp& op, Algorithm algorithm, symm::Handle* workspace);

}  // namespace tandem::fused
