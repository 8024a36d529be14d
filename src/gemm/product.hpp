#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/gemm/async_input_mm.hpp>
#include <tandem/gemm/matmul_4bit.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/scaled_mm.hpp>

#include "cost/machine.hpp"
#include "device/stamps.hpp"
#include "gemm/partial_grid.hpp"
#include "gemm/piece_grid.hpp"
#include "symm/kernel_inbox.hpp"

namespace tandem::gemm {

class Implementation;
class PackedOperand;

// One product of any kind: what mm(), scaled_matmul(), async_input_mm() and matmul_4bit() come down to.

/// A product that sends while it multiplies: complete.rows, this rank's whole shard, in small pieces to the
/// `peers` ranks before this one, which multiply them at the same time. The same number of ranks behind this
/// one send to it. Their pieces are awaited one by one, each by its own flag; their chunks' signals are
/// ignored. For outputs that need the rows before a copy could bring them.
///
/// Where shards are whole tiles the own one is multiplied from complete.rows. Else a tile may have rows of
/// several shards, few rows come in all, and a product sends to all other ranks and to its own part of the
/// block too. Shards may then be short or empty, and complete.rows has no rows then.
struct PieceExchange {
  int peers = 0;                 ///< 1 to all other ranks, the same on every rank
  std::int64_t rows_bytes = 0;   ///< from the start of the senders' block to a, the same on every rank
  std::int64_t flags_bytes = 0;  ///< and to the flags: u32, num_piece_flags() of them, compared as signals
  bool sends = true;             ///< not if an earlier product has sent these rows
};
/// Ranks that can exchange pieces: each other one has a lane of the warp that sends.
inline constexpr int kMostPieceRanks = 33;
/// Flags of the pieces of `rows` rows, which are sharded over `ranks` ranks.
[[nodiscard]] std::int64_t num_piece_flags(std::int64_t rows, int ranks, std::int64_t row_bytes);

/// How the left operand comes: in chunks, each behind its signal. See AsyncInputMmArgs.
struct Arrival {
  TensorView signals;          ///< u32 [chunks]
  std::int64_t pivot = 0;      ///< the chunk that is taken first
  std::uint32_t expected = 1;  ///< a signal s is there once (int32) (s - expected) >= 0
  std::int64_t chunks_together = 1;
  bool in_order = true;
  std::optional<CompleteChunks> complete = {};
  std::optional<ChunkSenders> senders = {};
  /// Rows of chunks that are not complete lie in their senders' blocks, where a has them in this rank's, and
  /// are read there. Needs `senders`, and signals that symm::write_word() writes.
  bool held = false;
  bool are_relayed = false;                  ///< signals of held rows: see symm::AwaitedChunks
  std::optional<PieceExchange> pieces = {};  ///< needs `complete`, `senders` and GPUs
  /// Of the rows that are complete, or of none, where a_scale is one of rows: [rows, 1 or kb], f32. The
  /// others arrive in a_scale [m, 1 or kb] before their chunk's signal, for which pieces wait too; without it
  /// they are there.
  std::optional<TensorView> complete_scale = {};
  /// The call before it in the stream is symm::reset_words() of `signals` and of the pieces' flags. The
  /// product may begin while that runs.
  bool begins_early = false;
  /// Multiprocessors that the product leaves to kernels that bring chunks while it runs.
  int left_free = 0;
};

/// Where the rows of a product go: each rank owns a shard of them, by the shard rule, and its `out` receives
/// the sum over all ranks of its own rows: added in f32 in rank order, divided, plus bias, rounded once. What
/// other ranks send is rounded to out's type before. Bias is of that sum; that of the product is of this
/// rank's own partial. All ranks of the group make such a product at the same
/// time, each from its own a and b.
struct Departure {
  int world = 1;
  int rank = 0;
  bool gives_all = false;  ///< every rank owns all rows: `out` is of all of them, the same on every rank
  symm::KernelInboxPlace place = {};  ///< with room for partial_grid_of() this product; not for prepare()
  float divisor = 1;
  const TensorView* bias = nullptr;  ///< [n], of out's type
  /// [m, n] contiguous, of out's type: receives this rank's own partial.
  const TensorView* product = nullptr;
};

/// The ranks of a group own the rows of a product, each a shard by the shard rule. As soon as the rows of
/// another rank are made, the word at `word_bytes` of its block is `value`: symm::write_word(). Also where it
/// owns none. The own rows come last.
struct Telling {
  symm::Handle* handle = nullptr;
  std::int64_t word_bytes = 0;
  std::uint32_t value = 0;
};

/// out = (sum_k a * b * a_scale * b_scale + bias) * result_scale + addend, in the order of ScaledMmArgs in
/// f32, rounded once, or as MmArgs says of an addend. Accumulating, the sum begins with out instead of 0. A
/// null pointer leaves its part out. The views are read during the call only.
/// Shapes:  a [m, k], b [k, n], out and addend [m, n], bias [n]; with scales or f8 those of ScaledMmArgs.
/// Types:   without scales and f8, and where the addend has out's type, those of MmArgs; else those of
///          ScaledMmArgs, not accumulating. By a packed weight, those of Matmul4bitArgs.
struct ProductArgs {
  const TensorView* a = nullptr;
  const TensorView* b = nullptr;
  const PackedWeight* packed = nullptr;     ///< b, its scales and bias, where those pointers are null
  const PackedOperand* packed_b = nullptr;  ///< of plain products: b's values; b is its like() then
  const TensorView* out = nullptr;
  const TensorView* bias = nullptr;
  const TensorView* a_scale = nullptr;
  const TensorView* b_scale = nullptr;
  const TensorView* result_scale = nullptr;
  const TensorView* addend = nullptr;
  bool accumulate = false;
  bool fast_accum = false;           ///< see ScaledMmArgs
  int heuristic = 0;                 ///< see MmArgs
  const Arrival* arrival = nullptr;  ///< null: a is there
  /// Out has the own rows then, [shard of m, n]. A null b: a is this rank's product itself, [m, n], of out's
  /// type or f32.
  const Departure* departure = nullptr;
  const Telling* telling = nullptr;  ///< null: nobody is told; else a and out have rows, and b columns
  /// Where the kernel notes its waits for chunks, and for what others send of a product that departs. Null,
  /// or a log without waits: nowhere.
  const ChunkWaitLog* chunk_waits = nullptr;
};

/// What the elements of an operand are multiplied by.
enum class Scale : std::uint8_t {
  kNone,
  kTensor,     ///< one number
  kRow,        ///< one for each row of a
  kColumn,     ///< one for each column of b
  kVector128,  ///< one for each row of a, or column of b, and each 128 of k
  kBlock128,   ///< one for each 128 columns of b and each 128 of k
  kGroup,      ///< one for each column of a 4-bit b and Product::group of k
};
/// "not", "as a whole", "by rows", "by columns", "1x128", "128x128", "in groups".
[[nodiscard]] std::string_view to_string(Scale scale);
/// What a scale of so many columns is: where k has one block only, its columns tell.
[[nodiscard]] Scale scale_of_b(const TensorView& scale, std::int64_t n);
/// Whether it differs along k, so that sums are scaled every 128 of k: see ScaledMmArgs.
[[nodiscard]] constexpr bool is_along_k(Scale scale) {
  return scale == Scale::kVector128 || scale == Scale::kBlock128;
}

/// Whether a matrix is row-major or column-major without holes.
[[nodiscard]] inline bool has_no_holes(const TensorView& matrix) {
  return matrix.is_contiguous() || matrix.movedim(0, 1).is_contiguous();
}

struct Product;
/// How the shards of a product are cut some of which come in pieces.
[[nodiscard]] PieceCut piece_cut_of(const Product& product);
/// Whether any do, and all come together: see PieceExchange.
[[nodiscard]] bool shares_tiles(const Product& product);

/// What becomes of the sums; the order is that of ProductArgs.
struct Epilogue {
  bool accumulate = false;
  bool result_scale = false;
  std::optional<DType> addend = {};
  std::optional<DType> bias = {};
  friend bool operator==(const Epilogue&, const Epilogue&) = default;
};

/// The chunks of an Arrival.
struct Chunks {
  std::int64_t count = 1;
  std::int64_t together = 1;   ///< AsyncInputMmArgs::chunks_together
  std::int64_t complete = 0;   ///< that are there from the start
  std::int64_t in_pieces = 0;  ///< behind the complete ones, that come in pieces
  bool in_order = true;
  bool held = false;  ///< by their senders
  /// At most all of them.
  [[nodiscard]] std::int64_t most_together() const { return std::min(together, count); }
  friend bool operator==(const Chunks&, const Chunks&) = default;
};

/// Who owns the rows of a product that departs.
struct Owners {
  int count = 1;
  int rank = 0;
  bool own_all = false;  ///< each owns all rows
  bool is_made = false;  ///< the product is there already
  friend bool operator==(const Owners&, const Owners&) = default;
};

/// What a product asks of an implementation: all that its acceptance and its predicted time depend on.
struct Product {
  std::int64_t m = 0;  ///< rows: the product of a's sizes but the last
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType a = DType::kF32;
  DType b = DType::kF32;
  DType out = DType::kF32;
  Scale a_scale = Scale::kNone;
  Scale b_scale = Scale::kNone;
  bool fast_accum = false;  ///< of f8 factors without scales along k; else false
  std::int64_t group = 0;   ///< of Scale::kGroup; else 0
  bool is_matrix = true;    ///< a and out have two dims; of a 4-bit b always true
  // These two are of products whose a arrives, or that are scaled along k; else in their default state.
  bool b_is_column_major = false;
  /// a, b, out, addend and complete.rows begin at multiples of kAsyncInputAlignment bytes. Where a is there:
  /// and have no holes.
  bool is_aligned = true;
  Epilogue epilogue = {};
  std::optional<Chunks> arrival = {};  ///< none: a is there
  std::optional<Owners> owners = {};   ///< none: out has all rows
  bool tells = false;                  ///< of its rows, as they are made
  int heuristic = 0;                   ///< of MmArgs

