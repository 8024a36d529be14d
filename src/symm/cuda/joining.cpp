#include "symm/cuda/joining.hpp"

#include "base/try.hpp"
#include "symm/cuda/peers.hpp"
#include "symm/hand_over.hpp"

namespace tandem::symm::cuda {
namespace {

using Part = HandOver::Part;

Result<void> give(HandOver& hand_over, const Record& mine, Part part,
                  const std::shared_ptr<Segment>& segment) {
  UniqueFd file;
  if (hand_over.carries_files()) {
    auto exported = segment->export_file();
    if (!exported) return hand_over.give_up(mine, part, exported.error());
    file = *std::move(exported);
  }
  return hand_over.give(part, segment, file.get());
}

Result<std::shared_ptr<Segment>> take(HandOver& hand_over, const Record& from, Part part, int device) {
  const bool is_data = part == Part::kData;
  const SegmentName expected{is_data ? from.block_bytes : from.pad_bytes,
                             is_data ? from.block_cookie : from.pad_cookie};
  const auto import = [&](const UniqueFd& file) -> Result<HandOver::Object> {
    return Segment::import(device, file, expected);
  };
  TANDEM_ASSIGN(auto object, hand_over.take(from, part, import));
  auto segment = std::static_pointer_cast<Segment>(std::move(object));
  if (auto allowed = segment->allow_access(device); !allowed) {
    return hand_over.give_up(from, part, allowed.error());
  }
  return segment;
}

}  // namespace

Result<std::shared_ptr<Peers>> CudaJoining::connect(Group& group, std::span<const Record> table) {
  HandOver hand_over(group, table);
  const Record& mine = table[static_cast<std::size_t>(group.rank())];
  const int device = device_.id().index;
  TANDEM_TRY(give(hand_over, mine, Part::kData, data_));
  TANDEM_TRY(give(hand_over, mine, Part::kPad, pad_));
  auto peers = std::make_shared<CudaPeers>();
  for (const Record& record : table) {
    std::shared_ptr<Segment> data = data_;
    std::shared_ptr<Segment> pad = pad_;
    if (record.rank != group.rank()) {
      TANDEM_ASSIGN(data, take(hand_over, record, Part::kData, device));
      TANDEM_ASSIGN(pad, take(hand_over, record, Part::kPad, device));
    }
    peers->buffers.push_back(data->data());
    peers->pads.push_back(static_cast<std::uint32_t*>(pad->data()));
    peers->mappings.push_back(std::move(data));
    peers->mappings.push_back(std::move(pad));
  }
  if (auto ready = peers->prepare(device_, group); !ready) {
    return hand_over.give_up(mine, Part::kPad, ready.error());
  }
  TANDEM_TRY(hand_over.finish());
  return peers;
}

}  // namespace tandem::symm::cuda
