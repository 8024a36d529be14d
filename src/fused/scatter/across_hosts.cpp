#include <algorithm>
#include <vector>

#include "base/format.hpp"
#include "fused/call/host_chunks.hpp"
#include "fused/scatter/algorithms.hpp"

namespace tandem::fused {

using program::all_of;
using program::kCurrent;
using program::kSide;
using program::Lane;
using program::Operand;
using program::part_of;
using program::RootId;
using program::Space;
using trace::StepKind;

namespace {

/// The rows of another host's ranks are summed over the ranks of this one first: rank r adds those of rank r
/// there, and sends it the sum. So each row crosses once between two hosts. An owner adds the hosts' sums in
/// their order. `pipelined` makes the rows of other hosts first, chunk by chunk, and its own meanwhile. See
/// docs/design/hosts.md.
class ScatterAcrossHosts {
 public:
  ScatterAcrossHosts(const ScatterProblem& problem, Algorithm algorithm, int rank)
      : problem_(problem),
        is_pipelined_(algorithm == Algorithm::kPipelined),
        scatter_(problem, algorithm, rank, is_pipelined_ ? 2 : 1),
        host_(rank / problem.ranks_per_host()),
        local_(rank % problem.ranks_per_host()) {
    const std::int64_t most = shard_stride(problem.total(), problem.world);
    chunks_ = is_pipelined_ && !problem.scatters_last()
                  ? HostChunks::of(most, problem.unit_rows(), scatter_.unit_bytes(), least_chunk())
                  : HostChunks{.units = std::max<std::int64_t>(1, most), .count = 1};
  }

  ScatterProgram build();

 private:
  struct Exchange {
    int to = 0;
    Operand sent;
    int from = 0;
    Operand received;
  };

  [[nodiscard]] program::Builder& steps() { return scatter_.steps(); }
  [[nodiscard]] int num_hosts() const { return problem_.num_hosts; }
  [[nodiscard]] int per_host() const { return problem_.ranks_per_host(); }
  [[nodiscard]] int rank_on(int host, int local) const { return host * per_host() + local; }
  [[nodiscard]] Shard chunk_of(int of_rank, int chunk) const {
    return chunks_.of_part(problem_.part_of(of_rank).size, chunk);
  }
  /// Whether this device adds what lies in memory of peers. If not, it takes that first.
  [[nodiscard]] bool adds_in_place() const { return problem_.device.kind == DeviceKind::kCpu; }
  /// A GPU multiplies few rows at a lower rate, and a core packs b for each product.
  [[nodiscard]] HostChunks::Least least_chunk() const {
    return {.rows = problem_.device.kind == DeviceKind::kCuda ? 2048 : 256};
  }
  void add_roots();
  /// The sums over this host's ranks of a chunk of what each rank of `host` owns, each into `to` of its
  /// partner here.
  void sum_chunk(int host, int chunk, const Operand& to);
  /// Of the slots that all ranks of this host have for this rank.
  void sum_slots(RootId mine, Shard chunk, const Operand& to);
  [[nodiscard]] Operand layer(int host, Shard chunk) const;

