#include "symm/chunk_words.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "symm/service.hpp"

namespace tandem::symm {

Result<void> await_chunks(const Handle& handle, const AwaitedChunks& chunks, Stream& stream) {
  TANDEM_TRY(handle.watch(stream));
  if (chunks.count == 0) return {};
  TANDEM_ASSIGN(Service * service, service_of(stream.device()));
  return service->enqueue_chunk_waits(handle, chunks, stream);
}

Result<void> write_word(Handle& handle, int peer, const TensorView& words, std::int64_t idx,
                        std::uint32_t value, Stream& stream) {
  TANDEM_ASSIGN(Service * service, service_of(stream.device()));
  return service->enqueue_word_write(handle, peer, words, idx, value, stream);
}

Result<void> Service::enqueue_word_write(Handle&, int, const TensorView& words, std::int64_t idx,
                                         std::uint32_t value, Stream& stream) {
  return stream.stream_write_value32(words, idx, value);
}

Result<void> cross_link(Handle& handle, const Crossing& crossing, Stream& stream) {
  TANDEM_TRY(handle.watch(stream));
  TANDEM_ASSIGN(Service * service, service_of(stream.device()));
  return service->enqueue_crossing(handle, crossing, stream);
}

Result<void> Service::enqueue_crossing(Handle&, const Crossing&, Stream& stream) {
  return failf(ErrorCode::kUnsupported, "cross_link: {} copies what peers have",
               to_string(stream.device().id()));
}

Result<void> reset_words(Handle& handle, const TensorView& words, int channel, Stream& stream) {
  TANDEM_TRY(handle.watch(stream));
  if (channel < 0 || channel >= handle.kernel_handle().num_channels)
    return failf(ErrorCode::kInternal, "reset_words: channel {}", channel);
  TANDEM_ASSIGN(Service * service, service_of(stream.device()));
  return service->enqueue_word_reset(handle, words, channel, stream);
}

Result<void> Service::enqueue_word_reset(Handle& handle, const TensorView& words, int channel,
                                         Stream& stream) {
  TANDEM_TRY(stream.memset32(words, 0, 0, words.numel()));
  return handle.barrier(stream, channel);
}

}  // namespace tandem::symm
