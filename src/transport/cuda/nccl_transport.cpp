#include "transport/cuda/nccl_transport.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "transport/message_head.hpp"

namespace tandem::transport::cuda {

using std::chrono::milliseconds;
using tandem::cuda::check_cuda;
using tandem::cuda::CurrentDevice;
using tandem::cuda::Waits;
using Clock = Deadline::Clock;

namespace {

/// As long as a rank waits in the end for peers that do not come.
constexpr milliseconds kFarewell(10'000);

}  // namespace

/// The head that goes out and the one that has come, where the host and the GPU see them.
class NcclTransport::HeadMemory {
 public:
  HeadMemory() = default;
  ~HeadMemory() {
    if (heads_ != nullptr) static_cast<void>(cudaFreeHost(heads_));
  }
  HeadMemory(const HeadMemory&) = delete;
  HeadMemory& operator=(const HeadMemory&) = delete;

  [[nodiscard]] Result<void> allocate() {
    void* memory = nullptr;
    TANDEM_TRY(check_cuda(
        "memory of NCCL's exchanges",
        cudaHostAlloc(&memory, 2 * sizeof(MessageHead), cudaHostAllocPortable | cudaHostAllocMapped)));
    heads_ = static_cast<MessageHead*>(memory);
    return {};
  }
  [[nodiscard]] MessageHead& sent() { return heads_[0]; }
  [[nodiscard]] MessageHead& received() { return heads_[1]; }

 private:
  MessageHead* heads_ = nullptr;
};

class NcclTransport::NcclPending final : public Transport::Pending {
 public:
  Exchange exchange;
  HeadMemory heads;
  std::unique_ptr<Event> is_reached;  ///< the caller's stream has come to the start
  std::unique_ptr<Event> is_over;     ///< both messages have arrived
  milliseconds timeout{0};
  /// When the host saw that it is the first of those that are not over. Its time counts from there.
  std::optional<Clock::time_point> begun;

  [[nodiscard]] bool sends() const { return exchange.to >= 0 && !exchange.sent.empty(); }
  [[nodiscard]] bool receives() const { return exchange.from >= 0 && !exchange.received.empty(); }
  /// Of what is over.
  [[nodiscard]] Result<void> check(int rank) {
    return receives() ? check_head(heads.received(), exchange, rank) : Result<void>();
  }
  [[nodiscard]] Error too_late(int rank) const {
    std::string what;
    if (receives()) what = awaited_in_words(exchange);
    if (sends()) what += (what.empty() ? "" : " and ") + sent_in_words(exchange);
    return gave_up(rank, what, Clock::now() - *begun);
  }
};

/// What a group has enqueued and nobody has seen the end of, in its order. NCCL's kernels wait without a
/// deadline: this aborts them.
class NcclTransport::ExchangeWatch final : public tandem::cuda::StreamWatch {
 public:
  ExchangeWatch(Communicators communicators, std::shared_ptr<const Watch> group, int rank)
      : communicators_(std::move(communicators)), group_(std::move(group)), rank_(rank) {}

  [[nodiscard]] const std::shared_ptr<const Watch>& group() const { return group_; }
  void add(std::shared_ptr<NcclPending> pending) {
    const std::lock_guard lock(mutex_);
    enqueued_.push_back(std::move(pending));
    if (enqueued_.size() % kLookAt == 0) static_cast<void>(look());  // nobody may synchronize for long
  }
  [[nodiscard]] Result<void> status() override {
    const std::lock_guard lock(mutex_);
    return look();
  }

 private:
  static constexpr std::size_t kLookAt = 64;

  /// Aborts the communicators with the first fault.
  [[nodiscard]] Result<void> look() {
    auto status = look_at_enqueued();
    if (!status) group_->report(status.error());
    if (status) status = group_->status();
    if (status) return {};
    communicators_.abort();
    enqueued_.clear();
    return status;
  }
  [[nodiscard]] Result<void> look_at_enqueued() {
    TANDEM_TRY(communicators_.state());
    while (!enqueued_.empty() && enqueued_.front()->is_over->is_done()) {
      TANDEM_TRY(enqueued_.front()->check(rank_));
      enqueued_.pop_front();
    }
    if (enqueued_.empty()) return {};
    NcclPending& first = *enqueued_.front();
    if (!first.begun && first.is_reached->is_done()) first.begun = Clock::now();
    if (first.begun && Clock::now() - *first.begun > first.timeout)
      return tl::unexpected(first.too_late(rank_));
    return {};
  }

