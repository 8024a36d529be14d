#include "rank_op.hpp"

#include <algorithm>

#include "failure.hpp"

namespace tandem::cli {
namespace {

std::vector<TensorView> views_of(const std::vector<harness::GuardedTensor>& tensors) {
  std::vector<TensorView> views;
  views.reserve(tensors.size());
  for (const harness::GuardedTensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

}  // namespace

RankOp::RankOp(const harness::Problem& problem, const Session& session, const harness::OperandSource& source)
    : problem_(problem), session_(session) {
  const int rank = session.rank();
  a_ = load(source, {harness::OperandKind::kA}, window_of_a(problem, rank));
  for (int i = 0; i < static_cast<int>(problem.n.size()); ++i) {
    b_.push_back(load(source, {harness::OperandKind::kB, i}, window_of_b(problem, i, rank)));
    if (problem.bias)
      bias_.push_back(load(source, {harness::OperandKind::kBias, i}, window_of_bias(problem, i, rank)));
  }
  b_views_ = views_of(b_);
  bias_views_ = views_of(bias_);
  allocate_outputs();
}

harness::GuardedTensor RankOp::load(const harness::OperandSource& source, const harness::Operand& operand,
                                    const harness::Window& window) const {
  Dims sizes = sizes_of(problem_, operand);
  sizes[window.dim] = window.shard.size;
  const bool is_column_major = operand.kind == harness::OperandKind::kB && problem_.b_is_column_major;
  harness::GuardedTensor shard(session_.device(),
                               Layout{sizes, is_column_major ? Dims{1, sizes[0]} : contiguous_strides(sizes)},
                               problem_.dtype);
  source.read(operand, window, shard.host());
  shard.upload();
  return shard;
}

void RankOp::allocate_outputs() {
  const auto allocate = [&](const Layout& layout) {
    return harness::GuardedTensor(session_.device(), layout, problem_.dtype);
  };
  if (problem_.op == harness::Op::kMatmulReduceScatter) {
    out_.push_back(allocate(take(output_layout(scatter_args(), session_.size(), session_.rank()))));
  } else {
    for (int i = 0; i < static_cast<int>(b_.size()); ++i) {
      out_.push_back(allocate(take(output_layout(gather_args(), i))));
    }
    if (problem_.gathered) gathered_ = allocate(take(gathered_layout(gather_args())));
  }
  out_views_ = views_of(out_);
}

AllGatherMatmulArgs RankOp::gather_args() const {
  AllGatherMatmulArgs args;
  args.a = a_.view();
  args.b = b_views_;
  args.gather_dim = problem_.dim;
  args.gather_size = problem_.a[problem_.dim];
  args.out = out_views_;
  if (problem_.gathered && gathered_.view().data != nullptr) args.gathered = gathered_.view();
  args.bias = bias_views_;
  args.plan_n = product_of_a_rank(problem_).n;
  return args;
}

MatmulReduceScatterArgs RankOp::scatter_args() const {
  MatmulReduceScatterArgs args;
  args.a = std::span(&a_.view(), 1);
  args.b = b_views_;
  args.scatter_dim = problem_.dim;
  args.reduce_op = problem_.reduce;
  if (!out_views_.empty()) args.out = out_views_[0];
  if (problem_.bias) args.bias = bias_views_[0];
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
  const auto each = [](const std::vector<harness::GuardedTensor>& tensors) {
    for (const harness::GuardedTensor& tensor : tensors) tensor.download();
  };
  a_.download();
  each(b_);
  each(bias_);
  download_results();
}

void RankOp::download_results() const {
  for (const harness::GuardedTensor& out : out_) out.download();
  if (problem_.gathered) gathered_.download();
}

bool RankOp::guards_intact() const {
  const auto intact = [](const harness::GuardedTensor& tensor) { return tensor.guards_are_whole(); };
  return intact(a_) && std::all_of(b_.begin(), b_.end(), intact) &&
         std::all_of(bias_.begin(), bias_.end(), intact) && std::all_of(out_.begin(), out_.end(), intact) &&
         (!problem_.gathered || gathered_.guards_are_whole());
}

}  // namespace tandem::cli
