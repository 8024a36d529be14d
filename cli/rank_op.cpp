#include "rank_op.hpp"

#include <algorithm>

#include "failure.hpp"

namespace tandem::cli {

RankOp::RankOp(const harness::Problem& problem, const Session& session, const harness::OperandSource& source)
    : problem_(problem), session_(session), operands_(problem, source, session.rank(), {session.device()}) {
  allocate_outputs();
}

void RankOp::allocate_outputs() {
  const auto allocate = [&](const Layout& layout) {
    return harness::GuardedTensor(session_.device(), layout, problem_.dtype);
  };
  if (problem_.op == harness::Op::kMatmulReduceScatter) {
    out_.push_back(allocate(take(output_layout(scatter_args(), session_.size(), session_.rank()))));
  } else {
    for (int i = 0; i < static_cast<int>(problem_.n.size()); ++i) {
      out_.push_back(allocate(take(output_layout(gather_args(), i))));
    }
    if (problem_.gathered) gathered_ = allocate(take(gathered_layout(gather_args())));
  }
  out_views_ = harness::views_of(out_);
}

AllGatherMatmulArgs RankOp::gather_args() const {
  AllGatherMatmulArgs args = operands_.gather_args();
  args.out = out_views_;
  if (problem_.gathered && gathered_.view().data != nullptr) args.gathered = gathered_.view();
  args.plan_n = product_of_a_rank(problem_).n;
  return args;
}

MatmulReduceScatterArgs RankOp::scatter_args() const {
  MatmulReduceScatterArgs args = operands_.scatter_args();
  if (!out_views_.empty()) args.out = out_views_[0];
  args.plan_k = product_of_a_rank(problem_).k;
  return args;
}

OpReport RankOp::call(Algorithm algorithm) {
  if (problem_.op == harness::Op::kAllGatherMatmul) {
    AllGatherMatmulArgs args = gather_args();
    args.algorithm = algorithm;
    return take(fused_all_gather_matmul(args, session_.group(), session_.stream()));
  }
  MatmulReduceScatterArgs args = scatter_args();
  args.algorithm = algorithm;
  return take(fused_matmul_reduce_scatter(args, session_.group(), session_.stream()));
}

OpReport RankOp::plan(Algorithm algorithm) const {
  if (problem_.op == harness::Op::kAllGatherMatmul) {
    AllGatherMatmulArgs args = gather_args();
    args.algorithm = algorithm;
    return take(tandem::plan(args, session_.group(), session_.stream()));
  }
  MatmulReduceScatterArgs args = scatter_args();
  args.algorithm = algorithm;
  return take(tandem::plan(args, session_.group(), session_.stream()));
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
