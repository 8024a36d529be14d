#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/symm/handle.hpp>

namespace tandem::coll {

/// What the ranks agree on before a collective. The whole is the output of a gather or the input of a
/// scatter; a part of it is one rank's shard or chunk.
struct Problem {
  std::int64_t whole_bytes = 0;
  std::int64_t part_bytes = 0;  ///< of the largest part
  bool has_equal_parts = true;
  int world = 1;
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
  /// The same on every rank: it looks at what they have agreed on and at the kind of device only.
  Answer (*can_run)(const Problem& problem, const Device& device);
  /// Makes what the group needs for it at its first call, which may block the host. Collective; the answer is
  /// the same on every rank. Null: there is nothing to make, and can_run() alone decides.
  Result<Answer> (*connect)(const Problem& problem, Group& group, Stream& stream) = nullptr;
  /// What run() needs of each rank's workspace.
  std::int64_t (*workspace_bytes)(const Problem& problem);
  /// By a model, which looks at `problem` only. Null: there is none.
  double (*predicted_us)(const Problem& problem) = nullptr;
  /// Enqueues, and ends with that barrier where peers use the workspace. `args` are checked and agreed on,
  /// and there is at least one element.
  Result<void> (*run)(const Args& args, const EndBarrier& end, Stream& stream);
};
using GatherAlgorithm = Algorithm<AllGatherArgs>;
using ScatterAlgorithm = Algorithm<ReduceScatterArgs>;

/// Best first. The first that can run and connects is taken, and the last one always does.
template <class Args>
using Algorithms = std::span<const Algorithm<Args>>;
struct AlgorithmLists {
  Algorithms<AllGatherArgs> gather;
  Algorithms<ReduceScatterArgs> scatter;
};
/// Those of the device's backend; those for any device where it has none.
[[nodiscard]] AlgorithmLists algorithms_of(const Device& device);

// For any device: gather_by_copies.cpp and published_scatters.cpp.
extern const GatherAlgorithm kGatherByCopies;
extern const ScatterAlgorithm kScatterInPlace;
extern const ScatterAlgorithm kScatterByCopies;

// For entries.
[[nodiscard]] inline Answer always(const Problem& /*problem*/, const Device& /*device*/) {
  return Answer::yes();
}
[[nodiscard]] inline std::int64_t one_part_bytes(const Problem& problem) {
  return problem.part_bytes;
}

}  // namespace tandem::coll
