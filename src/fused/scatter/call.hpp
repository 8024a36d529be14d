#pragma once

#include <optional>
#include <span>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/matmul_all_reduce.hpp>
#include <tandem/fused/matmul_reduce_scatter.hpp>
#include <tandem/fused/scaled_matmul_all_reduce.hpp>
#include <tandem/fused/scaled_matmul_reduce_scatter.hpp>
#include <tandem/trace/enqueue_trace.hpp>

#include "fused/call/optional_views.hpp"
#include "fused/scatter/problem.hpp"

namespace tandem::fused {

/// The arguments of a scatter or an all-reduce, plain or scaled, whichever was called. Their names are the
/// public ones.
struct ScatterCall {
  std::span<const TensorView> a;
  std::span<const TensorView> b;
  OptionalViews a_scale = {};
  OptionalViews b_scale = {};
  OptionalViews product_bias = {};  ///< of each product
  OptionalViews result_scale = {};
  TensorView out;
  std::optional<TensorView> bias = {};  ///< of the sum over ranks
  std::optional<TensorView> product = {};
  trace::EnqueueTrace* trace = nullptr;

  template <class Args>
  [[nodiscard]] static ScatterCall of(const Args& args) {
    ScatterCall call{.a = args.a, .b = args.b, .out = args.out, .product = args.product, .trace = args.trace};
    if constexpr (requires { args.a_scale; }) {
      call.a_scale = args.a_scale;
      call.b_scale = args.b_scale;
      call.product_bias = args.bias;
      call.result_scale = args.result_scale;
    } else {
      call.bias = args.bias;
    }
    return call;
  }
};

/// A call whose arguments are right, and what it comes down to.
struct CheckedScatter {
  ScatterCall call;
  ScatterProblem problem;
};
/// Everything that can be wrong with the arguments on this rank, before anything is enqueued.
[[nodiscard]] Result<CheckedScatter> check(const MatmulReduceScatterArgs& args, const Group& group,
                                           const Stream& stream);
[[nodiscard]] Result<CheckedScatter> check(const ScaledMatmulReduceScatterArgs& args, const Group& group,
                                           const Stream& stream);
[[nodiscard]] Result<CheckedScatter> check(const MatmulAllReduceArgs& args, const Group& group,
                                           const Stream& stream);
[[nodiscard]] Result<CheckedScatter> check(const ScaledMatmulAllReduceArgs& args, const Group& group,
                                           const Stream& stream);

}  // namespace tandem::fused
