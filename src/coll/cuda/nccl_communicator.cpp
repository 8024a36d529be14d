#include "coll/cuda/nccl_communicator.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"

namespace tandem::coll::cuda {

using tandem::cuda::CurrentDevice;

void NcclCommunicator::end() {
  const std::lock_guard lock(mutex_);
  if (comm_ != nullptr) leave();
  group_ = nullptr;
}

void NcclCommunicator::leave() {
  const CurrentDevice current(gpu_);
  auto ended = group_->status();
  if (ended) {
    const ncclResult_t result = api_.comm_finalize(comm_);
    if (result != ncclInProgress) ended = api_.check("finalize", result);
  }
  if (ended) ended = await("finalize", Deadline::after(group_->config().op_timeout));
  if (ended) {
    static_cast<void>(api_.comm_destroy(std::exchange(comm_, nullptr)));
  } else {
    abort();
  }
}

Result<void> NcclCommunicator::init(const ncclUniqueId& id, Deadline deadline) {
  const std::lock_guard lock(mutex_);
  const CurrentDevice current(gpu_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t result = api_.comm_init_rank_config(&comm_, group_->size(), id, group_->rank(), &config);
  auto made = result == ncclInProgress ? Result<void>() : api_.check("init", result);
  if (made) made = await("init", deadline);
  if (!made) abort();
  return made;
}

Result<void> NcclCommunicator::all_gather(const void* from, void* to, std::size_t num_bytes,
                                          cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) {
    TANDEM_TRY(group_->status());
    return fail(ErrorCode::kPeerLost, "all_gather: the group's NCCL communicator was aborted");
  }
  const CurrentDevice current(gpu_);
  const ncclResult_t result = api_.all_gather(from, to, num_bytes, ncclInt8, comm_, stream);
  if (result != ncclInProgress) return api_.check("all_gather", result);
  return await("all_gather", Deadline::after(group_->config().op_timeout));
}

Result<void> NcclCommunicator::status() {
  const std::lock_guard lock(mutex_);
  if (group_ == nullptr) return {};
  if (comm_ == nullptr) return group_->status();
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = api_.comm_get_async_error(comm_, &state);
  const ncclResult_t result = asked == ncclSuccess ? state : asked;
  if (result != ncclSuccess && result != ncclInProgress) {
    group_->poison(
        Error(ErrorCode::kPeerLost,
              fmt::format("rank {}: NCCL: {}", group_->rank(), api_.get_error_string(result)), result),
        -1);
  }
  auto status = group_->status();
  if (!status) abort();
  return status;
}

Result<void> NcclCommunicator::await(const char* what, Deadline deadline) {
  // An enqueued collective is in progress for some microseconds, in which its caller waits; the making and
  // the end of a communicator for longer.
  constexpr std::chrono::microseconds kSpin{200};
  constexpr std::chrono::microseconds kPause{50};
  const Deadline spin_end = Deadline::after(kSpin);
  for (;;) {
    ncclResult_t state = ncclSuccess;
    TANDEM_TRY(api_.check(what, api_.comm_get_async_error(comm_, &state)));
    if (state != ncclInProgress) return api_.check(what, state);
    TANDEM_TRY(group_->status());
    if (deadline.expired()) {
      return failf(ErrorCode::kTimeout, "rank {} waited too long for the other ranks in NCCL's {}",
                   group_->rank(), what);
    }
    if (spin_end.expired()) std::this_thread::sleep_for(kPause);
  }
}

// Its kernels leave their waits, and NCCL takes care of the rest: the communicator is not ours any more.
void NcclCommunicator::abort() {
  if (comm_ == nullptr) return;
  const CurrentDevice current(gpu_);
  static_cast<void>(api_.comm_abort(std::exchange(comm_, nullptr)));
}

}  // namespace tandem::coll::cuda
