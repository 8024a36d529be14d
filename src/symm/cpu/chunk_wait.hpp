#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/symm/kernel.hpp>

#include "base/function_ref.hpp"
#include "symm/chunk_words.hpp"
#include "symm/service.hpp"

namespace tandem::symm::cpu {

// Memory order: a chunk's bytes and then its word are written by one stream of the sender, which is one
// thread; the word is a release (write_word(), stream_write_value32), every look at it here an acquire. So a
// look that finds it sees the bytes.

/// Inside a task: the word, which lies in the memory of `peer`, = value. Wakes who sleeps on it, and the
/// peer's doorbell.
[[nodiscard]] Result<void> write_word(const Peers& peers, int peer, std::uint32_t* word, std::uint32_t value);

/// Inside a task: waits until the word of chunk `chunk` has come. `what` is the call, for errors. Sleeps on
/// the word itself: its writer is a stream, which rings no doorbell.
/// Errors: as Control::wait(); kInvalidArgument if the group has ended.
[[nodiscard]] Result<void> await_chunk(const KernelHandle& handle, const AwaitedChunks& chunks,
                                       std::int64_t chunk, const char* what);

/// The same for the first of several chunks that is there: until ready(). `chunk` is one that is missing. The
/// rank sleeps on its doorbell, so all of the words are written by write_word().
[[nodiscard]] Result<void> await_any_chunk(const KernelHandle& handle, const AwaitedChunks& chunks,
                                           std::int64_t chunk, const char* what, FunctionRef<bool()> ready);

}  // namespace tandem::symm::cpu
