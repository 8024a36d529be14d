#include "symm/cpu/joining.hpp"

#include "base/try.hpp"
#include "symm/hand_over.hpp"

namespace tandem::symm::cpu {
namespace {

using Part = HandOver::Part;

Result<std::shared_ptr<Segment>> take(HandOver& hand_over, const Record& from, Part part,
                                      const SegmentName& expected) {
  const auto import = [&](const UniqueFd& file) -> Result<HandOver::Object> {
    return Segment::import(file, expected);
  };
  TANDEM_ASSIGN(auto object, hand_over.take(from, part, import));
  return std::static_pointer_cast<Segment>(std::move(object));
}

}  // namespace

Result<std::shared_ptr<Peers>> CpuJoining::connect(Group& group, std::span<const Record> table) {
  HandOver hand_over(group, table);
  TANDEM_TRY(hand_over.give(Part::kData, data_, data_->fd()));
  TANDEM_TRY(hand_over.give(Part::kPad, pad_, pad_->fd()));
  auto peers = std::make_shared<Peers>();
  for (const Record& record : table) {
    std::shared_ptr<Segment> data = data_;
    std::shared_ptr<Segment> pad = pad_;
    if (record.rank != group.rank()) {
      TANDEM_ASSIGN(data, take(hand_over, record, Part::kData, {record.block_bytes, record.block_cookie}));
      TANDEM_ASSIGN(pad, take(hand_over, record, Part::kPad, {record.pad_bytes, record.pad_cookie}));
    }
    peers->buffers.push_back(data->data());
    peers->pads.push_back(static_cast<std::uint32_t*>(pad->data()));
    peers->mappings.push_back(std::move(data));
    peers->mappings.push_back(std::move(pad));
  }
  TANDEM_TRY(hand_over.finish());
  pad_->close_fd();  // nobody else will ask for it
  return peers;
}

}  // namespace tandem::symm::cpu
