#include "symm/chunk_words.hpp"

#include "base/try.hpp"
#include "symm/service.hpp"

namespace tandem::symm {

Result<void> await_chunks(const Handle& handle, const AwaitedChunks& chunks, Stream& stream) {
  TANDEM_TRY(handle.watch(stream));
  if (chunks.count == 0) return {};
  TANDEM_ASSIGN(Service * service, service_of(stream.device()));
  return service->enqueue_chunk_waits(handle, chunks, stream);
}

Result<void> reset_words(Handle& handle, const TensorView& words, int channel, Stream& stream) {
  TANDEM_TRY(handle.watch(stream));
  TANDEM_ASSIGN(Service * service, service_of(stream.device()));
  return service->enqueue_word_reset(handle, words, channel, stream);
}

}  // namespace tandem::symm
