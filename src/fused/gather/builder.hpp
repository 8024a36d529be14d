#pragma once

#include <optional>
#include <vector>

#include "base/function_ref.hpp"
#include "fused/gather/call.hpp"
#include "fused/gather/problem.hpp"
#include "program/bindings.hpp"
#include "program/builder.hpp"

namespace tandem::fused {

/// The roots of a gather's program; which ones there are depends on the algorithm.
struct GatherRoots {
  /// Of a tensor that travels.
  struct Travel {
    program::RootId front = program::kNone;     ///< the caller's shard, the gathered dim in front
    program::RootId shard = program::kNone;     ///< the same, contiguous: front, or a copy in scratch
    program::RootId whole = program::kNone;     ///< the caller's tensor for all of it
    program::RootId gathered = program::kNone;  ///< all of it: whole, scratch, or a slot of the inbox
    /// The shard as [units, unit], or for native as rows of k; bound to the caller's memory unless is_copied.
    program::RootId flat = program::kNone;
    std::vector<program::RootId> slices = {};  ///< of a gathered last dim: one a rank, contiguous
  };
  struct PerB {
    program::RootId b = program::kNone;
    program::RootId out = program::kNone;  ///< the gathered dim in front
    program::RootId bias = program::kNone;
    program::RootId b_scale = program::kNone;
    program::RootId result_scale = program::kNone;
    program::RootId sum = program::kNone;  ///< f32, of the slices of a gathered last dim
  };
  std::vector<Travel> travels;
  std::vector<PerB> per_b;
  program::RootId a_scale = program::kNone;   ///< unless it travels, or is made
  program::RootId in_place = program::kNone;  ///< a where peers read it
};

/// Which part of the gathered dim is in place.
struct Arrived {
  Shard part;             ///< of a
  int source = -1;        ///< whose; -1: all ranks'
  bool is_chunk = false;  ///< `part` is less than all that the source has
};

/// Writes a gather's program down: its roots, and the steps that several algorithms have.
class GatherBuilder {
 public:
  GatherBuilder(const GatherProblem& problem, Algorithm algorithm, int rank, int num_lanes);

  [[nodiscard]] const GatherProblem& problem() const { return problem_; }
  [[nodiscard]] program::Builder& steps() { return builder_; }
  [[nodiscard]] GatherRoots& roots() { return roots_; }
  // Of the whole group, as ranks are where they say whose rows something is.
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world() const { return problem_.world; }
  [[nodiscard]] std::span<const Travelling> tensors() const { return tensors_; }
  [[nodiscard]] const GatherRoots::Travel& travel(int i) const {
    return roots_.travels[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] Arrived from(int source) const { return {problem_.part_of(source), source}; }
  [[nodiscard]] Arrived all() const { return {{0, problem_.total()}, -1}; }

  // Roots.
  /// Where all ranks' shards come together: the caller's tensor, or scratch.
  void add_gathered();
  /// The shard of tensor i in another shape.
  program::RootId add_flat(int i, const Dims& sizes);
  /// From here on products read the own shard of a there.
  void move_own(const program::Operand& own) { own_ = own; }
  [[nodiscard]] program::Operand own_shard(int i) const;

  // Steps.
  /// Brings shards whose strides do not fit into order.
  void copy_shards();
  /// What has arrived of travelling tensor i.
  [[nodiscard]] program::Operand arrived(int i, const Arrived& arrived) const;
  using Label = program::Builder::Label;
  /// out_i's units of what has arrived, for every b that `takes` says.
  using Takes = FunctionRef<bool(int i)>;
  void multiply(program::Lane lane, const Arrived& arrived, Label label, Takes takes);
  void multiply(program::Lane lane, const Arrived& arrived, Label label = {}) {
    multiply(lane, arrived, label, [](int) { return true; });
  }
  /// Slice `source` of a gathered last dim is in place on `lane`: it is kept, and added in rank order.
  void slice_arrived(program::Lane lane, int source);
  /// All slices are added: rounds plain sums into the outputs.
  void finish_slices();
  /// Copies the own shards that the caller keeps.
  void keep_own(program::Lane lane, Label label);

  [[nodiscard]] program::Program take() { return builder_.take(); }

 private:
  [[nodiscard]] program::Product product(int i, const Arrived& arrived) const;
  void add_slice(program::Lane lane, int source);
  [[nodiscard]] program::Operand quantized(program::RootId root, const Arrived& arrived) const;

  const GatherProblem& problem_;
  int rank_;
  program::Builder builder_;
  GatherRoots roots_;
  std::vector<Travelling> tensors_;
  std::optional<program::Operand> own_;
  // Where a is quantised behind its gather: all ranks', in scratch, the gathered dim in front.
  program::RootId quantized_ = program::kNone;
  program::RootId quantized_scale_ = program::kNone;
  // Of slices: on which lane each is, those not here yet at -1; and the first that is not in the sum.
  std::vector<program::Lane> slice_lane_;
  int next_slice_ = 0;
  program::Lane sum_lane_ = program::kCurrent;
};

/// Binds the tensors of one call, and what lies in scratch memory by the sizes that it has.
void bind(const GatherCall& call, const GatherProblem& problem, const GatherRoots& roots,
          program::Bindings& bindings);

}  // namespace tandem::fused
