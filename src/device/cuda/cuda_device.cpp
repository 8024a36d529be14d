#include "device/cuda/cuda_device.hpp"

#include <array>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cuda/capture_count.hpp"
#include "device/cuda/clock_kernels.hpp"
#include "device/cuda/copy_kernels.hpp"
#include "device/cuda/cuda_error.hpp"
#include "device/cuda/cuda_event.hpp"
#include "device/cuda/cuda_frees.hpp"
#include "device/cuda/cuda_recorder.hpp"
#include "device/cuda/cuda_stamps.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/device_memory.hpp"
#include "device/cuda/driver_api.hpp"
#include "device/cuda/nvtx_profiler.hpp"
#include "device/cuda/sleep_kernel.hpp"
#include "device/cuda/word_kernel.hpp"

namespace tandem::cuda {
namespace {

// The kernels are compiled for Hopper's own instructions, which no other generation has.
constexpr int kMajor = 9;
constexpr int kMinor = 0;

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, const Config& config, std::shared_ptr<DeviceMemory> memory, std::string description)
      : Device({DeviceKind::kCuda, index}, config),
        memory_(std::move(memory)),
        description_(std::move(description)) {
    attach(frees_);
    attach(std::make_shared<CaptureCount>());
    attach(sharing_);
    attach(make_recorder(sharing_));
    attach(make_stamp_service());
    if (auto profiler = find_profiler()) attach(std::move(profiler));
    sharing_->count_device();
  }
  ~CudaDevice() override { sharing_->forget_device(); }

  std::string description() const override { return description_; }
  Result<std::unique_ptr<Stream>> create_stream(int priority) override {
    return CudaStream::create(*this, priority);
  }
  Result<std::unique_ptr<Event>> create_event() override {
    return CudaEvent::create(*this, cudaEventDefault);
  }
  Result<std::unique_ptr<Event>> create_mark() override {
    return CudaEvent::create(*this, cudaEventDisableTiming);
  }
  bool is_host_accessible() const override { return false; }
  int max_queued_ops() const override { return sharing_->max_queued_ops(); }

 private:
  Result<Buffer> do_allocate(std::int64_t num_bytes) override {
    frees_->free_unused();
    TANDEM_ASSIGN(void* const data, memory_->allocate(num_bytes));
    try {
      return Buffer(data, num_bytes,
                    std::shared_ptr<void>(data, [memory = memory_, frees = frees_](void* freed) {
                      frees->free({.object = freed, .free = free_in, .owner = memory});
                    }));
    } catch (const std::bad_alloc&) {  // of the owner; it has freed the data
      return failf(ErrorCode::kOutOfMemory, "allocate: no host memory for the owner of {} bytes on {}",
                   num_bytes, to_string(id()));
    }
  }
  Result<void> do_zero(void* data, std::int64_t num_bytes) override {
    if (num_bytes == 0) return {};
    return memory_->zero(data, num_bytes);
  }
  Result<void> do_copy_from_host(const void* from, const TensorView& to) override {
    return memory_->copy_from_host(from, to.data, to.size_bytes());
  }
  Result<void> do_copy_to_host(const TensorView& from, void* to) override {
    return memory_->copy_to_host(from.data, to, from.size_bytes());
  }

  static void free_in(void* freed, void* memory) { static_cast<DeviceMemory*>(memory)->free(freed); }

  const std::shared_ptr<CudaFrees> frees_ = std::make_shared<CudaFrees>();
  const std::shared_ptr<DeviceMemory> memory_;
  const std::shared_ptr<SharedGpu> sharing_ = memory_->internal_stream()->sharing();
  std::string description_;
};

/// Compute capability; {0, 0} where the driver does not say.
std::pair<int, int> capability(int index) {
  std::pair<int, int> version;
  if (cudaDeviceGetAttribute(&version.first, cudaDevAttrComputeCapabilityMajor, index) != cudaSuccess ||
      cudaDeviceGetAttribute(&version.second, cudaDevAttrComputeCapabilityMinor, index) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return {0, 0};
  }
  return version;
}

