#include <tandem/backend/backend.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "coll/cpu/attach.hpp"
#include "device/cpu/cpu_device.hpp"
#include "gemm/cpu/attach.hpp"
#include "symm/cpu/attach.hpp"

namespace tandem {

Result<std::unique_ptr<Device>> open_device(DeviceId id, const Config& config) {
  switch (id.kind) {
    case DeviceKind::kCpu: {
      TANDEM_ASSIGN(auto device, cpu::make_device(id.index, config));
      symm::attach_cpu(*device);
      gemm::attach_cpu(*device);
      coll::attach_cpu(*device);
      return device;
    }
    case DeviceKind::kCuda:
      break;
  }
  return failf(ErrorCode::kUnsupported, "{}: this build has CPU devices only", to_string(id));
}

}  // namespace tandem
