#pragma once

#include <cstdint>
#include <optional>
#include <tandem/base/error.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/symm/handle.hpp>
#include <tandem/trace/enqueue_trace.hpp>

#include "base/function_ref.hpp"
#include "fused/op_memory.hpp"
#include "fused/scatter_problem.hpp"

namespace tandem::fused {

// What both scatter ops put on their streams, whatever their partials are made of.

/// The scratch memory of a scatter.
struct ScatterMemory {
  TensorView partials;  ///< serial: [total, unit], the partials for all ranks; made in the workspace
  TensorView stack;     ///< pipelined: [W, s_r, unit], all ranks' partials for this one
  TensorView sums[2];   ///< f32: where products are summed, one a stream
  TensorView reduced;   ///< serial with bias on scattered columns: f32 [s_r * unit]
};
[[nodiscard]] ScatterMemory carve_scatter(const ScatterProblem& problem, Algorithm algorithm, int rank,
                                          Carver& carver);

/// Where the product of `part` goes.
struct Partial {
  Shard part;  ///< of the scattered dim
  TensorView
      to;  ///< contiguous [part.size * unit_rows, n], or [rows, part.size] if the last dim is scattered
  TensorView sum;  ///< f32 scratch of the same shape, if the problem sums in scratch
};
/// `to` and `sum` as matrices at the start of the memory of these two.
[[nodiscard]] Partial partial_of(const ScatterProblem& problem, Shard part, const TensorView& to,
                                 const TensorView& sum);

/// Enqueues this rank's own sum of products for one part, which is not empty.
using MultiplyPart = FunctionRef<Result<void>(const Partial& partial, Stream& stream)>;

struct ScatterSteps {
  const ScatterProblem& problem;
  Group& group;
  Stream& stream;
  const ScatterMemory& memory;
  const TensorView& out;
  std::optional<TensorView> bias;     ///< added to the sum over ranks, rounded together with it
  std::optional<TensorView> product;  ///< receives this rank's own sum
  MultiplyPart multiply;
  trace::EnqueueTrace* trace;
};
[[nodiscard]] std::int64_t scatter_workspace_bytes(const ScatterProblem& problem, const ScatterMemory& memory,
                                                   Algorithm algorithm, const Stream& stream);
/// The products, then a collective; or one product a rank, beside the copies.
[[nodiscard]] Result<void> enqueue_scatter(const ScatterSteps& steps, Algorithm algorithm,
                                           symm::Handle* workspace);

/// to = from, rounded where the type is narrower. Shapes equal; `from` contiguous.
[[nodiscard]] Result<void> round_to(const TensorView& from, const TensorView& to, Stream& stream);

}  // namespace tandem::fused
