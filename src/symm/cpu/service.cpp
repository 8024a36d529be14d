#include "symm/cpu/service.hpp"

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <tandem/cpu/launch.hpp>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cpu/word_wait.hpp"
#include "device/cpu/work_queue.hpp"
#include "symm/cpu/attach.hpp"
#include "symm/cpu/chunk_wait.hpp"
#include "symm/cpu/group_use.hpp"
#include "symm/cpu/handle.hpp"
#include "symm/cpu/joining.hpp"
#include "symm/cpu/link.hpp"
#include "symm/cpu/placed_peers.hpp"

namespace tandem::symm {

void attach_cpu(Device& device) {
  std::shared_ptr<Service> service = std::make_shared<cpu::CpuService>(device);
  device.attach(std::move(service));
}

namespace cpu {

Result<std::shared_ptr<Block>> CpuService::allocate(std::int64_t num_bytes) {
  TANDEM_TRY(home_.check("the device cpu:0"));
  device_.service<tandem::cpu::CpuFrees>()->free_unused();
  TANDEM_ASSIGN(std::shared_ptr<Segment> segment, Segment::create(num_bytes));
  return freed_behind_work(std::make_unique<CpuBlock>(device_, std::move(segment)),
                           device_.service<tandem::cpu::CpuFrees>());
}

Result<std::unique_ptr<Joining>> CpuService::join(std::shared_ptr<Block> block, std::int64_t pad_bytes) {
  TANDEM_ASSIGN(std::shared_ptr<Segment> pad, Segment::create(pad_bytes));
  auto data = std::static_pointer_cast<CpuBlock>(std::move(block))->segment();
  return std::make_unique<CpuJoining>(std::move(data), std::move(pad));
}

Result<Placed> CpuService::place(Group& group, std::vector<Record> records) {
  TANDEM_ASSIGN(std::shared_ptr<PlacedPeers> peers, PlacedPeers::make(group, std::move(records)));
  return Placed{std::make_shared<CpuBlock>(device_, peers->own_data()), peers};
}

Result<void> CpuService::enqueue_connect(Stream& stream, std::shared_ptr<Peers> peers) {
  return tandem::cpu::launch(stream, tandem::cpu::Task([peers = std::static_pointer_cast<PlacedPeers>(
                                                            std::move(peers))] { return peers->connect(); }));
}

Result<std::shared_ptr<Peers>> CpuService::make_reporter(Group& /*group*/) {
  return std::make_shared<Peers>();
}

std::shared_ptr<Handle> CpuService::make_handle(std::shared_ptr<Peers> peers, std::int64_t offset_bytes) {
  return std::make_shared<CpuHandle>(std::move(peers), offset_bytes);
}

Result<void> CpuService::enqueue_chunk_waits(const Handle& handle, const AwaitedChunks& chunks,
                                             Stream& stream) {
  return tandem::cpu::launch(stream,
                             tandem::cpu::Task([handle = handle.kernel_handle(), chunks]() -> Result<void> {
                               for (std::int64_t i = 0; i < chunks.count; ++i)
                                 TANDEM_TRY(await_chunk(handle, chunks, chunks.first + i, "await_chunks"));
                               return {};
                             }));
}

namespace {

/// A task that uses the peers of a handle while their group lives.
template <class Use>
Result<void> launch_use(Handle& handle, Stream& stream, Use use) {
  return tandem::cpu::launch(
      stream, tandem::cpu::Task([control = handle.kernel_handle().control, use]() -> Result<void> {
        auto& peers = *static_cast<Peers*>(control);
        const GroupUse group(peers);
        TANDEM_TRY(group.check());
        return use(peers);
      }));
}

}  // namespace

Result<void> CpuService::enqueue_word_write(Handle& handle, int peer, const TensorView& words,
                                            std::int64_t idx, std::uint32_t value, Stream& stream) {
  return launch_use(handle, stream, [peer, value, word = words.data_as<std::uint32_t>() + idx](Peers& peers) {
    return write_word(peers, peer, word, value);
  });
}

Result<void> CpuService::enqueue_crossing(Handle& handle, const Crossing& crossing, Stream& stream) {
  return tandem::cpu::launch(stream, tandem::cpu::Task([handle = handle.kernel_handle(), crossing] {
                               return cross_link(handle, crossing);
                             }));
}

namespace {

/// The group while it lives: queued work may outlast it. Whoever uses the group shares `mutex`.
struct LivingGroup {
  std::shared_mutex mutex;
  Group* group = nullptr;
};

/// The group's end of a LivingGroup.
class GroupLife {
 public:
  explicit GroupLife(Group& group) : living_(std::make_shared<LivingGroup>()) { living_->group = &group; }
  ~GroupLife() {
    const std::lock_guard lock(living_->mutex);  // waits for an agreement under way, which has a deadline
    living_->group = nullptr;
  }
  GroupLife(const GroupLife&) = delete;
  GroupLife& operator=(const GroupLife&) = delete;
  [[nodiscard]] static const std::shared_ptr<LivingGroup>& of(Group& group) {
    return group.extension<GroupLife>([&] { return std::make_shared<GroupLife>(group); }).living_;
  }

