#include "gemm/cpu/async_input_product.hpp"

#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "device/cpu/cpu_stamps.hpp"
#include "device/cpu/word_wait.hpp"
#include "gemm/cpu/tile_product.hpp"
#include "symm/cpu/chunk_wait.hpp"
#include "symm/cpu/group_use.hpp"

namespace tandem::gemm::cpu {
namespace {

constexpr const char* kWho = "async_input_mm";

// Memory order: a chunk's bytes are written before its signal by one stream, which is one thread; the signal
// is a release (stream_write_value32), every look at it here an acquire. So a look that finds the signal sees
// the bytes.

bool is_complete(const AsyncInputProduct& product, int chunk) {
  return product.complete_first <= chunk && chunk < product.complete_end;
}

symm::AwaitedChunks awaited(const AsyncInputProduct& product) {
  return {.words = product.signals,
          .chunks_per_rank = product.chunks_per_rank,
          .expected = product.expected,
          .are_relayed = product.are_relayed};
}

Result<void> await_chunk(const AsyncInputProduct& product, int chunk) {
  if (is_complete(product, chunk)) return {};
  if (product.group) return symm::cpu::await_chunk(*product.group, awaited(product), chunk, kWho);
  TANDEM_ASSIGN(const std::uint32_t seen, tandem::cpu::await_word(product.signals + chunk, product.expected,
                                                                  Deadline::after(product.timeout)));
  if (tandem::cpu::has_reached(seen, product.expected)) return {};
  const Shard rows = product.order.rows_of(chunk);
  return failf(
      ErrorCode::kTimeout,
      "async_input_mm: chunk {} of {} (rows {} to {} of a) had not arrived after {} ms: its signal is {}, "
      "expected {}",
      chunk, product.num_chunks, rows.offset, rows.offset + rows.size - 1,
      std::chrono::duration_cast<std::chrono::milliseconds>(product.timeout).count(), seen, product.expected);
}

bool has_arrived(const AsyncInputProduct& product, int chunk) {
  if (is_complete(product, chunk)) return true;
  return tandem::cpu::has_reached(tandem::cpu::acquire_word(product.signals + chunk), product.expected);
}

int sender_of(const AsyncInputProduct& product, int chunk) {
  return static_cast<int>(chunk / product.chunks_per_rank);
}

/// Whether the chunk's rows lie right behind those of the one before.
bool goes_on(const AsyncInputProduct& product, int last, int chunk) {
  if (chunk != last + 1 || is_complete(product, chunk) != is_complete(product, last)) return false;
  if (product.telling) return false;  // its owner hears of it at once
  return !product.held || sender_of(product, chunk) == sender_of(product, last);
}

/// Where a's rows from the chunk's first one on lie.
std::byte* rows_at(const AsyncInputProduct& product, int chunk) {
  const TileProblem& whole = product.whole;
  const std::int64_t row_bytes = whole.a.row_stride * size_bytes(whole.a_dtype);
  const std::int64_t first = product.order.rows_of(chunk).offset;
  if (is_complete(product, chunk)) {
    const std::int64_t first_complete = product.order.rows_of(product.complete_first).offset;
    return static_cast<std::byte*>(const_cast<void*>(product.complete)) +
           (first - first_complete) * row_bytes;
  }
  std::byte* a = static_cast<std::byte*>(whole.a.data);
  if (product.held) {
    void* const* const blocks = product.group->buffers;
    a = static_cast<std::byte*>(blocks[sender_of(product, chunk)]) +
        (a - static_cast<std::byte*>(blocks[product.group->rank]));
  }
  return a + first * row_bytes;
}

/// The product of chunks [first, last], whose rows lie one behind the other.
TileProblem rows_of(const AsyncInputProduct& product, int first_chunk, int last_chunk) {
  const TileProblem& whole = product.whole;
  const std::int64_t first = product.order.rows_of(first_chunk).offset;
  const Shard end = product.order.rows_of(last_chunk);
  TileProblem part = whole;
  part.m = end.offset + end.size - first;
  part.a.data = rows_at(product, first_chunk);
  part.out.data =
      static_cast<std::byte*>(whole.out.data) + first * whole.out.row_stride * size_bytes(whole.out_dtype);
  return part;
}

/// The ranks that own chunks [first, last], that their rows are made.
Result<void> tell(const AsyncInputProduct& product, int first, int last) {
  const Telling& telling = *product.telling;
  auto& peers = *static_cast<symm::Peers*>(telling.ranks.control);
  const symm::cpu::GroupUse use(peers);
  TANDEM_TRY(use.check());
  for (int owner = first; owner <= last; ++owner) {
    if (owner == telling.ranks.rank) continue;
    auto* const block = static_cast<std::byte*>(telling.ranks.buffers[owner]);
    TANDEM_TRY(symm::cpu::write_word(
        peers, owner, reinterpret_cast<std::uint32_t*>(block + telling.word_bytes), telling.value));
  }
  return {};
}

/// The chunks that are left, by their steps in the order.
class Remaining {
 public:
  explicit Remaining(const AsyncInputProduct& product) : product_(product), is_taken_(taken_by_thread()) {
    is_taken_.assign(static_cast<std::size_t>(product.order.size()), 0);
  }

