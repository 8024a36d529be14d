#include <tandem/backend/backend.hpp>

#include <cstdlib>

#include "backend/for_tools.hpp"
#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/group_impl.hpp"
#include "coll/cpu/attach.hpp"
#include "device/cpu/cpu_device.hpp"
#include "device/profiler.hpp"
#include "device/stamps.hpp"
#include "fused/cpu/attach.hpp"
#include "gemm/cpu/attach.hpp"
#include "symm/cpu/attach.hpp"
#ifdef TANDEM_HAS_CUDA
#include "coll/cuda/attach.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/cuda/device_report.hpp"
#include "gemm/cuda/attach.hpp"
#include "gemm/cuda/library_report.hpp"
#include "gemm/cuda/native.hpp"
#include "symm/cuda/attach.hpp"
#include "symm/cuda/memory_passing.hpp"
#include "transport/cuda/nccl.hpp"
#endif

namespace tandem {

Result<std::unique_ptr<Device>> open_device(DeviceId id, const Config& config) {
  switch (id.kind) {
    case DeviceKind::kCpu: {
      TANDEM_ASSIGN(auto device, cpu::make_device(id.index, config));
      symm::attach_cpu(*device);
      gemm::attach_cpu(*device);
      coll::attach_cpu(*device);
      fused::attach_cpu(*device);
      return device;
    }
    case DeviceKind::kCuda: {
#ifdef TANDEM_HAS_CUDA
      TANDEM_ASSIGN(auto device, cuda::make_device(id.index, config));
      TANDEM_TRY(symm::attach_cuda(*device));
      TANDEM_TRY(gemm::attach_cuda(*device));
      TANDEM_TRY(coll::attach_cuda(*device));
      return device;
#else
      break;
#endif
    }
  }
  return failf(ErrorCode::kUnsupported, "{}: this build has CPU devices only", to_string(id));
}

int count_cuda_devices() {
#ifdef TANDEM_HAS_CUDA
  return cuda::count_devices();
#else
  return 0;
#endif
}

Result<std::vector<std::string>> list_cuda_devices() {
#ifdef TANDEM_HAS_CUDA
  return cuda::device_names();
#else
  return fail(ErrorCode::kUnsupported, "this build has no CUDA backend");
#endif
}

std::vector<std::string> describe_cuda_links() {
  std::vector<std::string> lines;
#ifdef TANDEM_HAS_CUDA
  const int count = cuda::count_devices();
  for (int gpu = 0; gpu < count; ++gpu) {
    const auto passed = symm::cuda::try_memory_passing(gpu);
    lines.push_back(
        passed ? fmt::format("{}: passes memory between processes", gpu)
               : fmt::format("{}: cannot pass memory between processes: {}", gpu, passed.error().text()));
  }
  for (std::string& line : cuda::describe_links()) lines.push_back(std::move(line));
#endif
  return lines;
}

std::vector<std::string> describe_cuda_kernels() {
  std::vector<std::string> lines;
#ifdef TANDEM_HAS_CUDA
  if (cuda::count_devices() == 0) return lines;
  for (const auto& leaf :
       {cuda::kernels(), symm::cuda::kernels(), gemm::cuda::kernels(), coll::cuda::kernels()}) {
    auto described = cuda::describe_kernels(leaf, 0, gemm::cuda::native_name_of);
    if (!described) return {described.error().text()};
    for (std::string& line : *described) lines.push_back(std::move(line));
  }
#endif
  return lines;
}

Result<ClockReport> report_clock(Device& device) {
  auto* const service = device.service<StampService>();
  if (service == nullptr)
    return failf(ErrorCode::kUnsupported, "{} has no times of places of its streams", to_string(device.id()));
  TANDEM_ASSIGN(const auto stamps, service->create(device, 1));
  return ClockReport{.clock = std::string(stamps->clock()), .uncertainty_ns = stamps->uncertainty_ns()};
}

bool has_profiler(const Device& device) {
  return device.service<Profiler>() != nullptr;
}

Support sees_deaths(const Group& group) {
  return group.impl().sees_deaths;
}

void prepare_shared_gpu() {
  constexpr int kKeep = 0;
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", kKeep);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", kKeep);
}

std::vector<std::string> describe_cuda_libraries([[maybe_unused]] const Config& config) {
  std::vector<std::string> lines;
#ifdef TANDEM_HAS_CUDA
  for (const auto& report : {gemm::cuda::library_report(config), transport::cuda::library_report(config)}) {
    lines.push_back(report ? fmt::format("{} {}, {}", report->name, report->version, report->path)
                           : report.error().text());
  }
#endif
  return lines;
}

}  // namespace tandem
