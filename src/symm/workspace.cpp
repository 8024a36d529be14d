#include <algorithm>
#include <tandem/symm/symmetric_memory.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "symm/agreement.hpp"
#include "symm/handle_table.hpp"
#include "symm/service.hpp"

namespace tandem::symm {
namespace {

constexpr std::int64_t kSmallestWorkspaceBytes = 64 * 1024;

// Doubling keeps the number of growths, each a collective call, logarithmic.
Result<Tensor> make_larger(Device& device, std::int64_t old_bytes, std::int64_t min_bytes) {
  TANDEM_ASSIGN(const Service* service, service_of(device));
  if (service->is_capturing()) {
    return failf(ErrorCode::kUnsupported,
                 "workspace: needs {} bytes and has {} while a stream of {} is capturing: call "
                 "symm::workspace with {} "
                 "bytes before the capture",
                 min_bytes, old_bytes, to_string(device.id()), min_bytes);
  }
  const std::int64_t num_bytes = std::max({min_bytes, 2 * old_bytes, kSmallestWorkspaceBytes});
  return empty({num_bytes}, DType::kU8, device);
}

}  // namespace

Result<std::shared_ptr<Handle>> workspace(Group& group, Device& device, std::int64_t min_bytes) {
  TANDEM_TRY(group.status());
  if (min_bytes < 0) {
    return tl::unexpected(refuse(
        group, failf(ErrorCode::kInvalidArgument, "workspace: {} bytes asked for, need 0 or more", min_bytes)
                   .value()));
  }
  HandleTable& table = HandleTable::of(group);
  const HandleTable::Workspace* present = table.find_workspace(device);
  const std::int64_t old_bytes = present == nullptr ? 0 : present->handle->buffer_size_bytes();
  if (present != nullptr && min_bytes <= old_bytes) return present->handle;

  auto tensor = make_larger(device, old_bytes, min_bytes);
  if (!tensor) return tl::unexpected(refuse(group, std::move(tensor).error()));
  TANDEM_ASSIGN(std::shared_ptr<Handle> handle, rendezvous(*tensor, group));
  table.replace_workspace({&device, *std::move(tensor), handle});
  return handle;
}

Result<void> set_signal_pad_size(Group& group, std::int64_t num_bytes) {
  const std::int64_t unit = std::int64_t{4} * group.size();
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
  if (num_bytes <= 0 || num_bytes % unit != 0 || num_bytes > kMostBytes) {
    return failf(ErrorCode::kInvalidArgument,
                 "set_signal_pad_size: {} bytes; need a positive multiple of {} (4 bytes for each of {} "
                 "ranks), at most {}",
                 num_bytes, unit, group.size(), kMostBytes);
  }
  HandleTable::of(group).set_pad_bytes(num_bytes);
  return {};
}

}  // namespace tandem::symm
