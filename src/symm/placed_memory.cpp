#include "symm/placed_memory.hpp"

#include <tandem/symm/symmetric_memory.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "symm/anchor.hpp"
#include "symm/exchange.hpp"
#include "symm/handle_table.hpp"

namespace tandem::symm {

Result<PlacedMemory> PlacedMemory::make(Group& group, Device& device, std::int64_t num_bytes) {
  TANDEM_ASSIGN(Service * service, service_of(device));
  if (!service->can_place()) {
    TANDEM_ASSIGN(Tensor tensor, empty({num_bytes}, DType::kU8, device));
    return PlacedMemory(std::move(tensor), nullptr);
  }
  HandleTable& table = HandleTable::of(group);
  group.faults().hit("rendezvous", group.rank());
  TANDEM_ASSIGN(Placed placed, service->place(group, placed_records(group, table.num_placed(), num_bytes,
                                                                    table.pad_bytes())));
  table.count_placed();
  placed.peers->belong_to(group, placed.block, table.pad_bytes());
  return PlacedMemory(make_tensor(*service, std::move(placed.block), {num_bytes}, DType::kU8),
                      std::move(placed.peers));
}

Result<std::shared_ptr<Handle>> PlacedMemory::connect(Group& group, Stream& stream) const {
  if (!peers_) return rendezvous(tensor_, group);
  peers_->connected_by = executor_of_stream(stream.id());
  TANDEM_ASSIGN(Service * service, service_of(stream.device()));
  if (auto enqueued = service->enqueue_connect(stream, peers_); !enqueued) {
    group.poison(enqueued.error(), group.rank());  // the others' streams wait for this one
    return tl::unexpected(std::move(enqueued).error());
  }
  auto handle = service->make_handle(peers_, 0);
  HandleTable::of(group).insert(Anchor::of(tensor_), peers_, handle);
  return handle;
}

Result<bool> can_place(const Device& device) {
  TANDEM_ASSIGN(const Service* service, service_of(device));
  return service->can_place();
}

Result<void> await_connected(Group& group, const Peers& peers) {
  const WaitsForExecutor waits(peers.connected_by);  // which may wait for a host in a circle
  return bootstrap::control_of(group).wait(
      {.what = "workspace"}, Deadline::after(group.config().rendezvous_timeout),
      [&] { return peers.is_connected.load(std::memory_order_acquire); });
}

}  // namespace tandem::symm
