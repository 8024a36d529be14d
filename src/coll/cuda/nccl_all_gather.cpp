#include <cuda_runtime_api.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/try.hpp"
#include "bootstrap/told_by_all.hpp"
#include "coll/cuda/algorithms.hpp"
#include "coll/cuda/gpus_of_ranks.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "transport/cuda/nccl_communicator.hpp"

namespace tandem::coll::cuda {
namespace {

using transport::cuda::NcclApi;
using transport::cuda::NcclCommunicator;

/// A group's communicator. It is aborted once the group is poisoned. Streams keep it for a while after its
/// group's end, which calls end().
class GroupCommunicator final : public tandem::cuda::StreamWatch {
 public:
  GroupCommunicator(const NcclApi& api, Group& group, int gpu)
      : api_(api), communicator_(api, gpu, group.rank()), group_(&group) {}

  [[nodiscard]] Result<void> init(const ncclUniqueId& id) {
    return communicator_.init(id, group_->size(), Deadline::after(group_->config().rendezvous_timeout),
                              [this] { return group_->status(); });
  }
  /// Every rank's `num_bytes` bytes, in rank order.
  [[nodiscard]] Result<void> all_gather(const void* from, void* to, std::size_t num_bytes,
                                        cudaStream_t stream) {
    return communicator_.enqueue(
        "all_gather",
        [&](ncclComm_t comm) { return api_.all_gather(from, to, num_bytes, ncclInt8, comm, stream); },
        Deadline::after(group_->config().op_timeout), [this] { return group_->status(); });
  }
  [[nodiscard]] Result<void> status() override {
    const std::lock_guard lock(mutex_);
    if (group_ == nullptr) return {};
    if (const auto state = communicator_.state(); !state) group_->poison(state.error(), -1);
    auto status = group_->status();
    if (!status) communicator_.abort();
    return status;
  }
  /// Nothing uses the group from here on.
  void end() {
    const std::lock_guard lock(mutex_);
    communicator_.end(Deadline::after(group_->config().op_timeout), [this] { return group_->status(); });
    group_ = nullptr;
  }

 private:
  const NcclApi& api_;
  NcclCommunicator communicator_;
  std::mutex mutex_;
  Group* group_;  ///< null: the group has ended
};

/// Null where NCCL is not used.
using Communicator = std::shared_ptr<GroupCommunicator>;

struct CommunicatorOfDevice {
  DeviceId device;
  Communicator communicator;
};
using CommunicatorsOfGroup = std::vector<CommunicatorOfDevice>;

/// What the ranks tell each other before a communicator is made.
struct Hello {
  Place place;
  int version = 0;  ///< of the library; 0: there is none
};

/// All ranks come to the same answer: the same library everywhere, and no two ranks on one GPU, which NCCL
/// refuses.
bool can_connect(const std::vector<Hello>& hellos) {
  std::vector<Place> places;
  for (const Hello& hello : hellos) {
    if (hello.version == 0 || hello.version != hellos[0].version) return false;
    places.push_back(hello.place);
  }
  return has_each_its_own(places);
}

/// Collective.
Result<Communicator> connect(Group& group, int gpu) {
  const auto api = NcclApi::load(group.config());
  Hello hello;
  TANDEM_ASSIGN(hello.place, place_of(gpu));
  hello.version = api ? (*api)->version : 0;
  TANDEM_ASSIGN(const auto hellos, bootstrap::told_by_all(hello, group, "NCCL: who is where"));
  if (!can_connect(hellos)) return nullptr;

  ncclUniqueId id = {};
  if (group.rank() == 0) TANDEM_TRY((*api)->check("id", (*api)->get_unique_id(&id)));
  TANDEM_ASSIGN(const auto ids, bootstrap::told_by_all(id, group, "NCCL: id"));
  auto communicator = std::make_shared<GroupCommunicator>(**api, group, gpu);
  const auto made = communicator->init(ids[0]);
  // One that fails for one rank is of no use to the others. They then gather without it.
  TANDEM_ASSIGN(const auto all_made, bootstrap::told_by_all<int>(made ? 1 : 0, group, "NCCL: ready"));
  for (const int one : all_made) {
    if (one == 0) return nullptr;
  }
  return communicator;
}

/// The group's communicator on this device; null where there is none.
Result<Communicator> communicator_of(Group& group, const Stream& stream) {
  auto& known =
      group.extension<CommunicatorsOfGroup>([] { return std::make_shared<CommunicatorsOfGroup>(); });
  const DeviceId device = stream.device().id();
  for (const CommunicatorOfDevice& one : known) {
    if (one.device == device) return one.communicator;
  }
  if (stream.is_capturing()) return nullptr;
  TANDEM_ASSIGN(auto communicator, connect(group, device.index));
  if (communicator) group.before_end([communicator] { communicator->end(); });
  known.push_back({device, communicator});
  return communicator;
}

Answer can_run(const Problem& problem, const Device&) {
  if (problem.world == 1) return Answer::no("one rank has no peers");
  return problem.has_equal_parts ? Answer::yes() : Answer::no("the shards are not equal");
}

Result<Answer> connect(const Problem&, Group& group, Stream& stream) {
  TANDEM_ASSIGN(const Communicator communicator, communicator_of(group, stream));
  return communicator ? Answer::yes() : Answer::no("the group has no communicator");
}

/// Behind a barrier of the ranks: NCCL's kernels have no deadline, so a rank that does not come has to be
/// noticed before.
Result<void> run(const GatherCall& args, const EndBarrier& end, Stream& stream) {
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, "all_gather"));
  TANDEM_ASSIGN(const Communicator communicator, communicator_of(end.group, stream));
  // A communicator that a graph knows of ends only after it, and a group keeps such graphs to its end.
  if (on->is_recorded_by_library())
    return fail(ErrorCode::kUnsupported, "all_gather: by NCCL, which is called anew every time");
  TANDEM_TRY(end.workspace.barrier(stream, end.channel));
  on->add_watch(communicator);
  return communicator->all_gather(args.input.data, args.output.data,
                                  static_cast<std::size_t>(args.input.size_bytes()), on->native());
}

}  // namespace

const GatherAlgorithm kGatherByNccl = {.name = "nccl",
                                       .can_run = &can_run,
                                       .connect = &connect,
                                       .workspace_bytes = &one_part_bytes,
                                       .predicted_us = &gather_us,
                                       .run = &run};

}  // namespace tandem::coll::cuda
