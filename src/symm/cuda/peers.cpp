#include "symm/cuda/peers.hpp"

#include <atomic>
#include <cstring>
#include <map>
#include <shared_mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "symm/cuda/control_view.hpp"
#include "symm/reporter.hpp"

namespace tandem::symm::cuda {
namespace {

const char* name_of(KernelCall call) {
  switch (call) {
    case KernelCall::kPutSignal:
      return "put_signal";
    case KernelCall::kWaitSignal:
      return "wait_signal";
    case KernelCall::kBarrier:
      return "barrier";
    case KernelCall::kSyncBlocks:
      return "sync_blocks";
    case KernelCall::kAwaitChunk:
      return "async_input_mm";
    case KernelCall::kExchange:
      return "a collective";
    case KernelCall::kAwaitPartial:
      return "matmul_reduce_scatter";
    case KernelCall::kNanCheck:
      return "the NaN check";
  }
  return "a kernel";
}

bool names_a_chunk(KernelCall call) {
  return call == KernelCall::kAwaitChunk || call == KernelCall::kExchange ||
         call == KernelCall::kAwaitPartial;
}

static_assert(sizeof(KernelFault) == sizeof(bootstrap::RankArea::device_record) &&
              alignof(KernelFault) <= 64 && std::is_trivially_copyable_v<KernelFault>);
static_assert(sizeof(NanReport) == sizeof(bootstrap::RankArea::nan_report) && alignof(NanReport) <= 64 &&
              std::is_trivially_copyable_v<NanReport>);

/// By GPU.
struct GiveUpWords {
  std::map<int, std::shared_ptr<Tensor>> words;
};

/// Whether a wait of this rank has given up on the GPU: a word of its memory, the group's.
Result<std::shared_ptr<Tensor>> give_up_word(Group& group, Device& device) {
  auto& known = group.extension<GiveUpWords>([] { return std::make_shared<GiveUpWords>(); });
  std::shared_ptr<Tensor>& word = known.words[device.id().index];
  if (word == nullptr) {
    TANDEM_ASSIGN(Tensor made, device.allocate_tensor({1}, DType::kU32));
    word = std::make_shared<Tensor>(std::move(made));
  }
  return word;
}

}  // namespace

Result<void> CudaPeers::prepare(Device& on, Group& of) {
  const tandem::cuda::CurrentDevice current(on.id().index);
  TANDEM_ASSIGN(has_given_up_, give_up_word(of, on));
  control_memory_ = bootstrap::control_of(of).memory();
  TANDEM_ASSIGN(stream_barriers_, StreamBarriers::of(of, on));
  KernelControl words;
  words.has_given_up = has_given_up_->view().data_as<std::uint32_t>();
  TANDEM_TRY(view_control(*control_memory_, of.rank(), on.id().index, words));

  const std::size_t pointers_bytes = buffers.size() * sizeof(void*);
  std::vector<std::byte> image(sizeof(KernelControl) + 2 * pointers_bytes);
  std::byte* const buffers_at = image.data() + sizeof(KernelControl);
  std::memcpy(image.data(), &words, sizeof(words));
  std::memcpy(buffers_at, buffers.data(), pointers_bytes);
  std::memcpy(buffers_at + pointers_bytes, pads.data(), pointers_bytes);

  const auto num_bytes = static_cast<std::int64_t>(image.size());
  TANDEM_ASSIGN(tables_, on.allocate(num_bytes));
  TANDEM_TRY(on.copy_from_host(image.data(),
                               TensorView::contiguous(tables_.data(), {num_bytes}, DType::kU8, on.id())));
  auto* const begin = static_cast<std::byte*>(tables_.data());
  control_dev = reinterpret_cast<KernelControl*>(begin);
  buffers_dev = reinterpret_cast<void* const*>(begin + sizeof(KernelControl));
  pads_dev = reinterpret_cast<std::uint32_t* const*>(begin + sizeof(KernelControl) + pointers_bytes);
  return {};
}

// A fault that no stream was asked for still is the group's.
CudaPeers::~CudaPeers() {
  static_cast<void>(CudaPeers::status());
}

Result<void> CudaPeers::status() {
  const std::shared_lock in_use(group_use);  // the group's end waits for this
  const bool is_alive = control != nullptr && group_alive.load(std::memory_order_acquire);
  if (stream_barriers_) {
    const auto ended = stream_barriers_->look(!is_alive || !control->status());
    if (ended && is_alive) report(rank, *ended);
  }
  if (!is_alive) {
    TANDEM_TRY(at_end_);
    const auto found = record_of(rank);
    return found ? Result<void>(tl::unexpected(describe_alone(rank, *found))) : Result<void>();
  }
  // First: a rank that refuses a call says why, and then leaves, which says less.
  TANDEM_TRY(control->compare_announced());
  // Also of others: what this rank's kernels have read since may be of later ops.
  for (int r = 0; r < world_size; ++r) {
    const int of_rank = (rank + r) % world_size;
    const auto found = record_of(of_rank);
    if (!found || is_misuse_behind_end(of_rank, *found)) continue;
    report(of_rank, *found);
    return control->compare_announced();
  }
  return {};
}

std::optional<KernelFault> CudaPeers::record_of(int of_rank) const {
  if (control_memory_ == nullptr) return std::nullopt;
  auto& record = *reinterpret_cast<KernelFault*>(control_memory_->rank(of_rank).device_record);
  if (std::atomic_ref(record.state).load(std::memory_order_acquire) != KernelFault::kSet) return std::nullopt;
  KernelFault found = record;
  // Another process wrote it.
  const bool has_peer = found.reason != GiveUpReason::kBadArgument && found.reason != GiveUpReason::kNan;
  if (has_peer && (found.peer < 0 || found.peer >= world_size)) found.peer = -1;
  return found;
}

bool CudaPeers::is_misuse_behind_end(int of_rank, const KernelFault& found) const {
  return found.reason == GiveUpReason::kBadArgument && found.waited_ns <= 0 &&
         control_memory_->rank(of_rank).left.load(std::memory_order_acquire) != 0;
}

void CudaPeers::report(int of_rank, const KernelFault& found) {
  const std::atomic<std::uint32_t> seen(found.seen);
  const bool is_chunk = names_a_chunk(found.call);
  const bootstrap::WaitInfo info{.what = name_of(found.call),
                                 .peer = found.peer,
                                 .channel = is_chunk ? -1 : found.channel,
                                 .expected = found.expected,
                                 .word = &seen,
                                 .chunk = is_chunk ? found.channel : -1,
                                 .rank = of_rank};
  switch (found.reason) {
    case GiveUpReason::kPeerLeft:
      if (found.peer >= 0) return control->report_peer_left(info);
      [[fallthrough]];
    case GiveUpReason::kTimeout:
      return control->report_timeout(info, std::chrono::nanoseconds(found.waited_ns));
    case GiveUpReason::kBadArgument:
    case GiveUpReason::kNan:
      return control->poison(describe_alone(of_rank, found), of_rank);
    case GiveUpReason::kPoisoned:
    case GiveUpReason::kNone:
      return;  // the group has its error already
  }
}

Error CudaPeers::describe_alone(int of_rank, const KernelFault& found) const {
  if (found.reason == GiveUpReason::kNan)
    return nan_error(of_rank, *reinterpret_cast<const NanReport*>(control_memory_->rank(of_rank).nan_report));
  if (found.reason == GiveUpReason::kBadArgument) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("{} in a kernel on rank {}: peer {} (need 0 to {}), channel {} (need 0 to {}), "
                             "timeout {} ns (need > 0)",
                             name_of(found.call), of_rank, found.peer, world_size - 1, found.channel,
                             static_cast<std::int64_t>(found.expected) - 1, found.waited_ns));
  }
  const bool is_timeout = found.reason == GiveUpReason::kTimeout;
  return Error(is_timeout ? ErrorCode::kTimeout : ErrorCode::kPeerLost,
               fmt::format("rank {} waited {} ms for rank {} in {} on {} {}: expected {}, seen {}; its "
                           "group was destroyed meanwhile",
                           of_rank, found.waited_ns / 1'000'000, found.peer, name_of(found.call),
                           names_a_chunk(found.call) ? "chunk" : "channel", found.channel, found.expected,
                           found.seen));
}

}  // namespace tandem::symm::cuda
