#include "gemm/cpu/async_input_product.hpp"

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cpu/word_wait.hpp"

namespace tandem::gemm::cpu {
namespace {

// Memory order: a chunk's bytes are written before its signal by one stream, which is one thread; the signal
// is a release (stream_write_value32), every look at it here an acquire. So a look that finds the signal sees
// the bytes.

Result<void> await_chunk(const AsyncInputProduct& product, int chunk) {
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
  return tandem::cpu::has_reached(tandem::cpu::acquire_word(product.signals + chunk), product.expected);
}

TileProblem rows_of(const TileProblem& whole, std::int64_t first, std::int64_t count) {
  TileProblem part = whole;
  part.m = count;
  part.a.data =
      static_cast<std::byte*>(whole.a.data) + first * whole.a.row_stride * size_bytes(whole.in_dtype);
  part.out.data =
      static_cast<std::byte*>(whole.out.data) + first * whole.out.row_stride * size_bytes(whole.out_dtype);
  return part;
}

}  // namespace

Result<void> run(const AsyncInputProduct& product, TileKernel kernel) {
  const ChunkOrder& order = product.order;
  for (int step = 0; step < order.size();) {
    const int first = order.chunk(step);
    TANDEM_TRY(await_chunk(product, first));
    int last = first;
    for (++step; step < order.size() && order.chunk(step) == last + 1 && has_arrived(product, last + 1);
         ++step)
      ++last;
    const std::int64_t begin = order.rows_of(first).offset;
    const Shard end = order.rows_of(last);
    TANDEM_TRY(run(rows_of(product.whole, begin, end.offset + end.size - begin), kernel));
  }
  return {};
}

}  // namespace tandem::gemm::cpu
