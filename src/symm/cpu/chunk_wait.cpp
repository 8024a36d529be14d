#include "symm/cpu/chunk_wait.hpp"

#include "base/try.hpp"
#include "device/cpu/word_wait.hpp"
#include "symm/cpu/group_use.hpp"
#include "symm/peers_handle.hpp"

namespace tandem::symm::cpu {
namespace {

bootstrap::WaitInfo wait_info(const AwaitedChunks& chunks, std::int64_t chunk, const char* what) {
  return {.what = what,
          .peer = static_cast<int>(chunk / chunks.chunks_per_rank),
          .expected = chunks.expected,
          .word = reinterpret_cast<const std::atomic<std::uint32_t>*>(chunks.words + chunk),
          .chunk = static_cast<int>(chunk),
          .is_relayed = chunks.are_relayed};
}

/// `wait` with the group's control, once the group is known to live.
template <class Wait>
Result<void> wait_in_group(const KernelHandle& handle, Wait wait) {
  auto& peers = *static_cast<Peers*>(handle.control);
  const GroupUse use(peers);
  TANDEM_TRY(use.check());
  fault_at(peers, "wait");
  return wait(*peers.control, Deadline::after(std::chrono::nanoseconds(handle.timeout_ns)));
}

}  // namespace

Result<void> write_word(const Peers& peers, int peer, std::uint32_t* word, std::uint32_t value) {
  constexpr std::uint32_t kFlipped = 1U << 31;
  const bool corrupts = peer != peers.rank && fault_at(peers, "put") == FaultAction::kCorrupt;
  TANDEM_TRY(tandem::cpu::write_word(word, corrupts ? value ^ kFlipped : value));
  peers.control->ring(peer);
  return {};
}

Result<void> await_any_chunk(const KernelHandle& handle, const AwaitedChunks& chunks, std::int64_t chunk,
                             const char* what, FunctionRef<bool()> ready) {
  return wait_in_group(handle, [&](bootstrap::Control& control, Deadline deadline) {
    return control.wait(wait_info(chunks, chunk, what), deadline, ready);
  });
}

Result<void> await_chunk(const KernelHandle& handle, const AwaitedChunks& chunks, std::int64_t chunk,
                         const char* what) {
  // As long as a nap may be without a deadline passing by, or the group's error being heard late.
  constexpr std::chrono::nanoseconds kNap = std::chrono::milliseconds(1);
  const std::uint32_t* word = chunks.words + chunk;
  return wait_in_group(handle, [&](bootstrap::Control& control, Deadline deadline) {
    return control.wait(
        wait_info(chunks, chunk, what), deadline,
        [&] { return tandem::cpu::has_reached(tandem::cpu::acquire_word(word), chunks.expected); },
        [&] { static_cast<void>(tandem::cpu::await_word(word, chunks.expected, Deadline::after(kNap))); });
  });
}

}  // namespace tandem::symm::cpu
