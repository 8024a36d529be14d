#include <algorithm>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/with_last.hpp"
#include "fused/call/host_ranks.hpp"
#include "fused/gather/algorithms.hpp"
#include "fused/gather/chunks.hpp"

namespace tandem::fused {

using program::all_of;
using program::kCurrent;
using program::kSide;
using program::Operand;
using program::part_of;
using program::RootId;
using program::Space;
using trace::StepKind;

gemm::Product own_product(gemm::Product planned, const GatherProblem& problem, const GatherCall& call,
                          int i) {
  const auto idx = static_cast<std::size_t>(i);
  const TensorView& b = call.b[idx];
  gemm::Product product = std::move(planned);
  product.n = b.size(1);
  product.b = b.dtype;
  product.out = call.out[idx].dtype;
  if (const TensorView* const bias = call.bias.at(i)) product.epilogue.bias = bias->dtype;
  if (problem.is_scaled) {
    const TensorView* const b_scale = call.b_scale.at(i);
    product.b_scale = b_scale == nullptr ? gemm::Scale::kNone : gemm::scale_of_b(*b_scale, b.size(1));
    product.epilogue.result_scale = call.result_scale.at(i) != nullptr;
  }
  return product;
}

namespace {

/// Of b number i of this rank, and a block of rows.
gemm::Product async_product(const GatherProblem& problem, const GatherCall& call, int i, int block) {
  const auto idx = static_cast<std::size_t>(i);
  const TensorView& b = call.b[idx];
  const NativeBlock rows = native_block(problem, block);
  gemm::Product product = own_product(agreed_product(problem, problem.piece_peers, rows), problem, call, i);
  product.b_is_column_major = !b.is_contiguous();
  product.is_aligned = gemm::is_aligned_async_input(b) && gemm::is_aligned_async_input(call.out[idx]) &&
                       (problem.copies_a() || gemm::is_aligned_async_input(call.a));
  return product;
}

/// Why not, but for what the device's products say; null if there is nothing. Asked in every call.
const char* why_not_consumed(const GatherProblem& problem, const TensorView& b) {
  if (!gemm::has_no_holes(b)) return "b has holes";
  if (!native_chunks(problem).by_shard_rule) return "shards are uneven, and their units are several rows";
  return nullptr;
}

bool is_consumed(const GatherProblem& problem, const GatherCall& call, int i, const Device& device) {
  if (why_not_consumed(problem, call.b[static_cast<std::size_t>(i)]) != nullptr) return false;
  for (int block = 0, count = num_native_blocks(problem); block < count; ++block) {
    if (gemm::choose(async_product(problem, call, i, block), device) == nullptr) return false;
  }
  return true;
}

/// Whether what peers tell of still has to come over a link that is simulated.
bool crosses_link(const GatherProblem& problem) {
  return problem.pulls && problem.has_link && problem.num_hosts == 1;
}

/// A native gather while it is written down.
class NativeGather {
 public:
  NativeGather(const GatherProblem& problem, int rank)
      : problem_(problem),
        counts_(!problem.is_capturing),
        chunks_(native_chunks(problem)),
        gather_(problem, Algorithm::kNative, rank, has_side(problem) ? 2 : 1),
        here_(RankOnHosts::of(rank, problem)),
        num_blocks_(num_native_blocks(problem)) {
    add_roots();
  }

  GatherProgram build();

 private:
  /// Whether there is a peer that the products do not send all to.
  static bool pushes(const GatherProblem& problem) {
    return !problem.pulls &&
           (problem.piece_peers < problem.world - 1 || (problem.has_sharded_scale() && problem.world > 1));
  }
  static bool has_side(const GatherProblem& problem) {
    return pushes(problem) || crosses_link(problem) || problem.num_hosts > 1;
  }
  [[nodiscard]] int rank() const { return gather_.rank(); }
  // Peers are ranks of this host. What comes from another host is for its partner here to pass on.
  [[nodiscard]] int peer_behind(int step) const {
    return (here_.local - step + here_.per_host) % here_.per_host;
  }
  [[nodiscard]] int peer_that_has(int source) const { return source % here_.per_host; }
  [[nodiscard]] program::Builder& steps() { return gather_.steps(); }
  [[nodiscard]] Shard own() const { return problem_.part_of(rank()); }
  [[nodiscard]] bool resets() const { return !counts_ && problem_.world > 1; }
  /// Whether the products send the own shard to this rank too: their tiles have rows of several ranks.
  [[nodiscard]] bool sends_own() const {
    const int peers = problem_.piece_peers;
    return peers == problem_.world - 1 && shares_tiles(agreed_product(problem_, peers));
  }
  /// Chunks of one rank.
  [[nodiscard]] Operand words_of(int source) const {
    const std::int64_t first = source * chunks_.per_rank;
    return part_of(words_, 0, first, std::min(chunks_.per_rank, chunks_.count - first));
  }