  const ScatterProblem& problem_;
  bool is_pipelined_;
  ScatterBuilder scatter_;
  int host_;
  int local_;
  HostChunks chunks_;
  std::int64_t slot_bytes_ = 0;  ///< of one rank's chunk
  std::int64_t stack_at_ = 0;
  std::int64_t slots_at_ = 0;     ///< where they are taken to, of a GPU
  std::vector<RootId> layers_;    ///< of the stack: one sum a host for this rank
  std::vector<RootId> outgoing_;  ///< by host
  int turn_ = 0;
};

/// In the workspace: two slots, each with one chunk for every rank of a host that has several. In scratch
/// memory: the stack of the hosts' sums for this rank, and the sums for its partners.
void ScatterAcrossHosts::add_roots() {
  slot_bytes_ = program::aligned_to_root(chunks_.units * scatter_.unit_bytes());
  const std::int64_t num_slots = per_host() == 1 ? 0 : 2 * per_host();
  steps().memory().workspace_bytes = std::max(num_slots * slot_bytes_, program::kRootAlignment);
  const std::int64_t own_bytes = scatter_.own().size * scatter_.unit_bytes();
  stack_at_ = steps().reserve_scratch(num_hosts() * own_bytes);
  for (int host = 0; host < num_hosts(); ++host) {
    layers_.push_back(steps().at(Space::kScratch, stack_at_ + host * own_bytes,
                                 fmt::format("sum of host {}", host), problem_.sizes_of(scatter_.own().size),
                                 problem_.partials));
    const Shard theirs = problem_.part_of(rank_on(host, local_));
    outgoing_.push_back(host == host_ ? program::kNone
                                      : steps().scratch(fmt::format("sum for host {}", host),
                                                        problem_.sizes_of(theirs.size), problem_.partials));
  }
  if (per_host() > 1 && !adds_in_place()) slots_at_ = steps().reserve_scratch(per_host() * slot_bytes_);
  scatter_.add_sums(kCurrent, chunks_.units);
}

Operand ScatterAcrossHosts::layer(int host, Shard chunk) const {
  const RootId root = layers_[static_cast<std::size_t>(host)];
  return problem_.scatters_last() ? all_of(root) : part_of(root, 0, chunk.offset, chunk.size);
}

/// A slot is written again two chunks later: behind the barrier of the chunk between, which every rank of
/// this host passes after it has read.
void ScatterAcrossHosts::sum_chunk(int host, int chunk, const Operand& to) {
  if (per_host() == 1) {
    Shard part = chunk_of(host, chunk);
    if (part.size == 0) return;
    part.offset += problem_.part_of(host).offset;
    return scatter_.make_partial(kCurrent, part, to, StepKind::kProduce, host);
  }
  const std::int64_t slot_at = turn_++ % 2 * per_host() * slot_bytes_;
  RootId mine = program::kNone;
  for (int step = 1; step <= per_host(); ++step) {
    const int local = (local_ + step) % per_host();
    const int owner = rank_on(host, local);
    Shard part = chunk_of(owner, chunk);
    const RootId partial =
        steps().at(Space::kWorkspace, slot_at + local * slot_bytes_, fmt::format("partial for {}", owner),
                   problem_.sizes_of(part.size), problem_.partials);
    if (local == local_) mine = partial;
    if (part.size == 0) continue;
    part.offset += problem_.part_of(owner).offset;
    scatter_.make_partial(kCurrent, part, all_of(partial), StepKind::kProduce, owner);
  }
  steps().barrier(kCurrent, 1);  // all ranks of this host have made theirs
  const Shard theirs = chunk_of(rank_on(host, local_), chunk);
  if (theirs.size > 0) sum_slots(mine, theirs, to);
}

void ScatterAcrossHosts::sum_slots(RootId mine, Shard chunk, const Operand& to) {
  if (adds_in_place()) return steps().sum_ranks(kCurrent, all_of(mine), to, problem_.reduce_op);
  Dims sizes = problem_.sizes_of(chunk.size);
  const std::int64_t bytes = numel(sizes) * size_bytes(problem_.partials);
  for (int local = 0; local < per_host(); ++local) {
    const RootId taken = steps().at(Space::kScratch, slots_at_ + local * bytes,
                                    fmt::format("partial of {}", local), sizes, problem_.partials);
    if (local == local_)
      steps().copy(kCurrent, all_of(mine), all_of(taken));
    else
      steps().get(kCurrent, local, all_of(mine), all_of(taken));
  }
  sizes.insert(0, per_host());
  const RootId stack = steps().at(Space::kScratch, slots_at_, "partials", sizes, problem_.partials);
  steps().sum(kCurrent, all_of(stack), to, problem_.reduce_op);
}

ScatterProgram ScatterAcrossHosts::build() {
  add_roots();
  scatter_.copy_operands();
  const Lane network = is_pipelined_ ? kSide : kCurrent;
  std::vector<Exchange> exchanges;
  std::vector<std::size_t> started;
  const auto start = [&](const Exchange& one) {
    if (is_pipelined_) steps().join(kCurrent, network);
    started.push_back(steps().exchange(network, one.to, one.sent, one.from, one.received));
  };
  for (int step = 1; step < num_hosts(); ++step) {
    const int to_host = (host_ + step) % num_hosts();
    const int from_host = (host_ - step + num_hosts()) % num_hosts();
    const RootId outgoing = outgoing_[static_cast<std::size_t>(to_host)];
    for (int chunk = 0; chunk < chunks_.count; ++chunk) {
      const Shard theirs = chunk_of(rank_on(to_host, local_), chunk);
      const Operand sum =
          problem_.scatters_last() ? all_of(outgoing) : part_of(outgoing, 0, theirs.offset, theirs.size);
      sum_chunk(to_host, chunk, sum);
      exchanges.push_back({rank_on(to_host, local_), sum, rank_on(from_host, local_),
                           layer(from_host, chunk_of(scatter_.rank(), chunk))});
      if (is_pipelined_) start(exchanges.back());
    }
  }
  for (int chunk = 0; chunk < chunks_.count; ++chunk)
    sum_chunk(host_, chunk, layer(host_, chunk_of(scatter_.rank(), chunk)));
  if (!is_pipelined_) {
    for (const Exchange& one : exchanges) start(one);
  }
  for (const std::size_t one : started) steps().exchanged(network, one);
  if (is_pipelined_) steps().join(network, kCurrent);
  // The out of scattered columns is a matrix.
  const std::int64_t own = scatter_.own().size;
  Dims sizes = problem_.scatters_last() ? Dims{problem_.rows(), own} : problem_.sizes_of(own);
  sizes.insert(0, num_hosts());
  const RootId stack = steps().at(Space::kScratch, stack_at_, "sums of hosts", sizes, problem_.partials);
  steps().sum(kCurrent, all_of(stack), all_of(scatter_.roots().out), problem_.reduce_op, scatter_.own_bias());
  steps().barrier(kCurrent, 0);  // peers may use the workspace again
  return {scatter_.take(), scatter_.roots()};
}

}  // namespace

ScatterProgram build_scatter_across_hosts(const ScatterProblem& problem, Algorithm algorithm, int rank) {
  return ScatterAcrossHosts(problem, algorithm, rank).build();
}

}  // namespace tandem::fused