 private:
  std::shared_ptr<LivingGroup> living_;
};

/// An agreement as a stream's task. A stream skips what is behind a fault, but the other ranks wait for this
/// one under the number that it has taken: if it goes without having run, they hear of it.
class QueuedAgreement {
 public:
  QueuedAgreement(Group& group, std::uint64_t sequence, const bootstrap::Fingerprint& fingerprint,
                  std::chrono::milliseconds patience)
      : living_(GroupLife::of(group)), sequence_(sequence), fingerprint_(fingerprint), patience_(patience) {}
  QueuedAgreement(QueuedAgreement&&) noexcept = default;
  QueuedAgreement& operator=(QueuedAgreement&&) = delete;
  ~QueuedAgreement() {
    if (living_ == nullptr) return;
    const std::shared_lock lock(living_->mutex);
    Group* group = living_->group;
    // A group that is poisoned already has told everybody.
    if (group == nullptr || !group->status()) return;
    const std::string_view text(fingerprint_.text);
    group->poison(
        Error(ErrorCode::kPeerLost, fmt::format("rank {} skipped call #{} '{}': its stream had failed",
                                                group->rank(), sequence_, text)),
        group->rank());
  }

  Result<void> operator()() {
    const auto living = std::exchange(living_, nullptr);
    const std::shared_lock lock(living->mutex);
    if (living->group == nullptr) {
      return failf(ErrorCode::kInvalidArgument, "the group was destroyed while its call #{} was in a queue",
                   sequence_);
    }
    Group& group = *living->group;
    group.faults().hit("agree", group.rank());
    return bootstrap::control_of(group).agree(sequence_, fingerprint_, Deadline::after(patience_));
  }

 private:
  std::shared_ptr<LivingGroup> living_;  // null once it has run or was moved away
  std::uint64_t sequence_;
  bootstrap::Fingerprint fingerprint_;
  std::chrono::milliseconds patience_;
};

}  // namespace

Result<void> CpuService::enqueue_agreement(Stream& stream, Group& group, std::uint64_t sequence,
                                           const bootstrap::Fingerprint& fingerprint,
                                           std::chrono::milliseconds patience) {
  bootstrap::control_of(group).note_queued(sequence, executor_of_stream(stream.id()));
  return tandem::cpu::launch(stream,
                             tandem::cpu::Task(QueuedAgreement(group, sequence, fingerprint, patience)));
}

Result<void> CpuService::enqueue_end(Stream& stream, Group& group, std::uint64_t sequence) {
  return tandem::cpu::launch(
      stream, tandem::cpu::Task([living = GroupLife::of(group), sequence]() -> Result<void> {
        const std::shared_lock lock(living->mutex);
        if (living->group != nullptr)
          bootstrap::control_of(*living->group).note_reached(sequence, CallState::kEnded);
        return {};
      }));
}

}  // namespace cpu
}  // namespace tandem::symm
