#include <tandem/symm/symmetric_memory.hpp>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/hosts.hpp"
#include "symm/agreement.hpp"
#include "symm/anchor.hpp"
#include "symm/byte_range.hpp"
#include "symm/exchange.hpp"
#include "symm/handle_table.hpp"

namespace tandem::symm {
namespace {

struct Request {
  std::shared_ptr<Anchor> anchor;
  Service* service = nullptr;
  std::int64_t offset_bytes = 0;
};

Result<Request> check_tensor(const Tensor& tensor, const Group& group) {
  Request request{Anchor::of(tensor)};
  const TensorView& view = tensor.view();
  if (!request.anchor) {
    return failf(ErrorCode::kInvalidArgument,
                 "rendezvous on group '{}': {} is not symmetric memory: get it from symm::empty()",
                 group.name(), to_string(view));
  }
  const Block& block = *request.anchor->block();
  const auto* block_begin = static_cast<const std::byte*>(block.data());
  const ByteRange range = byte_range(view);
  if (range.first < block_begin || range.last > block_begin + block.size_bytes()) {
    return failf(ErrorCode::kInvalidArgument,
                 "rendezvous on group '{}': {} covers bytes {} to {} of a block of {} bytes", group.name(),
                 to_string(view), range.first - block_begin, range.last - block_begin, block.size_bytes());
  }
  request.offset_bytes = static_cast<const std::byte*>(view.data) - block_begin;
  TANDEM_ASSIGN(request.service, service_of(block.device()));
  return request;
}

// What may fail on this rank alone comes before the ranks meet.
Result<std::unique_ptr<Joining>> prepare(const Request& request, std::int64_t pad_bytes) {
  const Block& block = *request.anchor->block();
  if (request.service->is_capturing()) {
    return failf(ErrorCode::kUnsupported, "rendezvous while a stream of {} is capturing: do it before",
                 to_string(block.device().id()));
  }
  return request.service->join(request.anchor->block(), pad_bytes);
}

Result<std::shared_ptr<Peers>> meet(const Request& request, Group& group, HandleTable& table) {
  const Block& block = *request.anchor->block();
  const std::int64_t pad_bytes = table.pad_bytes();
  auto joining = prepare(request, pad_bytes);
  if (!joining) return tl::unexpected(refuse(group, std::move(joining).error()));
  group.faults().hit("rendezvous", group.rank());
  TANDEM_TRY(agree_now(group, bootstrap::Fingerprint::of(describe(block, pad_bytes, request.offset_bytes))));
  const Record mine = make_record(group, table.next_number(), block, pad_bytes, request.offset_bytes,
                                  (*joining)->pad_cookie());
  TANDEM_ASSIGN(const std::vector<Record> records, exchange_records(group, mine));
  TANDEM_ASSIGN(std::shared_ptr<Peers> peers, (*joining)->connect(group, records));
  peers->belong_to(group, request.anchor->block(), pad_bytes);
  return peers;
}

}  // namespace

Result<std::shared_ptr<Handle>> rendezvous(const Tensor& tensor, Group& group) {
  TANDEM_TRY(bootstrap::check_one_host(group, "symm::rendezvous"));
  TANDEM_TRY(group.status());
  auto request = check_tensor(tensor, group);
  if (!request) return tl::unexpected(refuse(group, std::move(request).error()));
  HandleTable& table = HandleTable::of(group);
  const Block& block = *request->anchor->block();
  if (auto found = table.find_exact(block, request->offset_bytes)) return found;
  // Another start in a block that the ranks have exchanged needs no communication.
  std::shared_ptr<Peers> peers = table.find_peers(block);
  if (!peers) {
    TANDEM_ASSIGN(peers, meet(*request, group, table));
  }
  auto handle = request->service->make_handle(peers, request->offset_bytes);
  table.insert(request->anchor, peers, handle);
  return handle;
}

std::shared_ptr<Handle> find_handle(const TensorView& view, Group& group) {
  if (view.data == nullptr) return nullptr;
  const ByteRange range = byte_range(view);
  return HandleTable::of(group).find_covering(range.first, range.last, view.device);
}

}  // namespace tandem::symm
