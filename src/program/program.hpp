#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tandem/base/tensor.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/trace/enqueue_trace.hpp>
#include <vector>

namespace tandem::program {

// A fused call is a small program: a flat list of steps on numbered lanes over numbered roots. It is built
// once a problem, by one function per direction and algorithm. It holds no pointer and never changes.
// Bindings (bindings.hpp) hold the tensors, memory and streams of one call. The runner (runner.hpp) is the
// only code that enqueues. What to_string() prints is what runs.

/// A stream of a program. Lane 0 is the caller's; a fused op has one more, a host program as many as it says.
using Lane = std::int8_t;
inline constexpr Lane kCurrent = 0;
inline constexpr Lane kSide = 1;
inline constexpr int kMaxLanes = 16;

/// Who owns the memory of a root, and so who binds it.
enum class Space : std::uint8_t {
  kCaller,     ///< a tensor of the call; bound by its op
  kScratch,    ///< the group's scratch memory on this device, at Root::offset_bytes
  kWorkspace,  ///< this rank's part of the group's workspace, at Root::offset_bytes; peers have theirs there
  kInPlace,    ///< symmetric memory of the caller's; bound by its op
  // This rank's slot of the group's inbox, at Root::offset_bytes; bound when the slot is known.
  kInbox,       ///< its data
  kInboxWords,  ///< one word a chunk
  kInboxFlags,  ///< one word a piece
};

/// Whose sizes and places only the call knows.
[[nodiscard]] inline bool is_callers(Space space) {
  return space == Space::kCaller || space == Space::kInPlace;
}

/// Whether a root is a tensor that the call reads, in which a check for NaN looks, and when: see checks.hpp.
enum class Checked : std::uint8_t {
  kNot,
  kBefore,  ///< before anything else: peers get it, or what is made of it
  kBeside,  ///< by the end: only this rank uses it
};

/// A tensor that steps refer to.
struct Root {
  std::string name;  ///< "a", "gathered", "partial for 2"
  Space space = Space::kCaller;
  /// Of scratch and workspace: where it lies in them. Roots may share memory.
  std::int64_t offset_bytes = 0;
  /// Of scratch and workspace: contiguous. Others have the sizes that the call binds.
  Dims sizes = {};
  DType dtype = DType::kF32;
  /// Of scratch roots whose sizes the call binds: at most so many bytes from offset_bytes.
  std::int64_t most_bytes = 0;
  Checked checked = Checked::kNot;
  /// Of checked roots: which of the caller's dims stands in front.
  std::int8_t front_dim = 0;
};
using RootId = std::int16_t;
inline constexpr RootId kNone = -1;

/// Elements [first, first + size) of dimension `dim` of a root; all of it if dim is negative.
struct Operand {
  RootId root = kNone;
  std::int8_t dim = -1;
  std::int64_t first = 0;
  std::int64_t size = 0;

