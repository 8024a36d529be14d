#pragma once

#include <memory>
#include <optional>
#include <span>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>
#include <tandem/symm/handle.hpp>
#include <tandem/trace/enqueue_trace.hpp>

#include "fused/call/optional_views.hpp"
#include "fused/gather/problem.hpp"

namespace tandem::fused {

/// The arguments of either gather op, whichever was called. Their names are the public ones.
struct GatherCall {
  TensorView a;
  /// As tensors of a's dims: one element, or those of a shard's or of all rows; none where nothing is scaled.
  std::optional<TensorView> a_scale = {};
  std::span<const TensorView> b;
  OptionalViews b_scale = {};
  std::span<const TensorView> out;
  std::optional<TensorView> gathered;
  OptionalViews bias = {};
  OptionalViews result_scale = {};
  std::span<const TensorView> also_gather = {};
  std::span<const TensorView> also_gathered = {};
  std::shared_ptr<symm::Handle> a_handle = {};
  trace::EnqueueTrace* trace = nullptr;

  [[nodiscard]] static GatherCall of(const AllGatherMatmulArgs& args);
  /// `mode`: as it was found.
  [[nodiscard]] static GatherCall of(const AllGatherScaledMatmulArgs& args, ScaleMode mode);

  /// Travelling tensor i's shard with the gathered dim in front; as it is if that is the last.
  [[nodiscard]] TensorView front(const GatherProblem& problem, int i) const;
  /// The caller's tensor for all of it, in the same order of dims; none: it is not kept.
  [[nodiscard]] std::optional<TensorView> whole(const GatherProblem& problem, int i) const;
};

/// A call whose arguments are right, and what it comes down to.
struct CheckedGather {
  GatherCall call;
  GatherProblem problem;
};
/// Everything that can be wrong with the arguments on this rank, before anything is enqueued.
[[nodiscard]] Result<CheckedGather> check(const AllGatherMatmulArgs& args, const Group& group,
                                          const Stream& stream);
[[nodiscard]] Result<CheckedGather> check(const AllGatherScaledMatmulArgs& args, const Group& group,
                                          const Stream& stream);

}  // namespace tandem::fused
