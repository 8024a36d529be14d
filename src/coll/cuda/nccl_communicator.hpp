#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <tandem/bootstrap/group.hpp>

#include "coll/cuda/nccl_api.hpp"
#include "device/cuda/stream_watch.hpp"

namespace tandem::coll::cuda {

/// One rank's communicator for a group, on one GPU. NCCL's kernels wait for their peers without a deadline,
/// so it watches the streams that it is used on, and aborts them once the group is poisoned. Streams keep it
/// for a while after its group's end, which calls end().
class NcclCommunicator final : public tandem::cuda::StreamWatch {
 public:
  NcclCommunicator(const NcclApi& api, Group& group, int gpu) : api_(api), group_(&group), gpu_(gpu) {}
  ~NcclCommunicator() override { end(); }

  /// Ends the communicator with its peers; by itself if they do not come, or the group is poisoned. Nothing
  /// uses the group from here on.
  void end();

  /// Collective: blocks the host until all ranks have met. Errors: kTimeout, kDriver; the group's.
  [[nodiscard]] Result<void> init(const ncclUniqueId& id, Deadline deadline);
  /// Enqueues on `stream`. Every rank's `num_bytes` bytes, in rank order.
  [[nodiscard]] Result<void> all_gather(const void* from, void* to, std::size_t num_bytes,
                                        cudaStream_t stream);
  [[nodiscard]] Result<void> status() override;

 private:
  /// Until nothing is in progress, which is what NCCL's calls leave behind where they do not block.
  Result<void> await(const char* what, Deadline deadline);
  /// What end() does to a communicator that is there.
  void leave();
  void abort();

  const NcclApi& api_;
  Group* group_;  ///< null: the group has ended
  int gpu_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;  ///< null: not made yet, or aborted
};

}  // namespace tandem::coll::cuda
