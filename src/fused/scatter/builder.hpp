#pragma once

#include <cstdint>
#include <vector>

#include "fused/scatter/call.hpp"
#include "fused/scatter/problem.hpp"
#include "program/bindings.hpp"
#include "program/builder.hpp"

namespace tandem::fused {

/// The roots of a scatter's program that the call binds.
struct ScatterRoots {
  /// Of product j.
  struct PerProduct {
    program::RootId front = program::kNone;  ///< a, the scattered dim in front unless that is the last
    program::RootId a = program::kNone;      ///< front, or a copy in scratch
    program::RootId copy = program::kNone;  ///< that copy, with front's sizes; of an all-reduce a is a matrix
    program::RootId b = program::kNone;
    program::RootId a_scale = program::kNone;
    program::RootId b_scale = program::kNone;
    program::RootId bias = program::kNone;
    program::RootId result_scale = program::kNone;
  };
  std::vector<PerProduct> products;
  program::RootId out = program::kNone;        ///< as front; of scattered columns and of all-reduces a matrix
  program::RootId out_units = program::kNone;  ///< of scattered columns: [columns, rows] in the same memory
  program::RootId bias = program::kNone;
  program::RootId product = program::kNone;  ///< as front
};

/// Writes a scatter's program down: its roots, and the steps that several algorithms have.
class ScatterBuilder {
 public:
  ScatterBuilder(const ScatterProblem& problem, Algorithm algorithm, int rank, int num_lanes);

  [[nodiscard]] const ScatterProblem& problem() const { return problem_; }
  [[nodiscard]] program::Builder& steps() { return builder_; }
  [[nodiscard]] ScatterRoots& roots() { return roots_; }
  // Of the whole group, as ranks are where they say whose rows something is.
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int world() const { return problem_.world; }
  [[nodiscard]] Shard own() const { return problem_.part_of(rank()); }
  [[nodiscard]] std::int64_t unit_bytes() const {
    return problem_.unit_elements() * size_bytes(problem_.partials);
  }

  /// f32 scratch in which the products of at most so many units are summed on one lane, where they are.
  void add_sums(program::Lane lane, std::int64_t most_units);
  /// Copies those a's whose rows cannot be read as a matrix.
  void copy_operands();
  /// This rank's own sum of products for one part of the scattered dim, into `to`, which has the part's
  /// sizes: added up in f32 in the order of the list, rounded once; and kept if that is wanted.
  void make_partial(program::Lane lane, Shard part, const program::Operand& to,
                    program::Builder::Label label = {}, int peer = -1, int slot = -1);
  /// The products for one part, added up in f32 in `sum`; of scaled ones the last rounds into `to`.
  void make_sums(program::Lane lane, Shard part, const program::Operand& sum, const program::Operand& to,
                 program::Builder::Label label = {}, int peer = -1, int slot = -1);
  /// (a_j * b_j * scales + bias_j) * result_scale_j for one part, but where it goes.
  [[nodiscard]] program::Product product(int j, Shard part) const;
  /// As make_partial(), without f32 scratch: the first product adds `addend`, which may be absent, before it
  /// is rounded, and each further one what is in `to`. Nothing is kept. Where the problem is batch
  /// invariant there is no `addend`, and the sum is rounded once, as in make_partial(): by add_sums().
  void add_products(program::Lane lane, Shard part, const program::Operand& to,
                    const program::Operand& addend, program::Builder::Label label = {}, int peer = -1,
                    int slot = -1);
  /// As make_partial(), but for what is kept.
  void make_rounded(program::Lane lane, Shard part, const program::Operand& to,
                    program::Builder::Label label = {}, int peer = -1, int slot = -1);
  /// Keeps a partial where the caller wants its rank's product.
  void keep(program::Lane lane, Shard part, const program::Operand& partial);
  /// The units of the own part that out has.
  [[nodiscard]] program::Operand own_out(Shard units) const;
  /// The bias of the sum for this rank's columns.
  [[nodiscard]] program::Operand own_bias() const;

  [[nodiscard]] program::Program take() { return builder_.take(); }

 private:
  [[nodiscard]] program::Operand rows_of(program::RootId root, Shard part) const;
  [[nodiscard]] program::Operand columns_of(program::RootId root, int dim, Shard part) const;

  const ScatterProblem& problem_;
  int rank_;
  program::Builder builder_;
  ScatterRoots roots_;
  std::int64_t sums_at_[2] = {};
};

/// Binds the tensors of one call, and what lies in scratch memory by the sizes that it has.
void bind(const ScatterCall& call, const ScatterProblem& problem, const ScatterRoots& roots,
          program::Bindings& bindings);

}  // namespace tandem::fused
