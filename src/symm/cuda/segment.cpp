#include "symm/cuda/segment.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/cuda_error.hpp"
#include "symm/cookie.hpp"

namespace tandem::symm::cuda {
namespace {

using tandem::cuda::check_cuda;
using tandem::cuda::CurrentDevice;
using tandem::cuda::DriverApi;
using tandem::cuda::InternalStream;

CUmemAllocationProp properties_on(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

Result<std::size_t> round_to_granularity(const DriverApi& driver, int device, std::int64_t num_bytes) {
  const CUmemAllocationProp properties = properties_on(device);
  std::size_t granularity = 0;
  TANDEM_TRY(driver.check(
      "cuMemGetAllocationGranularity",
      driver.mem_get_allocation_granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM)));
  const auto wanted = static_cast<std::size_t>(std::max<std::int64_t>(num_bytes, 1));
  return (wanted + granularity - 1) / granularity * granularity;
}

}  // namespace

Result<std::shared_ptr<Segment>> Segment::create(int device, std::int64_t num_bytes, InternalStream& stream) {
  TANDEM_ASSIGN(const DriverApi* driver, DriverApi::load());
  TANDEM_ASSIGN(const std::uint64_t cookie, random_cookie());
  const CurrentDevice current(device);
  const std::shared_ptr<Segment> segment(new Segment(*driver, {num_bytes, cookie}));
  TANDEM_TRY(segment->allocate(device));
  TANDEM_TRY(segment->map());
  TANDEM_TRY(segment->allow_access(device));
  TANDEM_TRY(segment->zero(stream));
  return segment;
}

Result<std::shared_ptr<Segment>> Segment::import(int device, const UniqueFd& file,
                                                 const SegmentName& expected) {
  TANDEM_ASSIGN(const DriverApi* driver, DriverApi::load());
  const CurrentDevice current(device);
  const std::shared_ptr<Segment> segment(new Segment(*driver, expected));
  TANDEM_ASSIGN(segment->mapped_bytes_, round_to_granularity(*driver, device, expected.num_bytes));
  // The driver takes the number as a pointer, and keeps no reference to the file.
  void* const number = reinterpret_cast<void*>(static_cast<std::intptr_t>(file.get()));
  TANDEM_TRY(driver->check("cuMemImportFromShareableHandle",
                           driver->mem_import_from_shareable_handle(
                               &segment->allocation_, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)));
  segment->is_allocated_ = true;
  TANDEM_TRY(segment->map());
  TANDEM_TRY(segment->allow_access(device));
  return segment;
}

Result<void> Segment::allocate(int device) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  TANDEM_TRY(check_cuda("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total_bytes)));
  const auto out_of_memory = [&] {
    return failf(ErrorCode::kOutOfMemory,
                 "symmetric memory: {} bytes asked for, {} available of the {} of cuda:{}", name_.num_bytes,
                 free_bytes, total_bytes, device);
  };
  if (name_.num_bytes > static_cast<std::int64_t>(total_bytes)) return out_of_memory();
  TANDEM_ASSIGN(mapped_bytes_, round_to_granularity(driver_, device, name_.num_bytes));
  const CUmemAllocationProp properties = properties_on(device);
  const CUresult created = driver_.mem_create(&allocation_, mapped_bytes_, &properties, 0);
  if (created == CUDA_ERROR_OUT_OF_MEMORY) return out_of_memory();
  TANDEM_TRY(driver_.check("cuMemCreate", created));
  is_allocated_ = true;
  return {};
}

Result<void> Segment::map() {
  TANDEM_TRY(
      driver_.check("cuMemAddressReserve", driver_.mem_address_reserve(&address_, mapped_bytes_, 0, 0, 0)));
  TANDEM_TRY(driver_.check("cuMemMap", driver_.mem_map(address_, mapped_bytes_, 0, allocation_, 0)));
  is_mapped_ = true;
  return {};
}

Result<void> Segment::allow_access(int device) {
  const std::lock_guard lock(access_mutex_);
  if (std::find(devices_.begin(), devices_.end(), device) != devices_.end()) return {};
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  // Adds this GPU; what others may do stays as it is.
  TANDEM_TRY(driver_.check(fmt::format("cuMemSetAccess for cuda:{}", device),
                           driver_.mem_set_access(address_, mapped_bytes_, &access, 1)));
  devices_.push_back(device);
  return {};
}

Result<void> Segment::zero(InternalStream& stream) {
  return check_cuda("zeroing symmetric memory", stream.run([&](cudaStream_t on) {
    return cudaMemsetAsync(data(), 0, mapped_bytes_, on);
  }));
}

Result<UniqueFd> Segment::export_file() const {
  int file = -1;
  TANDEM_TRY(driver_.check("cuMemExportToShareableHandle",
                           driver_.mem_export_to_shareable_handle(
                               &file, allocation_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)));
  return UniqueFd(file);
}

// Nothing here waits for kernels, neither this rank's nor, in the same GPU, another's that may be waiting for
// a signal of this thread. (The driver does not promise it either way; PyTorch has seen unmapping go ahead of
// running kernels, and so synchronizes its own stream first.) So it must not come before the work that uses
// the memory: Peers hold the segments, and streams hold the Peers until their work is done.
Segment::~Segment() {
  if (is_mapped_) static_cast<void>(driver_.mem_unmap(address_, mapped_bytes_));
  if (address_ != 0) static_cast<void>(driver_.mem_address_free(address_, mapped_bytes_));
  if (is_allocated_) static_cast<void>(driver_.mem_release(allocation_));
}

}  // namespace tandem::symm::cuda
