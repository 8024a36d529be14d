#include <tandem/backend/backend.hpp>

#include "base/format.hpp"
#include "device/cpu/cpu_device.hpp"

namespace tandem {

Result<std::unique_ptr<Device>> open_device(DeviceId id, const Config& config) {
  switch (id.kind) {
    case DeviceKind::kCpu:
      return cpu::make_device(id.index, config);
    case DeviceKind::kCuda:
      break;
  }
  return failf(ErrorCode::kUnsupported, "{}: this build has CPU devices only", to_string(id));
}

}  // namespace tandem
