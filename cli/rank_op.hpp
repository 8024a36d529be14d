#pragma once

#include <span>
#include <vector>

#include "harness/guarded_tensor.hpp"
#include "harness/operands.hpp"
#include "harness/problem.hpp"
#include "session.hpp"

namespace tandem::cli {

// Enqueue the op of these arguments.
[[nodiscard]] Result<OpReport> run(const AllGatherMatmulArgs& args, Group& group, Stream& stream);
[[nodiscard]] Result<OpReport> run(const MatmulReduceScatterArgs& args, Group& group, Stream& stream);
[[nodiscard]] Result<OpReport> run(const MatmulAllReduceArgs& args, Group& group, Stream& stream);
[[nodiscard]] Result<OpReport> run(const AllGatherScaledMatmulArgs& args, Group& group, Stream& stream);
[[nodiscard]] Result<OpReport> run(const ScaledMatmulReduceScatterArgs& args, Group& group, Stream& stream);
[[nodiscard]] Result<OpReport> run(const ScaledMatmulAllReduceArgs& args, Group& group, Stream& stream);

/// One rank's part of a problem: its shards of the inputs, its outputs, and the call of the op.
class RankOp {
 public:
  /// Allocates and reads this rank's shards.
  RankOp(const harness::Problem& problem, const Session& session, const harness::OperandSource& source);

  /// Enqueues the op; call Session::finish() and download() before the outputs are read.
  OpReport call(Algorithm algorithm);
  /// What call() would report, without doing it.
  [[nodiscard]] OpReport plan(Algorithm algorithm) const;

  [[nodiscard]] const harness::Problem& problem() const { return problem_; }
  [[nodiscard]] const TensorView& a() const { return operands_.a().view(); }
  [[nodiscard]] std::span<const TensorView> b() const { return operands_.b(); }
  [[nodiscard]] const harness::RankOperands& operands() const { return operands_; }
  [[nodiscard]] std::span<const harness::GuardedTensor> outputs() const { return out_; }
  /// All of a, if the problem keeps it.
  [[nodiscard]] const harness::GuardedTensor* gathered() const {
    return problem_.gathered ? &gathered_ : nullptr;
  }

  /// Brings what a finished call has written, and the canaries, to where the host sees them.
  void download() const;
  /// The results only: for large operands that are checked often.
  void download_results() const;
  /// Poisons whatever the next call has to write.
  void poison() const;
  /// Whether nothing beside the tensors was written.
  [[nodiscard]] bool guards_intact() const;

 private:
  void allocate_outputs();
  /// `use` of the arguments of the op that the problem says, with the outputs that there are.
  template <class Use>
  auto with_args(Use use) const;
  template <class GatherArgs>
  [[nodiscard]] GatherArgs completed_gather(GatherArgs args) const;
  template <class ReduceArgs>
  [[nodiscard]] ReduceArgs completed_reduce(ReduceArgs args) const;

  harness::Problem problem_;
  const Session& session_;
  harness::RankOperands operands_;
  std::vector<harness::GuardedTensor> out_;
  harness::GuardedTensor gathered_;
  std::vector<TensorView> out_views_;
};

}  // namespace tandem::cli
