#include "symm/chunk_words.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "symm/service.hpp"

namespace tandem::symm {

Result<void> Service::enqueue_chunk_waits(const Handle&, const AwaitedChunks&, Stream& stream) {
  return failf(ErrorCode::kUnsupported, "streams of {} cannot wait for chunks",
               to_string(stream.device().id()));
}

Result<void> await_chunks(const Handle& handle, const AwaitedChunks& chunks, Stream& stream) {
  TANDEM_TRY(handle.watch(stream));
  if (chunks.count == 0) return {};
  TANDEM_ASSIGN(Service * service, service_of(stream.device()));
  return service->enqueue_chunk_waits(handle, chunks, stream);
}

Support can_await_chunks(const Device& device) {
  const auto service = service_of(device);
  if (!service) return Support::no(service.error().text());
  if ((*service)->awaits_chunks()) return Support::yes();
  return Support::no(fmt::format("streams of {} cannot wait for chunks", to_string(device.id())));
}

}  // namespace tandem::symm
