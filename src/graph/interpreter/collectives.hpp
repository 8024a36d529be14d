#pragma once

#include <optional>
#include <tandem/coll/collectives.hpp>

#include "graph/interpreter/call.hpp"

namespace tandem::graph::interpreter {

/// Those among which a collective runs: the ranks that run the program, or another group's, of which this
/// rank is the first, and each of which has the same value as this rank.
class Team {
 public:
  explicit Team(const Ranks& ranks) : ranks_(ranks) {}
  Team(const Ranks& ranks, std::int64_t num_alike) : ranks_(ranks), num_alike_(num_alike) {}

  [[nodiscard]] std::int64_t size() const { return is_alike() ? num_alike_ : ranks_.group.size(); }
  [[nodiscard]] std::int64_t rank() const { return is_alike() ? 0 : ranks_.group.rank(); }
  [[nodiscard]] bool is_alike() const { return num_alike_ > 0; }
  [[nodiscard]] Group& group() const { return ranks_.group; }
  [[nodiscard]] Stream& stream() const { return ranks_.stream; }

 private:
  const Ranks& ranks_;
  std::int64_t num_alike_ = 0;
};

// Serial collectives along any dim: every rank blocks until its result is there.

/// The shards of all ranks along `dim`, each as large as this rank's. With `size`, the first so many of that.
[[nodiscard]] Result<HostTensor> gather(const HostTensor& shard, int dim, const Team& team,
                                        std::optional<std::int64_t> size = std::nullopt);
/// This rank's part, along `dim`, of the sum or mean over the ranks: f32 sums in rank order, one rounding.
/// A short part is padded().
[[nodiscard]] Result<HostTensor> reduce_scatter(const HostTensor& partial, int dim, coll::ReduceOp op,
                                                const Team& team);

/// A part along `dim` with rows of zeros behind it, as many as a full shard of `size` has.
[[nodiscard]] Result<HostTensor> padded(const HostTensor& part, int dim, std::int64_t size, const Team& team);

/// The same of all of it, for every rank.
[[nodiscard]] Result<HostTensor> all_reduce(const HostTensor& partial, coll::ReduceOp op, const Team& team);

/// "sum" or "avg". Errors: kUnsupported for another.
[[nodiscard]] Result<coll::ReduceOp> reduce_op_of(std::string_view name);
/// Refuses a fused op of another group than the program's.
[[nodiscard]] Result<void> check_group(const Call& call, std::size_t group);

}  // namespace tandem::graph::interpreter
