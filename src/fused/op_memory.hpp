#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/event.hpp>
#include <tandem/fused/report.hpp>
#include <tandem/gemm/mm.hpp>
#include <vector>

#include "base/lru_cache.hpp"
#include "fused/native_line.hpp"
#include "fused/replays.hpp"
#include "pipeline/schedules.hpp"

namespace tandem::fused {

[[nodiscard]] std::uint64_t next_plan_id();

/// Products of a plan that prepare_once() has seen to.
struct PreparedProducts {
  std::uint64_t stream = 0;  ///< its id
  std::uint64_t layout = 0;  ///< LayoutKey's, of the call
  friend bool operator==(const PreparedProducts&, const PreparedProducts&) = default;
};

/// What is decided once a problem, and what has become of its calls. Reports point to the texts and share the
/// plan: a group forgets it when others take its place.
struct OpPlan {
  /// A number of its own, which no other plan of the process ever has: recordings of a plan's calls are found
  /// by it, and by no other plan that has its address later.
  std::uint64_t id = next_plan_id();
  Algorithm algorithm = Algorithm::kSerial;
  std::string reason;
  std::string key;
  std::string label;        ///< for profilers and traces: "all_gather_matmul [4096,3584,8192] bf16 pipelined"
  std::string fingerprint;  ///< what the ranks compare
  std::vector<Candidate> candidates;
  std::optional<cost::Key> tune_key;              ///< none without plan_n, plan_k
  std::array<PreparedProducts, 2> prepared = {};  ///< the last first
  bool is_recordable = true;                      ///< no call of it was refused as a recording
  /// Of workspace, that a recording of its calls needs where it runs another algorithm.
  std::int64_t recorded_workspace_bytes = 0;
  int recordings_prepared = 0;  ///< times that what such a recording needs was made
};

/// gemm::mm, or gemm::prepare: what is done with each product of an op.
using ProductStep = Result<void> (*)(const gemm::MmArgs& args, Stream& stream);

/// A plan in use, which stays though its group forgets it.
using SharedPlan = std::shared_ptr<OpPlan>;

/// Plans by problem, of those that were used last; a look-up allocates nothing.
template <class Problem>
class PlanCache {
 public:
  explicit PlanCache(const Group& group) : plans_(static_cast<std::size_t>(group.config().max_plans)) {}
  /// Null if there is none.
  [[nodiscard]] SharedPlan find(const Problem& problem) {
    const SharedPlan* const found = plans_.find(problem);
    return found == nullptr ? nullptr : *found;
  }
  SharedPlan insert(const Problem& problem, OpPlan plan) {
    return plans_.insert(problem, std::make_shared<OpPlan>(std::move(plan)));
  }
  [[nodiscard]] std::size_t size() const { return plans_.size(); }

 private:
  struct HashProblem {
    std::size_t operator()(const Problem& problem) const { return hash_of(problem); }
  };
  LruCache<Problem, SharedPlan, HashProblem> plans_;
};

/// Scratch memory of a group's ops on one device. Ops of a group run one after the other, so all share it. It
/// grows and never shrinks; an outgrown block stays, because ops that are still queued use it.
class Scratch {
 public:
  [[nodiscard]] Result<void> reserve(std::int64_t num_bytes, Group& group, Device& device);
  [[nodiscard]] std::byte* data() const;

 private:
  std::vector<Buffer> blocks_;
};

/// Hands out aligned pieces of a block one after the other; without a block it only counts.
class Carver {
 public:
  explicit Carver(std::byte* block = nullptr) : block_(block) {}
  /// Contiguous.
  [[nodiscard]] TensorView take(const Dims& sizes, DType dtype, DeviceId device);
  [[nodiscard]] std::int64_t used_bytes() const { return used_bytes_; }

 private:
  std::byte* block_;
  std::int64_t used_bytes_ = 0;
};

/// Marks of the slices of a gathered last dim; see k_slices.hpp.
struct SliceMarks {
  std::vector<std::unique_ptr<Event>> arrived;  ///< by source
  std::vector<char> is_here;                    ///< by source: its mark is in a stream
  std::unique_ptr<Event> summed;
};

/// Calls that may come again, and two streams on which they are recorded and no op runs.
struct RecordedCalls {
  const Device* device = nullptr;  ///< compared only
  Replays replays = {};
  std::unique_ptr<Stream> stream = {};
  std::unique_ptr<Stream> side = {};
};

/// What a group keeps for the fused ops on one device.
struct DeviceMemory {
  explicit DeviceMemory(DeviceId of) : device(of) {}
  /// A fault that is left in the side stream is the group's, which has told it.
  ~DeviceMemory() {
    if (side) static_cast<void>(side->synchronize());
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  DeviceId device;
  Scratch scratch;
  SliceMarks marks;
  std::unique_ptr<NativeLine> native;  ///< see native_line()
  std::unique_ptr<Stream> side;        ///< of the group's ops that overlap, see open_side_stream()
  RecordedCalls recorded;
};
/// Made at first use. The fused ops share it.
[[nodiscard]] DeviceMemory& device_memory(Group& group, DeviceId device);

/// The line of the group's native gathers on a device, made at first use.
[[nodiscard]] NativeLine& native_line(Group& group, DeviceId device,
                                      std::uint32_t longest = NativeLine::kLongest);

/// Makes the stream that ops which overlap use beside the caller's; once a group and device.
[[nodiscard]] Result<void> open_side_stream(Group& group, Device& device);
/// `current` beside the stream that open_side_stream() made, or that belongs to recording_stream().
[[nodiscard]] pipeline::StreamPair stream_pair(Group& group, Stream& current);

/// The group's plans for one op; `key` names the op.
template <class Problem>
[[nodiscard]] PlanCache<Problem>& plans_of(Group& group, std::string_view key) {
  return group.extension<PlanCache<Problem>>(
      key, [&group] { return std::make_shared<PlanCache<Problem>>(group); });
}

}  // namespace tandem::fused