  Communicators communicators_;
  std::shared_ptr<const Watch> group_;
  int rank_;
  std::mutex mutex_;
  std::deque<std::shared_ptr<NcclPending>> enqueued_;
};

NcclTransport::NcclTransport(const NcclApi& api, Communicators communicators, Identity self, int gpu,
                             std::unique_ptr<Stream> stream, Device& device)
    : api_(api),
      communicators_(std::move(communicators)),
      self_(self),
      gpu_(gpu),
      device_(device),
      stream_(std::move(stream)) {}

NcclTransport::~NcclTransport() {
  if (stream_->synchronize(Deadline::after(kFarewell))) {
    for (const auto& one : {communicators_.usual, communicators_.beside_product})
      one->end(Deadline::after(kFarewell), []() -> Result<void> { return {}; });
  } else {
    communicators_.abort();
  }
  stream_.reset();  // before the memory of heads
}

Result<std::shared_ptr<Transport::Pending>> NcclTransport::start(const Exchange& exchange, Stream& stream) {
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, name()));
  if (on->device_idx() != gpu_) {
    return failf(ErrorCode::kInvalidArgument, "{}: a stream of GPU {}, and this rank's is GPU {}", name(),
                 on->device_idx(), gpu_);
  }
  if (on->is_capturing()) {
    return failf(ErrorCode::kUnsupported,
                 "{}: what crosses between hosts cannot be recorded in a graph; call it eagerly", name());
  }
  const std::lock_guard lock(mutex_);
  TANDEM_ASSIGN(const std::shared_ptr<NcclPending> pending, take_pending(exchange));
  TANDEM_TRY(stream.record(*pending->is_reached));
  TANDEM_TRY(stream_->wait(*pending->is_reached));
  TANDEM_TRY(enqueue(*pending));
  TANDEM_TRY(stream_->record(*pending->is_over));
  return std::shared_ptr<Pending>(pending);
}

Result<void> NcclTransport::await(const std::shared_ptr<Pending>& exchange, milliseconds timeout,
                                  const std::shared_ptr<const Watch>& watch, Stream& stream) {
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(stream, name()));
  const auto pending = std::static_pointer_cast<NcclPending>(exchange);
  pending->timeout = timeout;
  std::shared_ptr<ExchangeWatch> watches;
  {
    const std::lock_guard lock(mutex_);
    watches = watch_for(watch);
  }
  watches->add(pending);
  on->add_watch(watches);
  return stream.wait(*pending->is_over);
}

/// One that nobody waits for any longer, or another.
Result<std::shared_ptr<NcclTransport::NcclPending>> NcclTransport::take_pending(const Exchange& exchange) {
  const auto unused = std::find_if(pending_.begin(), pending_.end(), [](const auto& pending) {
    return pending.use_count() == 1 && pending->is_over->is_done();
  });
  std::shared_ptr<NcclPending> pending;
  if (unused != pending_.end()) {
    pending = *unused;
    // To the end, so that those which are used longest come first.
    std::rotate(unused, unused + 1, pending_.end());
  } else {
    const CurrentDevice current(gpu_);
    pending = std::make_shared<NcclPending>();
    TANDEM_TRY(pending->heads.allocate());
    TANDEM_ASSIGN(pending->is_reached, device_.create_mark());
    TANDEM_ASSIGN(pending->is_over, device_.create_mark());
    pending_.push_back(pending);
  }
  pending->exchange = exchange;
  pending->begun.reset();
  pending->heads.sent() = head_of_sent(exchange);
  pending->heads.received() = {};
  return pending;
}

std::shared_ptr<NcclTransport::ExchangeWatch> NcclTransport::watch_for(
    const std::shared_ptr<const Watch>& watch) {
  std::erase_if(watches_, [](const auto& one) { return one.expired(); });
  for (const auto& one : watches_) {
    if (auto known = one.lock(); known && known->group() == watch) return known;
  }
  auto made = std::make_shared<ExchangeWatch>(communicators_, watch, self_.rank);
  watches_.push_back(made);
  return made;
}

Result<void> NcclTransport::enqueue(NcclPending& pending) {
  TANDEM_ASSIGN(auto* const on, tandem::cuda::cuda_stream(*stream_, name()));
  const Exchange& exchange = pending.exchange;
  const auto put = [&](const void* data, std::size_t num_bytes, ncclComm_t comm) {
    return api_.send(data, num_bytes, ncclInt8, exchange.to, comm, on->native());
  };
  const auto get = [&](void* data, std::size_t num_bytes, ncclComm_t comm) {
    return api_.recv(data, num_bytes, ncclInt8, exchange.from, comm, on->native());
  };
  const auto group = [&](ncclComm_t comm) {
    ncclResult_t result = api_.group_start();
    if (result != ncclSuccess) return result;
    if (pending.sends()) {
      result = put(&pending.heads.sent(), sizeof(MessageHead), comm);
      if (result == ncclSuccess) result = put(exchange.sent.data(), exchange.sent.size(), comm);
    }
    if (pending.receives() && result == ncclSuccess) {
      result = get(&pending.heads.received(), sizeof(MessageHead), comm);
      if (result == ncclSuccess) result = get(exchange.received.data(), exchange.received.size(), comm);
    }
    const ncclResult_t ended = api_.group_end();
    return result == ncclSuccess ? ended : result;
  };
  return on->enqueue("NCCL", Waits::kForPeers, [&](cudaStream_t) {
    return communicators_.of(exchange).enqueue("an exchange between hosts", group,
                                               Deadline::after(device_.config().op_timeout),
                                               []() -> Result<void> { return {}; });
  });
}

}  // namespace tandem::transport::cuda
