#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/base/dtype.hpp>
#include <tandem/base/shape.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/symm/handle.hpp>

#include "harness/guarded_tensor.hpp"
#include "harness/reference.hpp"
#include "session.hpp"

namespace tandem::cli {

/// The collectives that commands know by their names.
enum class CollectiveOp : std::uint8_t { kLowContentionAllGather, kLowContentionReduceScatter };
inline constexpr CollectiveOp kCollectives[] = {CollectiveOp::kLowContentionAllGather,
                                                CollectiveOp::kLowContentionReduceScatter};
[[nodiscard]] std::string_view to_string(CollectiveOp op);
[[nodiscard]] std::optional<CollectiveOp> collective_named(const std::string& name);
/// "low_contention_all_gather, low_contention_reduce_scatter".
[[nodiscard]] std::string names_of_collectives();

/// A collective of generated or given tensors. Of a gather `sizes` are the output's, of a scatter each rank's
/// input's.
struct CollectiveCase {
  CollectiveOp op = CollectiveOp::kLowContentionAllGather;
  Dims sizes;
  int dim = 0;
  DType dtype = DType::kF32;
  coll::ReduceOp reduce = coll::ReduceOp::kSum;  ///< of a scatter
  bool symmetric = false;                        ///< the input is, and a gather reads it in place
  std::uint64_t seed = 1;

  [[nodiscard]] bool gathers() const { return op == CollectiveOp::kLowContentionAllGather; }
  [[nodiscard]] Shard part_of(int rank, int world) const { return shard_of(sizes[dim], world, rank); }
  [[nodiscard]] Dims part_sizes(int rank, int world) const;
};
/// "low_contention_all_gather bf16 [29, 37] along 1 over 3 ranks, symmetric".
[[nodiscard]] std::string to_text(const CollectiveCase& c, int world);

/// One rank's tensors of a case, and its calls.
class RankCollective {
 public:
  RankCollective(const CollectiveCase& c, const Session& session);

  /// Generated values of this rank's input, or those of `values`, in host memory.
  void fill() const;
  void fill(const TensorView& values) const;
  /// Poisons the output.
  void poison() const { output_.poison(); }
  /// Enqueues the op.
  void enqueue(Stream& stream) const;
  /// Enqueues all_gather or reduce_scatter of the same tensors; needs dim 0.
  void enqueue_ordinary(Stream& stream) const;
  /// Compares the output of a finished call of generated values, bit for bit.
  void check(harness::Wrong& wrong) const;
  /// The output on the host, of a finished call.
  [[nodiscard]] const TensorView& result() const;

 private:
  [[nodiscard]] Dims input_sizes() const;
  /// Of generated values: what the output has to be.
  [[nodiscard]] Tensor expected() const;

  CollectiveCase case_;
  const Session& session_;
  harness::GuardedTensor input_;
  harness::GuardedTensor output_;
  Tensor symmetric_;
  std::shared_ptr<symm::Handle> handle_;
};

}  // namespace tandem::cli
