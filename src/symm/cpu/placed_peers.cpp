#include "symm/cpu/placed_peers.hpp"

#include <mutex>

#include "base/format.hpp"
#include "base/try.hpp"
#include "symm/cpu/group_use.hpp"
#include "symm/cpu/signals.hpp"

namespace tandem::symm::cpu {
namespace {

using Part = HandOver::Part;

}  // namespace

Result<HandOver::Object> PlacedPeers::reserve(const std::vector<Record>& records) {
  auto space = std::make_shared<Space>();
  for (const Record& record : records) {
    Pair& pair = space->emplace_back();
    TANDEM_ASSIGN(pair.data, Segment::reserve(record.block_bytes));
    TANDEM_ASSIGN(pair.pad, Segment::reserve(record.pad_bytes));
  }
  return HandOver::Object(std::move(space));
}

Result<std::shared_ptr<PlacedPeers>> PlacedPeers::make(Group& group, std::vector<Record> records) {
  auto peers = std::make_shared<PlacedPeers>();
  peers->records_ = std::move(records);
  peers->hand_over_ = std::make_unique<HandOver>(group, peers->records_);
  const Record& mine = peers->records_[static_cast<std::size_t>(group.rank())];
  const auto make_space = [&] { return reserve(peers->records_); };
  // Ranks that ask for other sizes will disagree: each has its own addresses until then.
  TANDEM_ASSIGN(auto space,
                peers->hand_over_->carries_files()
                    ? make_space()
                    : peers->hand_over_->share(fmt::format("space/{}/{}", mine.block_bytes, mine.pad_bytes),
                                               make_space));
  peers->space_ = std::static_pointer_cast<Space>(std::move(space));
  for (Pair& pair : *peers->space_) {
    peers->buffers.push_back(pair.data->data());
    peers->pads.push_back(static_cast<std::uint32_t*>(pair.pad->data()));
    peers->mappings.push_back(pair.data);
    peers->mappings.push_back(pair.pad);
  }
  TANDEM_TRY(peers->offer(group.rank()));
  peers->is_connected = group.size() == 1;
  return peers;
}

Result<void> PlacedPeers::offer(int own_rank) {
  const Record& mine = records_[static_cast<std::size_t>(own_rank)];
  own_ = &(*space_)[static_cast<std::size_t>(own_rank)];
  TANDEM_TRY(own_->data->fill(mine.block_cookie));
  TANDEM_TRY(own_->pad->fill(mine.pad_cookie));
  TANDEM_TRY(hand_over_->give(Part::kData, own_->data, own_->data->fd()));
  return hand_over_->give(Part::kPad, own_->pad, own_->pad->fd());
}

Result<void> PlacedPeers::take(const Record& from) {
  const Pair& pair = (*space_)[static_cast<std::size_t>(from.rank)];
  for (const Part part : {Part::kData, Part::kPad}) {
    const bool is_data = part == Part::kData;
    const auto import = [&](const UniqueFd& file) -> Result<HandOver::Object> {
      const auto& segment = is_data ? pair.data : pair.pad;
      TANDEM_TRY(segment->attach(file, is_data ? from.block_cookie : from.pad_cookie));
      return HandOver::Object(segment);
    };
    TANDEM_TRY(hand_over_->take(from, part, import));
  }
  return {};
}

Result<void> PlacedPeers::connect() {
  const GroupUse use(*this);
  TANDEM_TRY(use.check());
  if (world_size == 1) return {};
  if (!hand_over_)
    return fail(ErrorCode::kInvalidArgument, "workspace: its group ended before this rank could use it");
  hand_over_->restart_deadline();
  for (const Record& record : records_) {
    if (record.rank != rank) TANDEM_TRY(take(record));
  }
  // Also for the errors of others: no rank goes on to its outputs before all have everything.
  constexpr int kChannel = 0;  // of pads that nobody has used yet
  TANDEM_TRY(meet(*this, {"rendezvous", -1, kChannel, Deadline::after(group->config().rendezvous_timeout)}));
  hand_over_.reset();
  own_->data->close_fd();
  own_->pad->close_fd();
  is_connected.store(true, std::memory_order_release);
  control->ring(rank);  // a host of this rank may wait for it
  return {};
}

void PlacedPeers::see_group_end() {
  const std::lock_guard not_in_use(group_use);
  hand_over_.reset();
}

}  // namespace tandem::symm::cpu
