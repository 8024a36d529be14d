#include "symm/inbox.hpp"

#include <algorithm>
#include <tandem/symm/symmetric_memory.hpp>

#include "base/alignment.hpp"
#include "base/try.hpp"
#include "symm/agreement.hpp"
#include "symm/placed_memory.hpp"

namespace tandem::symm {
namespace {

constexpr std::int64_t kWordBytes = 4;
/// Of slots, and of words and flags in a slot.
constexpr std::int64_t kAlignment = 128;

/// Words that end where an address of this alignment does.
std::int64_t whole_lines(std::int64_t num_words) {
  return aligned(num_words * kWordBytes, kAlignment) / kWordBytes;
}

/// Those of chunks, then flags.
std::int64_t all_words(const Inbox::Need& need) {
  return whole_lines(need.num_words) + need.num_flags;
}

}  // namespace

Result<TensorView> InboxSlot::data(const Dims& sizes, DType dtype) const {
  return handle->get_buffer(handle->rank(), sizes, dtype, data_bytes / size_bytes(dtype));
}

Result<TensorView> InboxSlot::words(int rank) const {
  return handle->get_buffer(rank, {num_words}, DType::kU32, words_bytes / kWordBytes);
}

bool Inbox::fits(const Need& need) const {
  return block_.handle != nullptr && need.data_bytes <= capacity_.data_bytes &&
         all_words(need) <= capacity_.num_words && last_.epoch < longest_;
}

Result<InboxSlot> Inbox::next(const Need& need, Group& group, Stream& stream) {
  if (!fits(need)) TANDEM_TRY(replace(need, group, stream));
  const std::uint32_t epoch = last_.epoch + 1;
  const std::int64_t slot = epoch % 2;
  const std::int64_t words_bytes = 2 * capacity_.data_bytes + slot * capacity_.num_words * kWordBytes;
  last_ = {.handle = block_.handle.get(),
           .epoch = epoch,
           .data_bytes = slot * capacity_.data_bytes,
           .words_bytes = words_bytes,
           .num_words = need.num_words,
           .flags_bytes = words_bytes + aligned(need.num_words * kWordBytes, kAlignment)};
  return last_;
}

Result<void> Inbox::replace(const Need& need, Group& group, Stream& stream) {
  const Need capacity = {.data_bytes = aligned(grown(capacity_.data_bytes, need.data_bytes), kAlignment),
                         .num_words = whole_lines(grown(capacity_.num_words, all_words(need)))};
  const std::int64_t num_bytes = 2 * (capacity.data_bytes + capacity.num_words * kWordBytes);
  auto memory = PlacedMemory::make(group, stream.device(), num_bytes);
  if (!memory) return tl::unexpected(refuse(group, std::move(memory).error()));
  TANDEM_ASSIGN(std::shared_ptr<Handle> handle, memory->connect(group, stream));
  if (block_.handle != nullptr) TANDEM_TRY(retire(stream));
  block_ = {.tensor = (*std::move(memory)).take_tensor(), .handle = std::move(handle)};
  capacity_ = capacity;
  last_.epoch = 0;
  return {};
}

// Ops of a group run one after the other, so a mark where the next one begins is behind all that used the
// block.
Result<void> Inbox::retire(Stream& stream) {
  std::erase_if(retired_, [](const Block& block) { return block.last_use->is_done(); });
  TANDEM_ASSIGN(block_.last_use, stream.device().create_mark());
  TANDEM_TRY(stream.record(*block_.last_use));
  retired_.push_back(std::move(block_));
  return {};
}

}  // namespace tandem::symm
