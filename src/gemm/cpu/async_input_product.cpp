#include "gemm/cpu/async_input_product.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cpu/word_wait.hpp"
#include "gemm/cpu/tile_product.hpp"
#include "symm/cpu/chunk_wait.hpp"

namespace tandem::gemm::cpu {
namespace {

// Memory order: a chunk's bytes are written before its signal by one stream, which is one thread; the signal
// is a release (stream_write_value32), every look at it here an acquire. So a look that finds the signal sees
// the bytes.

bool is_complete(const AsyncInputProduct& product, int chunk) {
  return product.complete_first <= chunk && chunk < product.complete_end;
}

Result<void> await_sender(const AsyncInputProduct& product, int chunk) {
  return symm::cpu::await_chunk(
      *product.group,
      {.words = product.signals, .chunks_per_rank = product.chunks_per_rank, .expected = product.expected},
      chunk, "async_input_mm");
}

Result<void> await_chunk(const AsyncInputProduct& product, int chunk) {
  if (is_complete(product, chunk)) return {};
  if (product.group) return await_sender(product, chunk);
  TANDEM_ASSIGN(const std::uint32_t seen, tandem::cpu::await_word(product.signals + chunk, product.expected,
                                                                  Deadline::after(product.timeout)));
  if (tandem::cpu::has_reached(seen, product.expected)) return {};
  const Shard rows = product.order.rows_of(chunk);
  return failf(
      ErrorCode::kTimeout,
      "async_input_mm: chunk {} of {} (rows {} to {} of a) had not arrived after {} ms: its signal is {}, "
      "expected {}",
      chunk, product.num_signals, rows.offset, rows.offset + rows.size - 1,
      std::chrono::duration_cast<std::chrono::milliseconds>(product.timeout).count(), seen, product.expected);
}

bool has_arrived(const AsyncInputProduct& product, int chunk) {
  if (is_complete(product, chunk)) return true;
  return tandem::cpu::has_reached(tandem::cpu::acquire_word(product.signals + chunk), product.expected);
}

/// Whether the chunk's rows lie right behind those of the one before.
bool goes_on(const AsyncInputProduct& product, int last, int chunk) {
  return chunk == last + 1 && is_complete(product, chunk) == is_complete(product, last);
}

/// The product of chunks [first, last], which are all complete or all not.
TileProblem rows_of(const AsyncInputProduct& product, int first_chunk, int last_chunk) {
  const TileProblem& whole = product.whole;
  const std::int64_t first = product.order.rows_of(first_chunk).offset;
  const Shard end = product.order.rows_of(last_chunk);
  TileProblem part = whole;
  part.m = end.offset + end.size - first;
  part.a.data =
      static_cast<std::byte*>(whole.a.data) + first * whole.a.row_stride * size_bytes(whole.a_dtype);
  if (is_complete(product, first_chunk)) {
    const std::int64_t first_complete = product.order.rows_of(product.complete_first).offset;
    part.a.data = static_cast<std::byte*>(const_cast<void*>(product.complete)) +
                  (first - first_complete) * whole.a.row_stride * size_bytes(whole.a_dtype);
  }
  part.out.data =
      static_cast<std::byte*>(whole.out.data) + first * whole.out.row_stride * size_bytes(whole.out_dtype);
  return part;
}

}  // namespace

Result<void> run(const AsyncInputProduct& product, const TileKernels& kernels) {
  TANDEM_ASSIGN(const RowProduct rows, RowProduct::make(product.whole, kernels));
  const ChunkOrder& order = product.order;
  for (int step = 0; step < order.size();) {
    const int first = order.chunk(step);
    TANDEM_TRY(await_chunk(product, first));
    int last = first;
    for (++step; step < order.size() && goes_on(product, last, order.chunk(step)) &&
                 has_arrived(product, order.chunk(step));
         ++step)
      ++last;
    TANDEM_TRY(rows.multiply(rows_of(product, first, last)));
  }
  return {};
}

}  // namespace tandem::gemm::cpu
