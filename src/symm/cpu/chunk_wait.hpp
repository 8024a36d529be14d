#pragma once

#include <cstdint>
#include <tandem/base/error.hpp>
#include <tandem/symm/kernel.hpp>

#include "symm/chunk_words.hpp"

namespace tandem::symm::cpu {

// Memory order: a chunk's bytes and then its word are written by one stream of the sender, which is one
// thread; the word is a release (stream_write_value32), every look at it here an acquire. So a look that
// finds it sees the bytes.

/// Inside a task: waits until the word of chunk `chunk` has come. `what` is the call, for errors. Sleeps on
/// the word itself: its writer is a stream, which rings no doorbell.
/// Errors: as Control::wait(); kInvalidArgument if the group has ended.
[[nodiscard]] Result<void> await_chunk(const KernelHandle& handle, const AwaitedChunks& chunks,
                                       std::int64_t chunk, const char* what);

}  // namespace tandem::symm::cpu
