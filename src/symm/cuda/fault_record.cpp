#include "symm/cuda/fault_record.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"

namespace tandem::symm::cuda {
namespace {

/// The records that nobody owns. Never destroyed: at the end of the process the driver may have gone before.
struct Pool {
  std::mutex mutex;
  std::vector<KernelFault*> unused;
};

Pool& pool() {
  static Pool& the_pool = *new Pool;
  return the_pool;
}

Result<void> grow(Pool& pool) {
  constexpr std::size_t kNumRecords = 256;
  void* memory = nullptr;
  TANDEM_TRY(tandem::cuda::check_cuda("cudaHostAlloc of fault records",
                                      cudaHostAlloc(&memory, kNumRecords * sizeof(KernelFault),
                                                    cudaHostAllocPortable | cudaHostAllocMapped)));
  auto* const records = static_cast<KernelFault*>(memory);
  for (std::size_t i = kNumRecords; i-- > 0;) pool.unused.push_back(records + i);
  return {};
}

}  // namespace

Result<FaultRecord> FaultRecord::take() {
  Pool& records = pool();
  const std::lock_guard lock(records.mutex);
  if (records.unused.empty()) TANDEM_TRY(grow(records));
  KernelFault* const fault = records.unused.back();
  records.unused.pop_back();
  return FaultRecord(new (fault) KernelFault);
}

FaultRecord::FaultRecord(FaultRecord&& other) noexcept : fault_(std::exchange(other.fault_, nullptr)) {}

FaultRecord& FaultRecord::operator=(FaultRecord&& other) noexcept {
  std::swap(fault_, other.fault_);
  return *this;
}

FaultRecord::~FaultRecord() {
  if (fault_ == nullptr) return;
  Pool& records = pool();
  const std::lock_guard lock(records.mutex);
  records.unused.push_back(fault_);
}

std::optional<KernelFault> FaultRecord::read() const {
  if (fault_ == nullptr) return std::nullopt;
  if (std::atomic_ref(fault_->state).load(std::memory_order_acquire) != KernelFault::kSet)
    return std::nullopt;
  return *fault_;
}

}  // namespace tandem::symm::cuda
