#include "rank_op.hpp"

#include <algorithm>

#include "failure.hpp"

namespace tandem::cli {

Result<OpReport> run(const AllGatherMatmulArgs& args, Group& group, Stream& stream) {
  return fused_all_gather_matmul(args, group, stream);
}
Result<OpReport> run(const MatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  return fused_matmul_reduce_scatter(args, group, stream);
}
Result<OpReport> run(const MatmulAllReduceArgs& args, Group& group, Stream& stream) {
  return fused_matmul_all_reduce(args, group, stream);
}
Result<OpReport> run(const AllGatherScaledMatmulArgs& args, Group& group, Stream& stream) {
  return fused_all_gather_scaled_matmul(args, group, stream);
}
Result<OpReport> run(const ScaledMatmulReduceScatterArgs& args, Group& group, Stream& stream) {
  return fused_scaled_matmul_reduce_scatter(args, group, stream);
}
Result<OpReport> run(const ScaledMatmulAllReduceArgs& args, Group& group, Stream& stream) {
  return fused_scaled_matmul_all_reduce(args, group, stream);
}

RankOp::RankOp(const harness::Problem& problem, const Session& session, const harness::OperandSource& source)
    : problem_(problem), session_(session), operands_(problem, source, session.rank(), {session.device()}) {
  allocate_outputs();
}

template <class GatherArgs>
GatherArgs RankOp::completed_gather(GatherArgs args) const {
  args.out = out_views_;
  if (problem_.gathered && gathered_.view().data != nullptr) args.gathered = gathered_.view();
  args.plan_n = product_of_a_rank(problem_).n;
  return args;
}

template <class ReduceArgs>
ReduceArgs RankOp::completed_reduce(ReduceArgs args) const {
  if (!out_views_.empty()) args.out = out_views_[0];
  args.plan_k = product_of_a_rank(problem_).k;
  return args;
}

template <class Use>
auto RankOp::with_args(Use use) const {
  const bool is_scaled = problem_.is_scaled();
  switch (problem_.op) {
    case harness::Op::kMatmulReduceScatter:
      return is_scaled ? use(completed_reduce(operands_.scaled_scatter_args()))
                       : use(completed_reduce(operands_.scatter_args()));
    case harness::Op::kMatmulAllReduce:
      return is_scaled ? use(completed_reduce(operands_.scaled_all_reduce_args()))
                       : use(completed_reduce(operands_.all_reduce_args()));
    case harness::Op::kAllGatherMatmul:
      break;
  }
  return is_scaled ? use(completed_gather(operands_.scaled_gather_args()))
                   : use(completed_gather(operands_.gather_args()));
}

void RankOp::allocate_outputs() {
  for (int i = 0; i < static_cast<int>(problem_.n.size()); ++i) {
    const Layout layout = with_args([&](const auto& args) {
      if constexpr (requires { args.gather_dim; }) {
        return take(output_layout(args, i));
      } else if constexpr (!requires { args.scatter_dim; }) {
        return take(output_layout(args));
      } else {
        return take(output_layout(args, session_.size(), session_.rank()));
      }
    });
    out_.push_back(harness::GuardedTensor(session_.device(), layout, problem_.out_dtype()));
  }
  if (problem_.gathered) {
    const Layout layout = take(gathered_layout(operands_.gather_args()));
    gathered_ = harness::GuardedTensor(session_.device(), layout, problem_.dtype);
  }
  out_views_ = harness::views_of(out_);
}

OpReport RankOp::call(Algorithm algorithm) {
  return with_args([&](auto args) {
    args.algorithm = algorithm;
    return take(run(args, session_.group(), session_.stream()));
  });
}

OpReport RankOp::plan(Algorithm algorithm) const {
  return with_args([&](auto args) {
    args.algorithm = algorithm;
    return take(tandem::plan(args, session_.group(), session_.stream()));
  });
}

void RankOp::poison() const {
  for (const harness::GuardedTensor& out : out_) out.poison();
  if (problem_.gathered) gathered_.poison();
}

void RankOp::download() const {
  operands_.download();
  download_results();
}

void RankOp::download_results() const {
  for (const harness::GuardedTensor& out : out_) out.download();
  if (problem_.gathered) gathered_.download();
}

bool RankOp::guards_intact() const {
  const auto intact = [](const harness::GuardedTensor& tensor) { return tensor.guards_are_whole(); };
  return operands_.guards_are_whole() && std::all_of(out_.begin(), out_.end(), intact) &&
         gathered_.guards_are_whole();
}

}  // namespace tandem::cli
