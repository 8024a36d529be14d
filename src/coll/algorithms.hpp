#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

#include "cost/machine.hpp"

namespace tandem::coll {

/// What the ranks agree on before a collective. The whole is the output of a gather or the input of a scatter
/// or an all-reduce; a part of it is one rank's shard or chunk.
struct Problem {
  std::int64_t whole_bytes = 0;
  std::int64_t part_bytes = 0;  ///< of the largest part
  bool has_equal_parts = true;
  int world = 1;
  /// Something runs beside the collective: only algorithms that leave the multiprocessors to it are asked.
  bool runs_beside = false;
  bool is_read_in_place = false;  ///< the peers read the parts of a gather in the caller's memory
  // Of an all-reduce, whose output may have another type.
  std::int64_t element_bytes = 1;      ///< of its input
  std::int64_t out_element_bytes = 1;  ///< of its output
};

/// A gather as algorithms see it.
struct GatherCall {
  TensorView input;
  TensorView output;
  int dim = 0;  ///< another one, and other strides than contiguous ones, only where Problem::runs_beside
  /// Where the input lies in EndBarrier::workspace, on every rank. Else it is copied to its start.
  std::optional<std::int64_t> symmetric_at_bytes = {};
};

/// A scatter as algorithms see it.
struct ScatterCall {
  TensorView input;
  TensorView output;
  ReduceOp op = ReduceOp::kSum;
  std::optional<TensorView> bias = {};
  int dim = 0;  ///< as in GatherCall
};

/// A barrier() beside a kernel: at the kernel's own end, or before a library's. `channel` + 1 is for a
/// barrier before a kernel, where that takes a kernel of its own.
struct EndBarrier {
  symm::Handle& workspace;
  Group& group;
  int channel = 0;
};

/// Whether an algorithm can run, and if not, why. Every call asks, so the reason is not allocated as that of
/// Support is.
struct Answer {
  const char* why_not = nullptr;  ///< a literal

  [[nodiscard]] static Answer yes() { return {}; }
  [[nodiscard]] static Answer no(const char* why) { return {why}; }
  explicit operator bool() const { return why_not == nullptr; }
};

/// One way to run a collective. All that is known of an algorithm stands in one of these.
template <class Args>
struct Algorithm {
  std::string_view name;
  /// Whether copy engines move all that travels, and what is left to multiprocessors takes few of them.
  bool leaves_multiprocessors = false;
  /// The same on every rank: it looks at what they have agreed on and at the kind of device only.
  Answer (*can_run)(const Problem& problem, const Device& device);
  /// Makes what the group needs for it at its first call, which may block the host. Collective; the answer is
  /// the same on every rank. Null: there is nothing to make, and can_run() alone decides.
  Result<Answer> (*connect)(const Problem& problem, Group& group, Stream& stream) = nullptr;
  /// What run() needs of each rank's workspace.
  std::int64_t (*workspace_bytes)(const Problem& problem, const Device& device);
  /// By a model, which looks at these two only. Null: there is none.
  double (*predicted_us)(const Problem& problem, const cost::GpuRates& gpu) = nullptr;
  /// Enqueues, and ends with that barrier where peers use the workspace. `args` are checked and agreed on,
  /// and there is at least one element.
  Result<void> (*run)(const Args& args, const EndBarrier& end, Stream& stream);
};
using GatherAlgorithm = Algorithm<GatherCall>;
using ScatterAlgorithm = Algorithm<ScatterCall>;
using AllReduceAlgorithm = Algorithm<AllReduceArgs>;

/// Best first. The first that can run and connects is taken, and the last one always does.
template <class Args>
using Algorithms = std::span<const Algorithm<Args>>;
struct AlgorithmLists {
  Algorithms<GatherCall> gather;
  Algorithms<ScatterCall> scatter;
  Algorithms<AllReduceArgs> all_reduce;
};
/// Those of the device's backend; those for any device where it has none.
[[nodiscard]] AlgorithmLists algorithms_of(const Device& device);

/// Whether an algorithm of a list is one for this problem.
template <class Args>
[[nodiscard]] bool fits(const Algorithm<Args>& algorithm, const Problem& problem, const Device& device) {
  if (problem.runs_beside && !algorithm.leaves_multiprocessors) return false;
  return static_cast<bool>(algorithm.can_run(problem, device));
}

/// Enough for whichever of a list runs: the first that has nothing to connect runs at the latest.
template <class Args>
[[nodiscard]] std::int64_t workspace_bytes(Algorithms<Args> all, const Problem& problem,
                                           const Device& device) {
  std::int64_t num_bytes = 0;
  for (const Algorithm<Args>& algorithm : all) {
    if (!fits(algorithm, problem, device)) continue;
    num_bytes = std::max(num_bytes, algorithm.workspace_bytes(problem, device));
    if (algorithm.connect == nullptr) break;
  }
  return num_bytes;
}

/// Whole tensors in parts along `dim`.
[[nodiscard]] Problem problem_of(const TensorView& whole, int dim, int world);

// Enqueues by the first of the device's list that fits and connects. There is at least one element.
[[nodiscard]] Result<void> run_first(const GatherCall& call, const Problem& problem, const EndBarrier& end,
                                     Stream& stream);
[[nodiscard]] Result<void> run_first(const ScatterCall& call, const Problem& problem, const EndBarrier& end,
                                     Stream& stream);

// For any device: gather_by_copies.cpp, scatter_in_place.cpp, scatter_by_copies.cpp and all_reduces.cpp.
extern const GatherAlgorithm kGatherByCopies;
extern const ScatterAlgorithm kScatterInPlace;
extern const ScatterAlgorithm kScatterByCopies;
extern const AllReduceAlgorithm kAllReduceOfWholes;
extern const AllReduceAlgorithm kAllReduceOfParts;

// For entries.
[[nodiscard]] inline Answer always(const Problem& /*problem*/, const Device& /*device*/) {
  return Answer::yes();
}
[[nodiscard]] inline std::int64_t one_part_bytes(const Problem& problem, const Device& /*device*/) {
  return problem.part_bytes;
}

}  // namespace tandem::coll
