#include "symm/cpu/chunk_wait.hpp"

#include "base/try.hpp"
#include "device/cpu/word_wait.hpp"
#include "symm/cpu/group_use.hpp"
#include "symm/peers_handle.hpp"

namespace tandem::symm::cpu {

Result<void> await_chunk(const KernelHandle& handle, const AwaitedChunks& chunks, std::int64_t chunk,
                         const char* what) {
  // As long as a nap may be without a deadline passing by, or the group's error being heard late.
  constexpr std::chrono::nanoseconds kNap = std::chrono::milliseconds(1);
  auto& peers = *static_cast<Peers*>(handle.control);
  const GroupUse use(peers);
  TANDEM_TRY(use.check());
  fault_at(peers, "wait");
  const std::uint32_t* word = chunks.words + chunk;
  const bootstrap::WaitInfo info{.what = what,
                                 .peer = static_cast<int>(chunk / chunks.chunks_per_rank),
                                 .expected = chunks.expected,
                                 .word = reinterpret_cast<const std::atomic<std::uint32_t>*>(word),
                                 .chunk = static_cast<int>(chunk)};
  return peers.control->wait(
      info, Deadline::after(std::chrono::nanoseconds(handle.timeout_ns)),
      [&] { return tandem::cpu::has_reached(tandem::cpu::acquire_word(word), chunks.expected); },
      [&] { static_cast<void>(tandem::cpu::await_word(word, chunks.expected, Deadline::after(kNap))); });
}

}  // namespace tandem::symm::cpu
