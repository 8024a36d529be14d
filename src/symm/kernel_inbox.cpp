#include "symm/kernel_inbox.hpp"

#include "base/alignment.hpp"
#include "base/format.hpp"
#include "base/try.hpp"
#include "symm/agreement.hpp"
#include "symm/placed_memory.hpp"

namespace tandem::symm {
namespace {

constexpr std::int64_t kWordBytes = 4;
/// Of words, and of data.
constexpr std::int64_t kAlignment = 128;
constexpr std::int64_t kCountersBytes = kAlignment;

std::int64_t whole_lines(std::int64_t num_bytes) {
  return aligned(num_bytes, kAlignment);
}

}  // namespace

Result<KernelInboxPlace> KernelInbox::place(const Need& need, Group& group, Stream& stream) {
  if (blocks_.empty() || need.data_bytes > capacity_.data_bytes || need.num_words > capacity_.num_words) {
    if (stream.is_capturing()) {
      return failf(ErrorCode::kInvalidArgument,
                   "the group has memory for {} bytes of partials and needs {}, which no recording can make: "
                   "to capture this call, first run it once eagerly with tensors of these sizes",
                   capacity_.data_bytes, need.data_bytes);
    }
    TANDEM_TRY(grow(need, group, stream));
  }
  const std::int64_t words_stride = capacity_.num_words * kWordBytes;
  return KernelInboxPlace{.handle = block().get(),
                          .counters_bytes = 0,
                          .words_bytes = kCountersBytes,
                          .words_stride = words_stride,
                          .data_bytes = kCountersBytes + 2 * words_stride,
                          .data_stride = capacity_.data_bytes};
}

Result<void> KernelInbox::grow(const Need& need, Group& group, Stream& stream) {
  const Need capacity = {
      .data_bytes = whole_lines(grown(capacity_.data_bytes, need.data_bytes)),
      .num_words = whole_lines(grown(capacity_.num_words, need.num_words) * kWordBytes) / kWordBytes};
  const std::int64_t num_bytes = kCountersBytes + 2 * (capacity.data_bytes + capacity.num_words * kWordBytes);
  auto memory = PlacedMemory::make(group, stream.device(), num_bytes);
  if (!memory) return tl::unexpected(refuse(group, std::move(memory).error()));
  TANDEM_ASSIGN(std::shared_ptr<Handle> handle, memory->connect(group, stream));
  blocks_.push_back({.tensor = (*std::move(memory)).take_tensor(), .handle = std::move(handle)});
  capacity_ = capacity;
  return {};
}

}  // namespace tandem::symm