  /// Rows of chunk `idx` of a rank's shard, among all rows.
  [[nodiscard]] Shard rows_of_chunk(int source, std::int64_t idx) const;

  void add_roots();
  void add_scale_roots(Space data, std::int64_t at);
  void publish();
  /// A chunk that comes from another host.
  struct Coming {
    int source = 0;
    std::int64_t idx = 0;
    std::vector<std::size_t> exchanges = {};
  };
  [[nodiscard]] std::vector<Coming> exchange_with_hosts();
  void pass_on(const Coming& coming);
  void bring_over_link();
  void read_rest(int source);
  void push_to_all();
  void push_to(int peer);
  void push_scales_to(int peer);
  void consume();
  [[nodiscard]] program::Product arriving(const NativeBlock& block, bool has_own) const;
  void multiply_the_rest();
  /// Of dimension 0, which counts units or rows: all where there is one block.
  [[nodiscard]] Operand in_block(RootId root, const Shard& part) const {
    return num_blocks_ == 1 ? all_of(root) : part_of(root, 0, part.offset, part.size);
  }
  void keep_gathered();

  const GatherProblem& problem_;
  bool counts_;  ///< epochs of the inbox; else the words are reset first
  NativeChunks chunks_;
  GatherBuilder gather_;
  RankOnHosts here_;
  int num_blocks_;
  RootId slot_rows_ = program::kNone;
  RootId own_rows_ = program::kNone;
  RootId words_ = program::kNone;
  RootId arrived_ = program::kNone;  ///< words that say what has crossed the link
  RootId flags_ = program::kNone;
  // Where scales travel.
  RootId slot_scales_ = program::kNone;  ///< as rows of slot_rows_
  RootId own_scales_ = program::kNone;
  RootId all_scales_ = program::kNone;  ///< where they are complete and of rows, in the order of the rows
  RootId all_words_ = program::kNone;   ///< that are reset
};

// A call that is recorded does the same every time it is replayed, so it cannot count epochs: its shards
// arrive in the workspace, and its words are zero before a barrier and one behind it. Eager calls save that
// barrier. Both read no workspace of a peer's and let nobody write into theirs behind their end, so neither
// needs a barrier there.
void NativeGather::add_roots() {
  const Travelling& a = gather_.tensors().front();
  const std::int64_t element = size_bytes(problem_.dtype);
  const std::int64_t unit_rows = problem_.unit_rows();
  const std::int64_t scales_at = program::aligned_to_root(numel(a.sizes) * element);
  const std::int64_t data_bytes =
      problem_.has_sharded_scale() ? scales_at + numel(gather_.tensors()[1].sizes) * size_bytes(DType::kF32)
                                   : numel(a.sizes) * element;
  const std::int64_t num_flags =
      problem_.piece_peers > 0
          ? gemm::num_piece_flags(problem_.rows(), problem_.world, problem_.k() * element)
          : 0;
  program::MemoryNeeds& needs = steps().memory();
  std::int64_t words_at = 0;
  std::int64_t flags_at = 0;
  if (counts_) {
    needs.inbox_bytes = data_bytes;
    needs.inbox_words = crosses_link(problem_) ? 2 * chunks_.count : chunks_.count;
    needs.inbox_flags = num_flags;
  } else {
    words_at = program::aligned_to_root(data_bytes);
    flags_at = words_at + program::aligned_to_root(chunks_.count * size_bytes(DType::kU32));
    needs.workspace_bytes = flags_at + num_flags * size_bytes(DType::kU32);
    all_words_ = steps().at(Space::kWorkspace, words_at, "words and flags",
                            {(needs.workspace_bytes - words_at) / size_bytes(DType::kU32)}, DType::kU32);
    steps().set_word_value(1);
  }
  steps().set_chunks(chunks_.count, chunks_.per_rank);

  const Space data = counts_ ? Space::kInbox : Space::kWorkspace;
  gather_.roots().travels.front().gathered = steps().at(data, 0, "inbox", a.sizes, problem_.dtype);
  slot_rows_ = steps().at(data, 0, "inbox rows", {problem_.rows(), problem_.k()}, problem_.dtype);
  words_ = steps().at(counts_ ? Space::kInboxWords : data, words_at, "words", {chunks_.count}, DType::kU32);
  if (crosses_link(problem_)) {
    arrived_ = steps().at(Space::kInboxWords, chunks_.count * size_bytes(DType::kU32), "arrived",
                          {chunks_.count}, DType::kU32);
  }
  if (num_flags > 0)
    flags_ = steps().at(counts_ ? Space::kInboxFlags : data, flags_at, "flags", {num_flags}, DType::kU32);
  const Dims rows = {own().size * unit_rows, problem_.k()};
  own_rows_ = problem_.aligns_own ? steps().at(data, own().offset * unit_rows * problem_.k() * element,
                                               "own rows of the inbox", rows, problem_.dtype)
                                  : gather_.add_flat(0, rows);
  if (problem_.has_sharded_scale()) add_scale_roots(data, scales_at);
  all_scales_ = gather_.roots().a_scale;
  if (problem_.orders_scale) {
    all_scales_ =
        steps().scratch("a_scale in order", with_last(a.sizes, problem_.scale_columns()), DType::kF32);
  }
}

void NativeGather::add_scale_roots(Space data, std::int64_t at) {
  const Dims& sizes = gather_.tensors()[1].sizes;
  const std::int64_t unit_rows = problem_.unit_rows();
  gather_.roots().travels[1].gathered = steps().at(data, at, "inbox of scales", sizes, DType::kF32);
  slot_scales_ = steps().at(data, at, "inbox scales of rows", {problem_.rows(), sizes.back()}, DType::kF32);
  own_scales_ = gather_.add_flat(1, {own().size * unit_rows, sizes.back()});
}

GatherProgram NativeGather::build() {
  gather_.copy_shards();
  if (problem_.orders_scale) steps().copy(kCurrent, all_of(gather_.roots().a_scale), all_of(all_scales_));
  if (problem_.aligns_own) {
    const Operand in_slot = part_of(gather_.travel(0).gathered, 0, own().offset, own().size);
    steps().copy(kCurrent, gather_.own_shard(0), in_slot);
    gather_.move_own(in_slot);
  }
  // Before the product, which leaves no room for a barrier that begins after it.
  if (resets()) steps().reset(kCurrent, all_of(all_words_), 1);
  if (problem_.pulls) publish();
  if (has_side(problem_))
    steps().join(kCurrent, kSide);  // a is ready, and so is what earlier work made of it
  if (crosses_link(problem_)) bring_over_link();
  const std::vector<Coming> all_coming = exchange_with_hosts();
  // Eager pushes are enqueued first, so that they begin at once. A recording begins with what comes first on
  // the caller's lane without delay.
  if (counts_ && !problem_.pulls) push_to_all();
  // Before a product, as kernels that wait may keep what comes behind them.
  for (const Coming& coming : all_coming) pass_on(coming);
  consume();
  if (!counts_) push_to_all();
  multiply_the_rest();
  if (problem_.keeps_gathered) keep_gathered();
  if (pushes(problem_) || problem_.num_hosts > 1) steps().join(kSide, kCurrent);
  return {gather_.take(), gather_.roots()};
}

/// The own shard, and its scales, where peers read them; and to each peer, that they are there.
void NativeGather::publish() {
  for (int i = 0; i < static_cast<int>(gather_.tensors().size()); ++i) {
    const Shard part = gather_.tensors()[static_cast<std::size_t>(i)].part_of(problem_.world, rank());
    steps().copy(kCurrent, gather_.own_shard(i),
                 part_of(gather_.travel(i).gathered, 0, part.offset, part.size),
                 i == 0 ? std::optional(StepKind::kPublish) : std::nullopt);
  }
  // Without other hosts, products await one word a rank.
  const Operand words = words_of(rank());
  const std::int64_t told = problem_.num_hosts > 1 ? words.size : 1;
  for (int step = 1; step < here_.per_host; ++step) {
    for (std::int64_t i = 0; i < told; ++i)
      steps().write_word(kCurrent, peer_behind(step), part_of(words_, 0, words.first + i, 1), StepKind::kTell,
                         0);
  }
}

/// What peers have published counts as arrived once the link has taken its time for it, chunk by chunk.
void NativeGather::bring_over_link() {
  const Operand arrived = problem_.first_consumed < 0 ? Operand() : all_of(arrived_);
  steps().cross(kSide, part_of(words_, 0, 0, 1), arrived.is_absent() ? 1 : static_cast<int>(chunks_.per_rank),
                arrived, 0);
}

/// What peers have published, for products that do not read it where it is: into the own slot, at its place.
void NativeGather::read_rest(int source) {
  for (int i = 0; i < static_cast<int>(gather_.tensors().size()); ++i) {
    const Operand rows = gather_.arrived(i, gather_.from(source));
    steps().read(kCurrent, peer_that_has(source), rows, rows);
  }
}

/// To one peer at a time, in the order in which they will read the shard; to none that the products send it
/// to. Scales, which they do not send, go first.
void NativeGather::push_to_all() {
  for (int step = 1; step < here_.per_host; ++step) {
    const int peer = peer_behind(step);
    if (problem_.has_sharded_scale()) push_scales_to(peer);
    if (step > problem_.piece_peers) push_to(peer);
  }
}

/// Behind them comes a word for each chunk: that of the chunk itself, unless it comes in pieces.
void NativeGather::push_scales_to(int peer) {
  const std::int64_t first_row = own().offset * problem_.unit_rows();
  steps().put(kSide, peer, all_of(own_scales_),
              part_of(slot_scales_, 0, first_row, own().size * problem_.unit_rows()));
  const bool in_pieces = (rank() - peer + problem_.world) % problem_.world <= problem_.piece_peers;
  const Operand words = words_of(rank());
  for (std::int64_t i = 0; in_pieces && i < words.size; ++i)
    steps().write_word(kSide, peer, part_of(words_, 0, words.first + i, 1));
}

/// Chunk by chunk; each word behind its chunk.
void NativeGather::push_to(int peer) {
  const std::int64_t num_rows = own().size * problem_.unit_rows();
  std::int64_t chunk = rank() * chunks_.per_rank;
  for (std::int64_t row = 0; row < num_rows; row += chunks_.rows, ++chunk) {
    const std::int64_t rows = std::min(chunks_.rows, num_rows - row);
    steps().put(kSide, peer, part_of(own_rows_, 0, row, rows),
                part_of(slot_rows_, 0, chunk * chunks_.rows, rows));
    steps().write_word(kSide, peer, part_of(words_, 0, chunk, 1));
  }
}

Shard NativeGather::rows_of_chunk(int source, std::int64_t idx) const {
  const Shard part = problem_.part_of(source);
  const std::int64_t begin = std::min(idx * chunks_.rows, part.size * problem_.unit_rows());
  const std::int64_t end = std::min(begin + chunks_.rows, part.size * problem_.unit_rows());
  return {part.offset * problem_.unit_rows() + begin, end - begin};
}

/// The own shard goes to this rank's partners, chunk by chunk, and theirs come into the slot, where products
/// read them.
std::vector<NativeGather::Coming> NativeGather::exchange_with_hosts() {
  std::vector<Coming> all;
  const std::int64_t first_own = rows_of_chunk(rank(), 0).offset;
  for (int step = 1; step < problem_.num_hosts; ++step) {
    const int to = here_.partner_on(here_.host_to(step));
    const int from = here_.partner_on(here_.host_from(step));
    for (std::int64_t idx = 0; idx < chunks_.per_rank; ++idx) {
      const Shard sent = rows_of_chunk(rank(), idx);
      const Shard received = rows_of_chunk(from, idx);
      const auto exchange = [&](RootId own, RootId slot) {
        return steps().exchange(kSide, to, part_of(own, 0, sent.offset - first_own, sent.size), from,
                                part_of(slot, 0, received.offset, received.size), true);
      };
      Coming& coming = all.emplace_back(Coming{.source = from, .idx = idx});
      if (problem_.has_sharded_scale()) coming.exchanges.push_back(exchange(own_scales_, slot_scales_));
      coming.exchanges.push_back(exchange(own_rows_, slot_rows_));
    }
  }
  return all;
}

/// When the chunk is there: to the ranks of this host, or where they read it, and a word to each.
void NativeGather::pass_on(const Coming& coming) {
  for (const std::size_t exchange : coming.exchanges) steps().exchanged(kSide, exchange);
  const Shard rows = rows_of_chunk(coming.source, coming.idx);
  if (rows.size == 0) return;
  const Operand word = part_of(words_, 0, words_of(coming.source).first + coming.idx, 1);
  steps().write_word(kSide, here_.local, word);
  for (int step = 1; step < here_.per_host; ++step) {
    const int peer = peer_behind(step);
    for (const RootId slot : {slot_scales_, slot_rows_}) {
      const Operand chunk = part_of(slot, 0, rows.offset, rows.size);
      if (!problem_.pulls && slot != program::kNone) steps().put(kSide, peer, chunk, chunk);
    }
    steps().write_word(kSide, peer, word);
  }
}

/// Products that consume the chunks as they come; or, where there is none to make, what the other ranks'
/// products need of this one's, and a wait for theirs.
void NativeGather::consume() {
  if (problem_.first_consumed < 0) {
    if (problem_.piece_peers > 0) steps().product(kCurrent, arriving(native_block(problem_, 0), true));
    return;
  }
  // The own host's rows are there first, then those of the hosts in the order in which they send.
  bool is_first = true;
  for (int step = 0; step < num_blocks_; ++step) {
    const NativeBlock block = native_block(problem_, num_blocks_ == 1 ? 0 : here_.host_from(step));
    program::Product product = arriving(block, step == 0);
    for (int i = problem_.first_consumed; i < problem_.num_b; ++i) {
      if (problem_.is_by_mm(i)) continue;
      const GatherRoots::PerB& per_b = gather_.roots().per_b[static_cast<std::size_t>(i)];
      product.b = all_of(per_b.b);
      product.out = in_block(per_b.out, block.units);
      product.bias = all_of(per_b.bias);
      product.b_scale = all_of(per_b.b_scale);
      product.result_scale = all_of(per_b.result_scale);
      product.arrival->sends = is_first;
      product.arrival->begins_early = is_first && resets();
      steps().product(kCurrent, product);
      is_first = false;
    }
  }
}

/// The product of a block's rows, but for what it multiplies them with.
program::Product NativeGather::arriving(const NativeBlock& block, bool has_own) const {
  const std::int64_t unit_rows = problem_.unit_rows();
  const Shard rows = {block.units.offset * unit_rows, block.units.size * unit_rows};
  // The first chunk that is taken comes to this rank itself, also where none is its own.
  const Operand own_words = words_of(rank());
  const std::int64_t first =
      num_blocks_ == 1 ? own_words.first : own_words.first % (here_.per_host * chunks_.per_rank);
  program::Product product{.a = in_block(slot_rows_, rows), .b = {}, .out = {}};
  product.arrival =
      program::Arrival{.words = in_block(crosses_link(problem_) ? arrived_ : words_, block.chunks),
                       .own = has_own ? all_of(own_rows_) : Operand(),
                       .first_own = first,
                       .num_own = has_own ? own_words.size : 0,
                       .together = problem_.num_hosts > 1 ? 1 : 0,
                       .left_free = problem_.left_free,
                       .held = problem_.pulls,
                       .are_relayed = crosses_link(problem_),
                       .piece_peers = problem_.piece_peers,
                       .flags = flags_,
                       .own_in_pieces = sends_own(),
                       .begins_early = resets()};
  if (problem_.has_sharded_scale()) {
    product.a_scale = in_block(slot_scales_, rows);
    product.arrival->own_scale = has_own ? all_of(own_scales_) : part_of(own_scales_, 0, 0, 0);
  } else if (all_scales_ != program::kNone) {
    product.a_scale = problem_.scale_mode == ScaleMode::kTensorwise ? all_of(all_scales_)
                                                                    : in_block(all_scales_, block.units);
  }
  product.fast_accum = problem_.fast_accum;
  return product;
}

// Also without a product to make: the peers count on it that every op awaits all of them (symm/inbox.hpp).
void NativeGather::multiply_the_rest() {
  const bool waits = problem_.first_consumed < 0;
  if (crosses_link(problem_)) steps().join(kSide, kCurrent);
  for (int step = 0; step < problem_.world; ++step) {
    const int source = (rank() + step) % problem_.world;
    const bool is_awaited = step > problem_.piece_peers || problem_.has_sharded_scale();
    if (waits && step > 0 && is_awaited && !crosses_link(problem_)) {
      const Operand words = words_of(source);
      const bool is_one = problem_.pulls && problem_.num_hosts == 1;
      steps().await(kCurrent, peer_that_has(source), is_one ? part_of(words_, 0, words.first, 1) : words);
    }
    const bool is_elsewhere = step > 0 && peer_that_has(source) != here_.local;
    if (problem_.pulls && is_elsewhere && problem_.by_mm != 0) read_rest(source);
    gather_.multiply(kCurrent, gather_.from(source), {}, [this](int i) { return problem_.is_by_mm(i); });
  }
}

/// All of a, for a caller who wants to keep it.
void NativeGather::keep_gathered() {
  const GatherRoots::Travel& a = gather_.travel(0);
  for (int step = 1; problem_.pulls && step < problem_.world; ++step) {
    const int source = (rank() + step) % problem_.world;
    const Shard part = problem_.part_of(source);
    const Operand from = part_of(a.gathered, 0, part.offset, part.size);
    const Operand to = part_of(a.whole, 0, part.offset, part.size);
    if (peer_that_has(source) == here_.local)
      steps().copy(kCurrent, from, to);
    else
      steps().read(kCurrent, peer_that_has(source), from, to);
  }
  if (problem_.pulls) return gather_.keep_own(kCurrent, {});
  const std::int64_t behind = own().offset + own().size;
  for (const Shard& part : {Shard{0, own().offset}, Shard{behind, problem_.total() - behind}}) {
    if (part.size == 0) continue;
    steps().copy(kCurrent, part_of(a.gathered, 0, part.offset, part.size),
                 part_of(a.whole, 0, part.offset, part.size));
  }
  gather_.keep_own(kCurrent, {});
}

}  // namespace

/// Each rank pushes its shard into the inbox of every other one, or its products send it, and products
/// consume what comes. See docs/design/native_all_gather_matmul.md.
GatherProgram build_native_gather(const GatherProblem& problem, int rank, const Device&) {
  return NativeGather(problem, rank).build();
}

void ask_native(const GatherCall& call, const Device& device, GatherProblem& problem) {
  problem.pulls = problem.device.kind == DeviceKind::kCpu && problem.ranks_per_host() > 1;
  if (problem.asked == Algorithm::kSerial || problem.asked == Algorithm::kPipelined || problem.quantize)
    return;
  problem.piece_peers = piece_peers(problem, device);
  problem.aligns_own =
      problem.piece_peers > 0 && !problem.copies_a() && !gemm::is_aligned_async_input(call.a);
  if (problem.gathers_last() || problem.rows() == 0) return;
  const bool is_of_rows = call.a_scale && call.a_scale->numel() > 1 && !problem.has_sharded_scale();
  problem.orders_scale = is_of_rows && !call.a_scale->movedim(problem.dim, 0).can_flatten_rows();
  for (int i = 0; i < problem.num_b; ++i) {
    const bool is_made = call.b[static_cast<std::size_t>(i)].size(1) > 0;
    if (is_made && !is_consumed(problem, call, i, device))
      problem.by_mm |= std::uint64_t{1} << std::min(i, 63);
  }
  for (int i = 0; i < problem.num_b && problem.first_consumed < 0; ++i) {
    if (call.b[static_cast<std::size_t>(i)].size(1) > 0 && !problem.is_by_mm(i)) problem.first_consumed = i;
  }
}

Notes native_gather_notes(const GatherProblem& problem, const GatherCall& call, const Device& device) {
  Notes notes;
  if (problem.pulls) notes.agreed = crosses_link(problem) ? " pulled over a link" : " pulled";
  if (problem.piece_peers > 0) {
    notes.reason = fmt::format("; products send the shards in pieces to {} of {} ranks", problem.piece_peers,
                               problem.world - 1);
    notes.agreed = fmt::format(" in pieces to {}", problem.piece_peers);
  }
  for (int i = 0; i < problem.num_b; ++i) {
    const TensorView& b = call.b[static_cast<std::size_t>(i)];
    if (b.size(1) == 0 || !problem.is_by_mm(i)) continue;
    const char* const why = why_not_consumed(problem, b);
    notes.reason +=
        fmt::format("; out[{}] by mm: {}", i,
                    why != nullptr ? why : gemm::can_run(async_product(problem, call, i, 0), device).why_not);
  }
  return notes;
}

}  // namespace tandem::fused
