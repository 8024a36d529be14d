#include "transport/cuda/nccl_communicator.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"

namespace tandem::transport::cuda {

using tandem::cuda::CurrentDevice;

Result<void> NcclCommunicator::init(const ncclUniqueId& id, int size, Deadline deadline, const Status& status,
                                    int most_blocks) {
  const std::lock_guard lock(mutex_);
  const CurrentDevice current(gpu_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (most_blocks > 0) {
    config.maxCTAs = most_blocks;
    config.cgaClusterSize = 0;
  }
  const ncclResult_t result = api_.comm_init_rank_config(&comm_, size, id, rank_, &config);
  auto made = result == ncclInProgress ? Result<void>() : api_.check("init", result);
  if (made) made = await("init", deadline, status);
  if (!made) abort_locked();
  return made;
}

Result<void> NcclCommunicator::enqueue(const char* what,
                                       const std::function<ncclResult_t(ncclComm_t)>& enqueue,
                                       Deadline deadline, const Status& status) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) {
    TANDEM_TRY(status());
    return failf(ErrorCode::kPeerLost, "{}: the NCCL communicator of rank {} was aborted", what, rank_);
  }
  const CurrentDevice current(gpu_);
  const ncclResult_t result = enqueue(comm_);
  if (result != ncclInProgress) return api_.check(what, result);
  return await(what, deadline, status);
}

Result<void> NcclCommunicator::state() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return {};
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = api_.comm_get_async_error(comm_, &state);
  const ncclResult_t result = asked == ncclSuccess ? state : asked;
  if (result == ncclSuccess || result == ncclInProgress) return {};
  return fail(ErrorCode::kPeerLost, fmt::format("rank {}: NCCL: {}", rank_, api_.get_error_string(result)),
              result);
}

void NcclCommunicator::end(Deadline deadline, const Status& status) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  const CurrentDevice current(gpu_);
  auto ended = status();
  if (ended) {
    const ncclResult_t result = api_.comm_finalize(comm_);
    if (result != ncclInProgress) ended = api_.check("finalize", result);
  }
  if (ended) ended = await("finalize", deadline, status);
  if (!ended) return abort_locked();
  static_cast<void>(api_.comm_destroy(std::exchange(comm_, nullptr)));
}

void NcclCommunicator::abort() {
  const std::lock_guard lock(mutex_);
  abort_locked();
}

// NCCL takes care of the rest: the communicator is not ours any more.
void NcclCommunicator::abort_locked() {
  if (comm_ == nullptr) return;
  const CurrentDevice current(gpu_);
  static_cast<void>(api_.comm_abort(std::exchange(comm_, nullptr)));
}

Result<void> NcclCommunicator::await(const char* what, Deadline deadline, const Status& status) {
  // An enqueued collective is in progress for some microseconds, in which its caller waits; the making and
  // the end of a communicator for longer.
  constexpr std::chrono::microseconds kSpin{200};
  constexpr std::chrono::microseconds kPause{50};
  const Deadline spin_end = Deadline::after(kSpin);
  for (;;) {
    ncclResult_t state = ncclSuccess;
    TANDEM_TRY(api_.check(what, api_.comm_get_async_error(comm_, &state)));
    if (state != ncclInProgress) return api_.check(what, state);
    TANDEM_TRY(status());
    if (deadline.expired()) {
      return failf(ErrorCode::kTimeout, "rank {} waited too long for the other ranks in NCCL's {}", rank_,
                   what);
    }
    if (spin_end.expired()) std::this_thread::sleep_for(kPause);
  }
}

}  // namespace tandem::transport::cuda