  /// The first step that is left; past all if none is.
  [[nodiscard]] int first() {
    while (first_ < product_.order.size() && is_taken(first_)) ++first_;
    return first_;
  }
  [[nodiscard]] bool is_ready(int step) const {
    return !is_taken(step) && has_arrived(product_, product_.order.chunk(step));
  }
  /// The first step whose chunk has arrived; past all if none has.
  [[nodiscard]] int first_ready() {
    int step = first();
    while (step < product_.order.size() && !is_ready(step)) ++step;
    return step;
  }
  void take(int step) { is_taken_[static_cast<std::size_t>(step)] = 1; }

 private:
  [[nodiscard]] bool is_taken(int step) const { return is_taken_[static_cast<std::size_t>(step)] != 0; }
  /// It grows once: a stream's worker allocates nothing for a product like one before.
  static std::vector<char>& taken_by_thread() {
    thread_local std::vector<char> taken;
    return taken;
  }

  const AsyncInputProduct& product_;
  std::vector<char>& is_taken_;
  int first_ = 0;
};

/// The step to go on with, whose chunk is there then.
Result<int> await_step(const AsyncInputProduct& product, Remaining& left) {
  const int first = left.first();
  const int chunk = product.order.chunk(first);
  if (product.in_order) {
    TANDEM_TRY(await_chunk(product, chunk));
    return first;
  }
  int ready = left.first_ready();
  const bool is_there = ready < product.order.size();
  if (is_there && (!product.held || is_complete(product, product.order.chunk(ready)))) return ready;
  if (!product.held) {
    TANDEM_TRY(await_chunk(product, chunk));
    return first;
  }
  TANDEM_TRY(symm::cpu::await_any_chunk(*product.group, awaited(product), chunk, kWho, [&] {
    ready = left.first_ready();
    return ready < product.order.size();
  }));
  return ready;
}

/// The same, noted if it is a wait.
Result<int> await_next(const AsyncInputProduct& product, Remaining& left) {
  if (!product.chunk_waits) return await_step(product, left);
  const bool is_there =
      product.in_order ? left.is_ready(left.first()) : left.first_ready() < product.order.size();
  if (is_there) return await_step(product, left);
  const std::int64_t begin_ns = host_now_ns();
  auto step = await_step(product, left);
  if (step) tandem::cpu::note_wait(product.chunk_waits, product.order.chunk(*step), begin_ns);
  return step;
}

}  // namespace

Result<void> run(const AsyncInputProduct& product, const TileKernels& kernels) {
  TANDEM_ASSIGN(const RowProduct rows, RowProduct::make(product.whole, kernels));
  const ChunkOrder& order = product.order;
  Remaining left(product);
  while (left.first() < order.size()) {
    TANDEM_ASSIGN(int step, await_next(product, left));
    const int first = order.chunk(step);
    int last = first;
    left.take(step);
    for (++step; step < order.size() && goes_on(product, last, order.chunk(step)) && left.is_ready(step);
         ++step) {
      left.take(step);
      ++last;
    }
    TANDEM_TRY(rows.multiply(rows_of(product, first, last)));
    if (product.telling) TANDEM_TRY(tell(product, first, last));
  }
  // Of parts without rows too: every rank hears of every other one.
  return product.telling ? tell(product, order.size(), product.num_chunks - 1) : Result<void>();
}

}  // namespace tandem::gemm::cpu
