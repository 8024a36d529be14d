#include "gemm/choose.hpp"

#include "base/format.hpp"

namespace tandem::gemm {

const Implementation* choose(const Device& device, Accepts accepts, std::string* reasons) {
  const Backend* backend = device.service<Backend>();
  if (backend == nullptr) {
    if (reasons) *reasons = fmt::format("{} has no products attached", to_string(device.id()));
    return nullptr;
  }
  std::string why_not;
  for (const Implementation* implementation : backend->implementations()) {
    if (accepts(*implementation, reasons ? &why_not : nullptr)) return implementation;
    if (reasons) {
      if (!reasons->empty()) *reasons += "; ";
      *reasons += fmt::format("{}: {}", implementation->name(), why_not);
    }
  }
  return nullptr;
}

}  // namespace tandem::gemm
