#include "coll/cuda/mailboxes.hpp"

#include <algorithm>
#include <memory>
#include <tandem/symm/symmetric_memory.hpp>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "bootstrap/told_by_all.hpp"
#include "coll/cuda/gpus_of_ranks.hpp"
#include "coll/cuda/vectors.hpp"
#include "device/cuda/cuda_stream.hpp"

namespace tandem::coll::cuda {
namespace {

struct MailboxesOfDevice {
  DeviceId device;
  Tensor tensor = {};
  std::shared_ptr<symm::Handle> handle = {};
  Mailboxes boxes = {};
};
using MailboxesOfGroup = std::vector<MailboxesOfDevice>;

/// Whether all ranks have succeeded. Collective.
Result<bool> all_have(bool mine, Group& group) {
  TANDEM_ASSIGN(const auto all, bootstrap::told_by_all<int>(mine ? 1 : 0, group, "mailboxes: memory"));
  return std::all_of(all.begin(), all.end(), [](int one) { return one != 0; });
}

/// Collective. Without a handle where a rank has no memory for them, or no time to make it: then the group
/// goes without.
Result<MailboxesOfDevice> make(Group& group, Device& device) {
  MailboxesOfDevice made{.device = device.id()};
  TANDEM_ASSIGN(const Place place, place_of(device.id().index));
  TANDEM_ASSIGN(const auto places, bootstrap::told_by_all(place, group, "mailboxes: who is where"));
  made.boxes.ranks.world_size = group.size();
  made.boxes.num_pieces = num_pieces_for(places);
  auto tensor = symm::empty({made.boxes.size_bytes()}, DType::kU8, device);
  TANDEM_ASSIGN(const bool is_complete, all_have(tensor.has_value(), group));
  if (!is_complete) return made;
  TANDEM_ASSIGN(made.handle, symm::rendezvous(*tensor, group));
  made.tensor = *std::move(tensor);
  made.boxes.ranks = made.handle->kernel_handle();
  const auto blocks = made.handle->buffer_ptrs();
  std::transform(blocks.begin(), blocks.end(), made.boxes.blocks,
                 [](void* block) { return static_cast<std::byte*>(block); });
  return made;
}

}  // namespace

int num_pieces_for(std::span<const Place> places) {
  constexpr int kMostOnSharedGpu = 8;
  int pieces = Mailboxes::kMostPieces;
  for (const Place& place : places) {
    const int sharers = num_ranks_on(place, places);
    if (sharers == 1) continue;
    pieces = std::min(pieces, std::clamp(place.num_multiprocessors / (2 * sharers), 1, kMostOnSharedGpu));
  }
  return pieces;
}

Pieces cut_into_pieces(std::int64_t num_bytes, int max_pieces) {
  constexpr std::int64_t kFewestBytes = 4096;  // a vector a thread
  const std::int64_t wanted =
      std::min<std::int64_t>((num_bytes + kFewestBytes - 1) / kFewestBytes, max_pieces);
  if (wanted == 0) return {};
  const std::int64_t bytes =
      ((num_bytes + wanted - 1) / wanted + kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  return {.count = static_cast<int>((num_bytes + bytes - 1) / bytes), .bytes = bytes};
}

Result<std::optional<Mailboxes>> mailboxes_of(Group& group, tandem::cuda::CudaStream& stream) {
  if (group.size() == 1 || group.size() > kMaxAddresses) return std::nullopt;
  auto& known = group.extension<MailboxesOfGroup>([] { return std::make_shared<MailboxesOfGroup>(); });
  Device& device = stream.device();
  auto found = std::find_if(known.begin(), known.end(),
                            [&](const MailboxesOfDevice& one) { return one.device == device.id(); });
  if (found == known.end()) {
    if (stream.is_capturing()) return std::nullopt;
    TANDEM_ASSIGN(MailboxesOfDevice made, make(group, device));
    known.push_back(std::move(made));
    found = known.end() - 1;
  }
  if (!found->handle) return std::nullopt;
  TANDEM_TRY(found->handle->watch(stream));
  return found->boxes;
}

}  // namespace tandem::coll::cuda
