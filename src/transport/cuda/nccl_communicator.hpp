#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <mutex>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>

#include "transport/cuda/nccl_api.hpp"

namespace tandem::transport::cuda {

/// One rank's communicator, on one GPU. NCCL's kernels wait for their peers without a deadline. So its owner
/// watches the streams that it is used on, and aborts it once they shall not wait any longer. Calls of one
/// communicator from several threads take turns.
class NcclCommunicator {
 public:
  /// An error once the host shall not wait for peers any longer.
  using Status = std::function<Result<void>()>;

  NcclCommunicator(const NcclApi& api, int gpu, int rank) : api_(api), gpu_(gpu), rank_(rank) {}
  ~NcclCommunicator() { abort(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Collective: blocks the host until all `size` ranks have met. With `most_blocks` > 0 its kernels have at
  /// most so many blocks, and no clusters of them, so that any free multiprocessors will do.
  /// Errors: kTimeout, kDriver, those of `status`.
  [[nodiscard]] Result<void> init(const ncclUniqueId& id, int size, Deadline deadline, const Status& status,
                                  int most_blocks = 0);
  /// `enqueue(comm)` enqueues, named `what` in errors. The first call for a peer may wait for that peer.
  /// Errors: as init(), and kPeerLost where the communicator was aborted.
  [[nodiscard]] Result<void> enqueue(const char* what, const std::function<ncclResult_t(ncclComm_t)>& enqueue,
                                     Deadline deadline, const Status& status);
  /// Ok, or kPeerLost with what NCCL has met since.
  [[nodiscard]] Result<void> state();
  /// Ends it with its peers; by itself if they do not come.
  void end(Deadline deadline, const Status& status);
  /// Its kernels leave their waits. It may be called again.
  void abort();

 private:
  /// Until nothing is in progress, which is what NCCL's calls leave behind where they do not block.
  Result<void> await(const char* what, Deadline deadline, const Status& status);
  void abort_locked();

  const NcclApi& api_;
  int gpu_;
  int rank_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  ///< null: not made yet, ended, or aborted
};

}  // namespace tandem::transport::cuda