  [[nodiscard]] bool is_absent() const { return root == kNone; }
  friend bool operator==(const Operand&, const Operand&) = default;
};
[[nodiscard]] inline Operand all_of(RootId root) {
  return {.root = root};
}
[[nodiscard]] inline Operand part_of(RootId root, int dim, std::int64_t first, std::int64_t size) {
  return {.root = root, .dim = static_cast<std::int8_t>(dim), .first = first, .size = size};
}

/// Chunks of a product's left operand that still arrive.
struct Arrival {
  Operand words;  ///< one a chunk
  /// The chunks of this rank are complete from the start and lie in `own`. Absent: none is.
  Operand own = {};
  std::int64_t first_own = 0;
  std::int64_t num_own = 1;
  /// The scales of the own rows; those of others arrive in the product's a_scale before their chunk's word.
  /// Absent: a_scale is complete.
  Operand own_scale = {};
  [[nodiscard]] bool scales_arrive() const { return !own_scale.is_absent(); }
  /// So many chunks one after the other are taken as one; 0: those of a rank.
  std::int64_t together = 0;
  /// Multiprocessors that it leaves to kernels that bring chunks.
  int left_free = 0;
  /// Chunks of other ranks lie in their memory, where `a` has them in this rank's, and are read there.
  bool held = false;
  bool are_relayed = false;  ///< the words: another lane of this rank writes them (kCross)
  // Ranks to which this rank's products send `own` in pieces, and the flags of pieces that come.
  int piece_peers = 0;
  RootId flags = kNone;
  /// `own` goes to this rank itself in the same way, and is read where it arrives.
  bool own_in_pieces = false;
  bool sends = true;  ///< not if an earlier product has sent the pieces
  /// The step before it on its lane is a reset, and the product may begin during that. It looks for chunks
  /// and sends pieces only after all ranks have passed the barrier.
  bool begins_early = false;
};

/// The rows of a product go to the ranks that own them, each a shard of them: out has the own ones of the sum
/// over all ranks, in the order of the ranks. Without b, a is the product itself.
struct Departure {
  coll::ReduceOp reduce_op = coll::ReduceOp::kSum;
  bool gives_all = false;  ///< every rank owns all rows: out has the whole sum
  Operand bias = {};       ///< of that sum
  Operand kept = {};       ///< receives this rank's own partial of all rows
};

/// Each rank owns a shard of the product's rows. As soon as the rows of another rank are made, this rank's
/// word there says so. The own rows come last.
struct Telling {
  Operand word;
};

/// out = a * b, with everything that gemm::mm(), gemm::scaled_matmul() or gemm::async_input_mm() adds to it.
/// Operands whose root the call leaves unbound are absent. The addend of one that is not scaled has out's
/// type and may be out.
struct Product {
  Operand a;
  Operand b;
  Operand out;
  Operand bias = {};
  Operand a_scale = {};
  Operand b_scale = {};
  Operand result_scale = {};
  Operand addend = {};
  bool accumulate = false;  ///< out += a * b
  bool scaled = false;      ///< a and out keep their dims, as scales do; else they are seen as matrices
  bool fast_accum = false;  ///< allows less exact sums
  std::optional<Arrival> arrival = {};
  std::optional<Departure> departure = {};  ///< of kProductScatter
  std::optional<Telling> telling = {};
};

enum class StepKind : std::uint8_t {
  kCopy,  ///< to = from
  kGet,   ///< to = the elements of `peer` that start where `from` does on this rank
  kRead,  ///< as kGet, of what has crossed the link already
  /// Behind word `from` of each other rank, as they come, the link's time of one of `parts` equal parts of
  /// what that rank has; or of each whose word in `to` is written then.
  kCross,
  kPut,             ///< the elements of `peer` that start where `to` does on this rank = from
  kReset,           ///< words `to` = 0, then a barrier of all ranks, on `channel`
  kWriteWord,       ///< word `to` of `peer` = the word value
  kAwait,           ///< words `from`, which `peer` writes, have reached the word value
  kBarrier,         ///< of all ranks, on `channel`
  kJoin,            ///< lane `other` waits for all that is on `lane` so far
  kNap,             ///< a moment of nothing, so that other lanes start first; no result depends on it
  kProduct,         ///< products[product]
  kSum,             ///< to = the sum over dim 0 of `from`, in its order, plus bias, rounded once
  kSumRanks,        ///< to = the sum over ranks, in their order, of `from` in each one's memory, plus bias
  kCast,            ///< to = from (plus bias), rounded where the type is narrower
  kQuantize,        ///< to, scale = the f8 rows of `from` and their scales: gemm::quantize_rows()
  kAllGather,       ///< to = every rank's `from`: a collective
  kProductScatter,  ///< products[product], whose rows go to their owners
  kReduceScatter,   ///< to = this rank's rows of the sum of every rank's `from`, plus bias: a collective
  kAllReduce,       ///< to = the sum of every rank's `from`, plus bias: a collective
  kCheck,           ///< looks for NaN in `from`
  /// Starts to send `from` to rank `peer` and to receive `to` from rank `source`, both of other hosts.
  kExchange,
  kExchanged,  ///< the same exchange is done: `from` may change, and `to` is there
};

struct Step {
  StepKind kind;
  Lane lane = kCurrent;
  Lane other = kCurrent;
  std::int16_t peer = -1;
  std::int16_t source = -1;     ///< of exchanges
  std::int16_t exchange = -1;   ///< its number in the program
  bool beside_product = false;  ///< of exchanges: Transport::Exchange::beside_product
  std::int16_t channel = -1;    ///< counted from Program::base_channel
  std::int16_t product = -1;
  std::int16_t parts = 1;  ///< of kCross
  Operand from = {};
  Operand to = {};
  Operand bias = {};
  Operand scale = {};  ///< of kQuantize, written
  coll::ReduceOp reduce_op = coll::ReduceOp::kSum;
  std::int16_t slot = -1;  ///< of the workspace, for the trace
  /// What the step, and the ones behind it without a label, are called in a trace; see EnqueueTrace.
  std::optional<trace::StepKind> label = {};
};

/// All ranks take the step together.
[[nodiscard]] inline bool is_together(const Step& step) {
  return step.kind == StepKind::kBarrier || step.kind == StepKind::kReset ||
         step.kind == StepKind::kAllGather || step.kind == StepKind::kReduceScatter ||
         step.kind == StepKind::kAllReduce || step.kind == StepKind::kProductScatter;
}

/// What the call has to reserve. Every rank needs the same workspace and inbox.
struct MemoryNeeds {
  std::int64_t scratch_bytes = 0;
  std::int64_t workspace_bytes = 0;
  std::int64_t inbox_bytes = 0;  ///< of data
  std::int64_t inbox_words = 0;
  std::int64_t inbox_flags = 0;         ///< of pieces that products send
  std::int64_t kernel_inbox_bytes = 0;  ///< of partials, see symm/kernel_inbox.hpp
  std::int64_t kernel_inbox_words = 0;
  [[nodiscard]] bool uses_inbox() const { return inbox_words > 0; }
  [[nodiscard]] bool uses_kernel_inbox() const { return kernel_inbox_words > 0; }
  /// 0 for memory of the caller's.
  [[nodiscard]] std::int64_t bytes_of(Space space) const;
};

struct Program {
  std::string name;  ///< "all_gather_matmul pipelined"
  /// What errors of its checks call it: "all_gather_matmul [4096,3584,8192] bf16 pipelined".
  std::string label = {};
  std::string fingerprint = {};  ///< what ranks of other hosts compare with each message
  // Of a group on several hosts, of this host's ranks, as are peers. Only exchanges name ranks of the group.
  int rank = 0;
  int world = 1;
  int num_lanes = 1;
  int base_channel = 0;  ///< the first of the schedule's channels
  // Of words: chunk i is of rank i / chunks_per_rank of the group. Its word comes from the rank of this host
  // with that number, or, where the rank is on another host, with that number modulo `world`.
  std::int64_t num_chunks = 0;
  std::int64_t chunks_per_rank = 1;
  /// What words are set to when their chunk is there: the epoch of the inbox, which every call counts, or,
  /// where a recorded call is to do the same every time, this.
  std::optional<std::uint32_t> word_value = {};
  std::vector<Root> roots = {};
  std::vector<Product> products = {};
  std::vector<Step> steps = {};
  MemoryNeeds memory = {};

  /// One line a step, behind one a root:
  ///   bk: get published of rank 1 -> gathered[512:1024]
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] std::string to_string(const Step& step) const;
  /// The steps that have labels, joins, barriers and naps, in the notation of docs/design/schedules.md.
  [[nodiscard]] std::vector<trace::Step> traced() const;
};

/// The step in the notation of docs/design/schedules.md; none without a label.
[[nodiscard]] std::optional<trace::Step> traced(const Step& step);

/// "cur", "bk", "s2".
[[nodiscard]] std::string lane_name(Lane lane, int num_lanes);

}  // namespace tandem::program