  [[nodiscard]] bool is_scaled_along_k() const { return is_along_k(a_scale) || is_along_k(b_scale); }
  /// What mm() takes, whether a is there or arrives: two matrices of one factor type, no scale.
  [[nodiscard]] bool is_plain() const;
  /// Whether nothing is to be computed or sent.
  [[nodiscard]] bool is_empty() const { return m == 0 || (n == 0 && (!arrival || arrival->in_pieces == 0)); }
  friend bool operator==(const Product&, const Product&) = default;
};

/// "mm 512x1024x2048 bf16 -> f32", "scaled_mm ...", "async_input_mm ... in 8 chunks ...".
[[nodiscard]] std::string to_string(const Product& product);

/// The fronts' questions.
[[nodiscard]] Product product_of(const Problem& problem);
[[nodiscard]] Product product_of(const ScaledProblem& problem);  ///< by one scale each
[[nodiscard]] Product product_of(const AsyncInputProblem& problem);
[[nodiscard]] Product product_of(const Matmul4bitProblem& problem);

/// The first implementation of the device that accepts, or null; then `reasons`, if given, has each one's.
/// Allocates nothing without `reasons`.
[[nodiscard]] const Implementation* choose(const Product& product, const Device& device,
                                           std::string* reasons = nullptr);

/// The implementation that runs it, by its name, and why none does that comes before it: "cuda/reference
/// (cuda/sm90: ...)". "none (...)" where no one does. For reports.
[[nodiscard]] std::string runner_in_words(const Product& product, const Device& device);

/// Whether this device has an implementation, and if not, each one's reason.
[[nodiscard]] Support can_run(const Product& product, const Device& device);

/// What a product takes on a device that does nothing else, in microseconds, by a model; nullopt where there
/// is none: on CPUs, and of types that nobody has measured. It follows from sizes and types alone. Chunks
/// that arrive are on their way from the start on, one behind the other, and behind those that are complete.
[[nodiscard]] std::optional<double> predicted_us(const Product& product, const Device& device,
                                                 const cost::GpuRates& gpu = cost::kH200);

/// The blocks of a product that departs, by which the group's inbox is sized.
[[nodiscard]] PartialGrid partial_grid_of(std::int64_t m, std::int64_t n, const Owners& owners);
/// Whether they can be counted.
[[nodiscard]] bool can_count_partials(std::int64_t m, std::int64_t n, const Owners& owners);

/// Checks the operands, chooses the implementation and enqueues.
/// Memory, order and errors: those of mm(), scaled_matmul(), async_input_mm() or matmul_4bit().
[[nodiscard]] Result<void> run(const ProductArgs& args, Stream& stream);

/// Makes now what the first run() of such a product would make, see prepare() of MmArgs. Of the operands only
/// types, sizes, strides and the alignment of the addresses count; pointers to memory may be null.
[[nodiscard]] Result<void> prepare(const ProductArgs& like, Stream& stream);

}  // namespace tandem::gemm
