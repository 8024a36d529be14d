#include "symm/cuda/stream_barriers.hpp"

#include <cuda.h>

#include <array>
#include <atomic>
#include <map>
#include <tandem/symm/handle.hpp>
#include <utility>

#include "base/try.hpp"
#include "bootstrap/control.hpp"
#include "device/cuda/driver_api.hpp"
#include "device/cuda/internal_stream.hpp"
#include "symm/cuda/control_view.hpp"

namespace tandem::symm::cuda {
namespace {

using bootstrap::RankArea;

// A wait's name: 0 stands for none.
std::uint32_t name_of_wait(int turn, int peer) {
  return static_cast<std::uint32_t>(1 + turn * RankArea::kMostStreamRanks + peer);
}

// Writes come behind a fence of the whole system, so what stands before one in the stream is seen with it.
class Ops {
 public:
  void write(std::uintptr_t word, std::uint32_t value) {
    CUstreamBatchMemOpParams& op = next(CU_STREAM_MEM_OP_WRITE_VALUE_32);
    op.writeValue.address = word;
    op.writeValue.value = value;
  }
  void write_two(std::uintptr_t words, std::uint32_t first, std::uint32_t second) {
    CUstreamBatchMemOpParams& op = next(CU_STREAM_MEM_OP_WRITE_VALUE_64);
    op.writeValue.address = words;
    op.writeValue.value64 = std::uint64_t{second} << 32U | first;
  }
  void await(std::uintptr_t word, std::uint32_t value) {
    CUstreamBatchMemOpParams& op = next(CU_STREAM_MEM_OP_WAIT_VALUE_32);
    op.waitValue.address = word;
    op.waitValue.value = value;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  }
  [[nodiscard]] Result<void> enqueue(cudaStream_t on) {
    TANDEM_ASSIGN(const tandem::cuda::DriverApi* const driver, tandem::cuda::DriverApi::load());
    return driver->check("barrier", driver->stream_batch_mem_op(on, count_, ops_.data(), 0));
  }

 private:
  CUstreamBatchMemOpParams& next(CUstreamBatchMemOpType type) {
    CUstreamBatchMemOpParams& op = ops_[count_++];
    op = {};
    op.operation = type;
    return op;
  }
  static constexpr std::size_t kMost = 256;  // that the driver takes at once
  static_assert(4 * (RankArea::kMostStreamRanks - 1) + 1 <= kMost);
  std::array<CUstreamBatchMemOpParams, kMost> ops_;
  unsigned count_ = 0;
};

using BarriersOfGpus = std::map<int, std::shared_ptr<StreamBarriers>>;

}  // namespace

Result<std::shared_ptr<StreamBarriers>> StreamBarriers::of(Group& group, Device& device) {
  const int gpu = device.id().index;
  auto& known = group.extension<BarriersOfGpus>([] { return std::make_shared<BarriersOfGpus>(); });
  if (const auto found = known.find(gpu); found != known.end()) return found->second;
  const auto memory = bootstrap::control_of(group).memory();
  RankArea& own = memory->rank(group.rank());
  KernelControl words;
  TANDEM_TRY(view_control(*memory, group.rank(), gpu, words));
  const auto offset = reinterpret_cast<std::uintptr_t>(words.waits_for) -
                      reinterpret_cast<std::uintptr_t>(&own.device_waits_for);
  auto made = std::make_shared<StreamBarriers>(memory, group.rank(), group.size(), group.config().op_timeout,
                                               offset, gpu);
  TANDEM_ASSIGN(const auto internal, tandem::cuda::InternalStream::of(gpu));
  const bool by_streams = !internal->sharing()->is_shared() && made->is_taken_by_driver(*internal);
  own.waits_by.store(by_streams ? RankArea::kStreamsWait : RankArea::kKernelsWait);
  known.emplace(gpu, made);
  return made;
}

/// A barrier with nobody, on words that no other rank uses.
bool StreamBarriers::is_taken_by_driver(tandem::cuda::InternalStream& internal) const {
  if (rank_ >= RankArea::kMostStreamRanks) return false;
  RankArea& own = memory_->rank(rank_);
  std::atomic<std::uint32_t>& word = own.stream_puts[0][rank_];
  Ops ops;
  ops.write(on_device(word), 1);
  ops.await(on_device(word), 1);
  ops.write(on_device(word), 0);
  ops.write_two(on_device(own.stream_waits), 0, 0);
  const tandem::cuda::CurrentDevice current(device_);
  const cudaError_t code =
      internal.run([&](cudaStream_t on) { return ops.enqueue(on) ? cudaSuccess : cudaErrorNotSupported; });
  return code == cudaSuccess;
}

bool StreamBarriers::can_run() const {
  if (world_size_ > RankArea::kMostStreamRanks) return false;
  for (int r = 0; r < world_size_; ++r) {
    if (memory_->rank(r).waits_by.load(std::memory_order_relaxed) != RankArea::kStreamsWait) return false;
  }
  return true;
}

Result<void> StreamBarriers::enqueue(tandem::cuda::CudaStream& stream, int turn) const {
  Ops ops;
  RankArea& own = memory_->rank(rank_);
  for (int step = 1; step < world_size_; ++step) {
    const int peer = (rank_ + step) % world_size_;
    ops.write(on_device(memory_->rank(peer).stream_puts[turn][rank_]), 1);
  }
  for (int step = 1; step < world_size_; ++step) {
    const int peer = (rank_ + step) % world_size_;
    ops.write(on_device(own.stream_waits), name_of_wait(turn, peer));
    ops.await(on_device(own.stream_puts[turn][peer]), 1);
    ops.write(on_device(own.stream_puts[turn][peer]), 0);
  }
  ops.write_two(on_device(own.stream_waits), 0, 1);
  return stream.enqueue("barrier", tandem::cuda::Waits::kForPeers,
                        [&](cudaStream_t on) { return ops.enqueue(on); });
}

std::optional<KernelFault> StreamBarriers::look(bool is_over) {
  RankArea& own = memory_->rank(rank_);
  const std::lock_guard lock(mutex_);
  const bool has_ended = own.stream_wait_ended.exchange(0) != 0;
  const std::uint32_t wait = own.stream_waits.load(std::memory_order_acquire);
  const auto now = std::chrono::steady_clock::now();
  if (wait != seen_ || has_ended) {
    seen_ = wait;
    since_ = now;
  }
  if (wait == 0) return std::nullopt;
  const int peer = static_cast<int>(wait - 1) % RankArea::kMostStreamRanks;
  const int turn = static_cast<int>(wait - 1) / RankArea::kMostStreamRanks;
  std::atomic<std::uint32_t>& word = own.stream_puts[turn][peer];
  const std::uint32_t value = word.load(std::memory_order_acquire);
  KernelFault fault;
  fault.call = KernelCall::kBarrier;
  fault.peer = peer;
  fault.channel = kLowContentionChannel + turn;
  fault.expected = 1;
  fault.seen = value;
  fault.waited_ns = std::chrono::nanoseconds(now - since_).count();
  if (is_over) {
    fault.reason = GiveUpReason::kPoisoned;
  } else if (value == 0 && memory_->rank(peer).left.load(std::memory_order_acquire) != 0) {
    fault.reason = GiveUpReason::kPeerLeft;
  } else if (now - since_ >= limit_) {
    fault.reason = GiveUpReason::kTimeout;
  } else {
    return std::nullopt;
  }
  word.store(1, std::memory_order_release);
  return fault;
}

}  // namespace tandem::symm::cuda