Result<void> check_usable(int index) {
  const std::string name = to_string(DeviceId{DeviceKind::kCuda, index});
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess) {
    const Error refusal = cuda_error(fmt::format("{}: this machine has no usable GPU", name), code);
    return fail(ErrorCode::kUnsupported, refusal.text(), refusal.native_code());
  }
  if (index < 0 || index >= count) {
    return failf(ErrorCode::kUnsupported, "{}: this machine has {} {}, from cuda:0 on", name, count,
                 count == 1 ? "GPU" : "GPUs");
  }
  const auto [major, minor] = capability(index);
  if (major != kMajor || minor != kMinor) {
    return failf(ErrorCode::kUnsupported, "{}: has compute capability {}.{}, need {}.{} (Hopper)", name,
                 major, minor, kMajor, kMinor);
  }
  return {};
}

/// "NVIDIA H200, 132 SMs, 139 GiB, driver 13.0".
Result<std::string> describe(int index) {
  cudaDeviceProp properties{};
  int driver = 0;
  TANDEM_TRY(check_cuda("open device", cudaGetDeviceProperties(&properties, index)));
  TANDEM_TRY(check_cuda("open device", cudaDriverGetVersion(&driver)));
  return fmt::format("{}, {} SMs, {} GiB, driver {}.{}", properties.name, properties.multiProcessorCount,
                     properties.totalGlobalMem >> 30, driver / 1000, driver % 1000 / 10);
}

/// Does each kind of work once. The driver, too, loads kernels and makes buffers at their first use, and that
/// can wait for all that runs on the GPU.
Result<void> warm_up(Device& device) {
  constexpr std::int64_t kSide = 256;
  TANDEM_ASSIGN(const Tensor from, device.allocate_tensor({kSide, kSide}, DType::kU32));
  TANDEM_ASSIGN(const Tensor to, device.allocate_tensor({kSide, kSide}, DType::kU32));
  std::vector<std::uint32_t> host(kSide * kSide);
  TANDEM_TRY(device.copy_from_host(host.data(), from.view()));
  TANDEM_ASSIGN(const auto stream, device.create_stream());
  TANDEM_ASSIGN(const auto side, device.create_stream());
  const TensorView words = TensorView::contiguous(to.view().data, {kSide * kSide}, DType::kU32, device.id());
  const TensorView half = from.view().narrow(1, 0, kSide / 2);
  TANDEM_TRY(side->wait(*stream));
  TANDEM_TRY(side->copy(from.view(), to.view()));
  TANDEM_TRY(side->copy(half, to.view().narrow(1, 0, kSide / 2)));
  TANDEM_TRY(side->copy(from.view().movedim(1, 0), to.view()));
  TANDEM_TRY(side->copy(from.view().movedim(1, 0).narrow(0, 0, 4), to.view().narrow(0, 0, 4)));
  TANDEM_TRY(side->memset32(words, 0, 1, kSide * kSide));
  TANDEM_TRY(side->stream_write_value32(words, 0, 1));
  TANDEM_TRY(side->sleep(std::chrono::nanoseconds(1)));
  TANDEM_TRY(stream->wait(*side));
  TANDEM_TRY(stream->synchronize(Deadline::after(device.config().rendezvous_timeout)));
  return device.copy_to_host(to.view(), host.data());
}

}  // namespace

KernelList kernels() {
  return joined({clock_kernels(), copy_kernels(), sleep_kernels(), word_kernels()});
}

Result<std::unique_ptr<Device>> make_device(int index, const Config& config) {
  TANDEM_TRY(check_usable(index));
  TANDEM_TRY(DriverApi::load());
  const CurrentDevice current(index);
  TANDEM_TRY(check_cuda("open device", load_kernels(kernels())));
  TANDEM_ASSIGN(std::string description, describe(index));
  TANDEM_ASSIGN(auto memory, DeviceMemory::create(index));
  auto device = std::make_unique<CudaDevice>(index, config, std::move(memory), std::move(description));
  TANDEM_TRY(warm_up(*device));
  return device;
}

int count_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  // So many that all indices below are usable.
  int usable = 0;
  while (usable < count && capability(usable) == std::pair(kMajor, kMinor)) ++usable;
  return usable;
}

Result<std::vector<std::string>> device_names() {
  const int count = count_devices();
  if (count == 0) TANDEM_TRY(check_usable(0));
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    TANDEM_TRY(check_cuda("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, i)));
    names.emplace_back(properties.name);
  }
  return names;
}

}  // namespace tandem::cuda
