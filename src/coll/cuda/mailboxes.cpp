#include "coll/cuda/mailboxes.hpp"

#include <algorithm>
#include <memory>
#include <tandem/symm/symmetric_memory.hpp>
#include <utility>
#include <vector>

#include "base/try.hpp"
#include "coll/cuda/gpus_of_ranks.hpp"
#include "coll/cuda/vectors.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "symm/agreement.hpp"

namespace tandem::coll::cuda {
namespace {

struct OfDevice {
  DeviceId device;
  Tensor tensor;
  std::shared_ptr<symm::Handle> handle;
  Mailboxes boxes;
};
using OfGroup = std::vector<OfDevice>;

/// All blocks of a kernel wait at once. Where ranks share a GPU, those of all of them have to leave room for
/// the product that one of them still waits for.
Result<int> num_pieces_of(Group& group, int gpu) {
  constexpr int kOnSharedGpu = 8;
  TANDEM_ASSIGN(const cudaUUID_t name, name_of_gpu(gpu));
  TANDEM_ASSIGN(const auto names, exchange(name, group, "mailboxes: who is where"));
  return has_each_its_own(names) ? Mailboxes::kMostPieces : kOnSharedGpu;
}

/// Collective.
Result<OfDevice> make(Group& group, Device& device) {
  Mailboxes boxes;
  boxes.ranks.world_size = group.size();
  TANDEM_ASSIGN(boxes.num_pieces, num_pieces_of(group, device.id().index));
  auto tensor = symm::empty({boxes.size_bytes()}, DType::kU8, device);
  if (!tensor) return tl::unexpected(symm::refuse(group, std::move(tensor).error()));
  TANDEM_ASSIGN(std::shared_ptr<symm::Handle> handle, symm::rendezvous(*tensor, group));
  boxes.ranks = handle->kernel_handle();
  const auto blocks = handle->buffer_ptrs();
  std::transform(blocks.begin(), blocks.end(), boxes.blocks,
                 [](void* block) { return static_cast<std::byte*>(block); });
  return OfDevice{device.id(), *std::move(tensor), std::move(handle), boxes};
}

}  // namespace

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
  auto& known = group.extension<OfGroup>("coll.mailboxes", [] { return std::make_shared<OfGroup>(); });
  Device& device = stream.device();
  auto found = std::find_if(known.begin(), known.end(),
                            [&](const OfDevice& one) { return one.device == device.id(); });
  if (found == known.end()) {
    if (stream.is_capturing()) return std::nullopt;
    TANDEM_ASSIGN(OfDevice made, make(group, device));
    known.push_back(std::move(made));
    found = known.end() - 1;
  }
  TANDEM_TRY(found->handle->watch(stream));
  return found->boxes;
}

}  // namespace tandem::coll::cuda
