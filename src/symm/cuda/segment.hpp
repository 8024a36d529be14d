#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>
#include <vector>

#include "device/cuda/driver_api.hpp"
#include "device/cuda/internal_stream.hpp"

namespace tandem::symm::cuda {

/// What a receiver of a segment expects it to be.
struct SegmentName {
  std::int64_t num_bytes = 0;
  std::uint64_t cookie = 0;
};

/// Memory of one GPU that other processes and other GPUs can map: physical pages, a range of addresses, and
/// the mapping between them. Whole pages of the driver's granularity (2 MiB) are taken, `num_bytes` are used.
class Segment {
 public:
  /// On GPU `device`; zeroed by a memset on its internal stream, which has ended when this returns.
  /// Errors: kOutOfMemory with the bytes asked for; kDriver.
  [[nodiscard]] static Result<std::shared_ptr<Segment>> create(int device, std::int64_t num_bytes,
                                                               tandem::cuda::InternalStream& stream);
  /// Maps what another process exported, for `device`. The driver refuses a file that is no exported memory,
  /// or is smaller. Errors: kDriver.
  [[nodiscard]] static Result<std::shared_ptr<Segment>> import(int device, const UniqueFd& file,
                                                               const SegmentName& expected);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  [[nodiscard]] void* data() const { return reinterpret_cast<void*>(address_); }
  [[nodiscard]] const SegmentName& name() const { return name_; }
  /// A file by which another process can import it. Keeps the memory, so close it soon.
  [[nodiscard]] Result<UniqueFd> export_file() const;
  /// Lets `device` read and write through this mapping. Any thread, any number of times.
  /// Errors: kDriver, for example where the two GPUs have no link.
  [[nodiscard]] Result<void> allow_access(int device);

 private:
  Segment(const tandem::cuda::DriverApi& driver, const SegmentName& name) : driver_(driver), name_(name) {}
  Result<void> allocate(int device);
  Result<void> map();
  Result<void> zero(tandem::cuda::InternalStream& stream);

  const tandem::cuda::DriverApi& driver_;
  SegmentName name_;
  std::size_t mapped_bytes_ = 0;
  // What has been made so far; the destructor undoes it.
  CUmemGenericAllocationHandle allocation_ = 0;
  bool is_allocated_ = false;
  CUdeviceptr address_ = 0;
  bool is_mapped_ = false;
  std::mutex access_mutex_;
  std::vector<int> devices_;  ///< that may access the mapping
};

}  // namespace tandem::symm::cuda
