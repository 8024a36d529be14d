#include <algorithm>
#include <tandem/symm/symmetric_memory.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/hosts.hpp"
#include "symm/agreement.hpp"
#include "symm/anchor.hpp"
#include "symm/handle_table.hpp"
#include "symm/op_workspace.hpp"
#include "symm/service.hpp"

namespace tandem::symm {
namespace {

constexpr std::int64_t kSmallestWorkspaceBytes = 64 * 1024;

// Doubling keeps the number of growths logarithmic.
Result<std::int64_t> grown_bytes(const Device& device, std::int64_t old_bytes, std::int64_t min_bytes) {
  TANDEM_ASSIGN(const Service* service, service_of(device));
  if (service->is_capturing()) {
    return failf(ErrorCode::kUnsupported,
                 "workspace: needs {} bytes and has {} while a stream of {} is capturing: call "
                 "symm::workspace with {} "
                 "bytes before the capture",
                 min_bytes, old_bytes, to_string(device.id()), min_bytes);
  }
  return std::max({min_bytes, 2 * old_bytes, kSmallestWorkspaceBytes});
}

std::int64_t bytes_of(const HandleTable::Workspace* workspace) {
  return workspace == nullptr ? 0 : workspace->handle->buffer_size_bytes();
}

bool is_enough(const HandleTable::Workspace* workspace, std::int64_t min_bytes) {
  return workspace != nullptr && min_bytes <= bytes_of(workspace);
}

}  // namespace

Result<std::shared_ptr<Handle>> workspace(Group& group, Device& device, std::int64_t min_bytes) {
  TANDEM_TRY(bootstrap::check_one_host(group, "symm::workspace"));
  TANDEM_TRY(group.status());
  if (min_bytes < 0) {
    return tl::unexpected(refuse(
        group, failf(ErrorCode::kInvalidArgument, "workspace: {} bytes asked for, need 0 or more", min_bytes)
                   .value()));
  }
  HandleTable& table = HandleTable::of(group);
  const HandleTable::Workspace* present = table.find_workspace(device);
  if (is_enough(present, min_bytes)) {
    const auto peers = table.find_peers(*Anchor::of(present->tensor)->block());
    TANDEM_TRY(await_connected(group, *peers));  // an op's stream may still have to
    return present->handle;
  }
  const auto make_larger = [&]() -> Result<Tensor> {
    TANDEM_ASSIGN(const std::int64_t num_bytes, grown_bytes(device, bytes_of(present), min_bytes));
    return empty({num_bytes}, DType::kU8, device);
  };
  auto tensor = make_larger();
  if (!tensor) return tl::unexpected(refuse(group, std::move(tensor).error()));
  TANDEM_ASSIGN(std::shared_ptr<Handle> handle, rendezvous(*tensor, group));
  table.replace_workspace({&device, *std::move(tensor), handle});
  return handle;
}

Result<std::optional<PlacedMemory>> place_workspace(Group& group, Device& device, std::int64_t min_bytes) {
  const HandleTable::Workspace* present = HandleTable::of(group).find_workspace(device);
  if (min_bytes == 0 || is_enough(present, min_bytes)) return std::nullopt;
  TANDEM_ASSIGN(const std::int64_t num_bytes, grown_bytes(device, bytes_of(present), min_bytes));
  return PlacedMemory::make(group, device, num_bytes);
}

Result<std::shared_ptr<Handle>> connect_workspace(Group& group, Stream& stream,
                                                  std::optional<PlacedMemory> larger) {
  HandleTable& table = HandleTable::of(group);
  if (!larger) return table.find_workspace(stream.device())->handle;
  TANDEM_ASSIGN(std::shared_ptr<Handle> handle, larger->connect(group, stream));
  table.replace_workspace({&stream.device(), std::move(*larger).take_tensor(), handle});
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
