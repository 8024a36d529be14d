#include <algorithm>
#include <vector>

#include "base/format.hpp"
#include "fused/call/host_chunks.hpp"
#include "fused/call/host_ranks.hpp"
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
/// their order. In an all-reduce it sends its sums to its partners, and the ranks of a host take from each
/// other what they have. `pipelined` makes the rows of other hosts first, chunk by chunk, and its own
/// meanwhile. See docs/design/hosts.md.
class ScatterAcrossHosts {
 public:
  ScatterAcrossHosts(const ScatterProblem& problem, Algorithm algorithm, int rank)
      : problem_(problem),
        is_pipelined_(algorithm == Algorithm::kPipelined),
        network_(is_pipelined_ ? kSide : kCurrent),
        scatter_(problem, algorithm, rank, is_pipelined_ ? 2 : 1),
        here_(RankOnHosts::of(rank, problem)) {
    chunks_ = is_pipelined_ && !problem.scatters_last()
                  ? HostChunks::of(largest_part(), problem.unit_rows(), scatter_.unit_bytes(), least_chunk())
                  : HostChunks::whole(largest_part());
    crossing_.resize(static_cast<std::size_t>(chunks_.count));
    given_.resize(static_cast<std::size_t>(chunks_.count));
  }

  ScatterProgram build();

 private:
  /// Of a sum of this host's ranks.
  struct Exchange {
    int to = 0;
    Operand sent;
    int from = 0;
    Operand received;
    std::size_t started = 0;
  };

  [[nodiscard]] program::Builder& steps() { return scatter_.steps(); }
  [[nodiscard]] std::int64_t largest_part() const { return shard_stride(problem_.total(), problem_.world); }
  /// Counted from where the part of that rank begins.
  [[nodiscard]] Shard chunk_of(int of_rank, int chunk) const {
    return chunks_.of_part(problem_.part_of(of_rank).size, chunk);
  }
  [[nodiscard]] Shard own_chunk(int chunk) const { return chunk_of(scatter_.rank(), chunk); }
  /// Whether this device adds what lies in memory of peers. If not, it takes that first.
  [[nodiscard]] bool adds_in_place() const { return problem_.device.kind == DeviceKind::kCpu; }
  /// A GPU multiplies few rows at a lower rate, and a core packs b for each product.
  [[nodiscard]] HostChunks::Least least_chunk() const {
    return {.rows = problem_.device.kind == DeviceKind::kCuda ? 2048 : 256};
  }
  void add_roots();
  void add_sums();
  /// The sums over this host's ranks of a chunk of what each rank of `host` owns, each into `to` of its
  /// partner here.
  void sum_chunk(int host, int chunk, const Operand& to);
  /// Of the slots that all ranks of this host have for this rank.
  void sum_slots(RootId mine, Shard chunk, const Operand& to);
  /// A layer of the stack of a chunk: the sum of that host for this rank.
  [[nodiscard]] Operand layer(int host, Shard chunk);
  [[nodiscard]] Operand sums(int host, Shard chunk) const;
  void cross(int step, int chunk);
  void start(Exchange& one);
  void sum_own_host(int chunk);
  void sum_hosts(int chunk);
  void give(int chunk);
  void take(int chunk);
  void reduce_and_give();

  const ScatterProblem& problem_;
  bool is_pipelined_;
  Lane network_;
  ScatterBuilder scatter_;
  RankOnHosts here_;
  HostChunks chunks_;
  std::int64_t slot_bytes_ = 0;  ///< of one rank's chunk
  std::int64_t stack_at_ = 0;
  std::int64_t slots_at_ = 0;                    ///< where they are taken to, of a GPU
  std::vector<RootId> outgoing_;                 ///< by host
  std::vector<std::vector<Exchange>> crossing_;  ///< by chunk
  // Of an all-reduce.
  std::vector<RootId> sums_;                     ///< by host: of this rank, and of its partners
  std::vector<std::vector<std::size_t>> given_;  ///< by chunk: exchanges of sums
  int turn_ = 0;
};

/// In the workspace: two slots, each with one chunk for every rank of a host that has several. In scratch
/// memory: for each chunk the stack of the hosts' sums for this rank, and the sums for its partners.
void ScatterAcrossHosts::add_roots() {
  slot_bytes_ = program::aligned_to_root(chunks_.units * scatter_.unit_bytes());
  const std::int64_t num_slots = here_.per_host == 1 ? 0 : 2 * here_.per_host;
  steps().memory().workspace_bytes = std::max(num_slots * slot_bytes_, program::kRootAlignment);
  stack_at_ = steps().reserve_scratch(here_.num_hosts * scatter_.own().size * scatter_.unit_bytes());
  for (int host = 0; host < here_.num_hosts; ++host) {
    const Shard theirs = problem_.part_of(here_.partner_on(host));
    outgoing_.push_back(host == here_.host
                            ? program::kNone
                            : steps().scratch(fmt::format("sum for host {}", host),
                                              problem_.sizes_of(theirs.size), problem_.partials));
  }
  if (here_.per_host > 1 && !adds_in_place())
    slots_at_ = steps().reserve_scratch(here_.per_host * slot_bytes_);
  scatter_.add_sums(kCurrent, chunks_.units);
  if (problem_.gives_all) add_sums();
}

/// Behind the slots, where the ranks of this host take them. They have the size of the largest part, so that
/// they lie in one place on all ranks.
void ScatterAcrossHosts::add_sums() {
  for (int host = 0; host < here_.num_hosts; ++host) {
    sums_.push_back(steps().at(Space::kWorkspace, steps().memory().workspace_bytes,
                               host == here_.host ? "sums" : fmt::format("sums of host {}", host),
                               problem_.sizes_of(largest_part()), problem_.dtype));
    steps().memory().workspace_bytes += program::aligned_to_root(steps().root(sums_.back()).most_bytes);
  }
}

Operand ScatterAcrossHosts::layer(int host, Shard chunk) {
  const std::int64_t units = here_.num_hosts * chunk.offset + host * chunk.size;
  return all_of(steps().at(Space::kScratch, stack_at_ + units * scatter_.unit_bytes(),
                           fmt::format("sum of host {}", host), problem_.sizes_of(chunk.size),
                           problem_.partials));
}

Operand ScatterAcrossHosts::sums(int host, Shard chunk) const {
  return part_of(sums_[static_cast<std::size_t>(host)], 0, chunk.offset, chunk.size);
}

/// A slot is written again two chunks later: behind the barrier of the chunk between, which every rank of
/// this host passes after it has read.
void ScatterAcrossHosts::sum_chunk(int host, int chunk, const Operand& to) {
  if (here_.per_host == 1) {
    Shard part = chunk_of(host, chunk);
    if (part.size == 0) return;
    part.offset += problem_.part_of(host).offset;
    return scatter_.make_partial(kCurrent, part, to, StepKind::kProduce, host);
  }
  const std::int64_t slot_at = turn_++ % 2 * here_.per_host * slot_bytes_;
  RootId mine = program::kNone;
  for (int step = 1; step <= here_.per_host; ++step) {
    const int local = (here_.local + step) % here_.per_host;
    const int owner = here_.rank_on(host, local);
    Shard part = chunk_of(owner, chunk);
    const RootId partial =
        steps().at(Space::kWorkspace, slot_at + local * slot_bytes_, fmt::format("partial for {}", owner),
                   problem_.sizes_of(part.size), problem_.partials);
    if (local == here_.local) mine = partial;
    if (part.size == 0) continue;
    part.offset += problem_.part_of(owner).offset;
    scatter_.make_partial(kCurrent, part, all_of(partial), StepKind::kProduce, owner);
  }
  steps().barrier(kCurrent, 1);  // all ranks of this host have made theirs
  const Shard theirs = chunk_of(here_.partner_on(host), chunk);
  if (theirs.size > 0) sum_slots(mine, theirs, to);
}

void ScatterAcrossHosts::sum_slots(RootId mine, Shard chunk, const Operand& to) {
  if (adds_in_place()) return steps().sum_ranks(kCurrent, all_of(mine), to, problem_.reduce_op);
  Dims sizes = problem_.sizes_of(chunk.size);
  const std::int64_t bytes = numel(sizes) * size_bytes(problem_.partials);
  for (int local = 0; local < here_.per_host; ++local) {
    const RootId taken = steps().at(Space::kScratch, slots_at_ + local * bytes,
                                    fmt::format("partial of {}", local), sizes, problem_.partials);
    if (local == here_.local)
      steps().copy(kCurrent, all_of(mine), all_of(taken));
    else
      steps().get(kCurrent, local, all_of(mine), all_of(taken));
  }
  sizes.insert(0, here_.per_host);
  const RootId stack = steps().at(Space::kScratch, slots_at_, "partials", sizes, problem_.partials);
  steps().sum(kCurrent, all_of(stack), to, problem_.reduce_op);
}

void ScatterAcrossHosts::sum_own_host(int chunk) {
  sum_chunk(here_.host, chunk, layer(here_.host, own_chunk(chunk)));
}

/// This host's sum of a chunk for the host of this step, which is sent for the sum of another host.
void ScatterAcrossHosts::cross(int step, int chunk) {
  const int host = here_.host_to(step);
  const int from_host = here_.host_from(step);
  const RootId outgoing = outgoing_[static_cast<std::size_t>(host)];
  const Shard theirs = chunk_of(here_.partner_on(host), chunk);
  Exchange& one = crossing_[static_cast<std::size_t>(chunk)].emplace_back();
  one.to = here_.partner_on(host);
  one.sent = problem_.scatters_last() ? all_of(outgoing) : part_of(outgoing, 0, theirs.offset, theirs.size);
  one.from = here_.partner_on(from_host);
  one.received = layer(from_host, own_chunk(chunk));
  sum_chunk(host, chunk, one.sent);
  if (is_pipelined_) start(one);
}

void ScatterAcrossHosts::start(Exchange& one) {
  if (is_pipelined_) steps().join(kCurrent, network_);
  one.started = steps().exchange(network_, one.to, one.sent, one.from, one.received);
}

/// The sum over hosts of a chunk of the own rows, in the order of hosts, when all have come.
void ScatterAcrossHosts::sum_hosts(int chunk) {
  const Shard own = own_chunk(chunk);
  std::vector<Exchange>& crossing = crossing_[static_cast<std::size_t>(chunk)];
  if (!is_pipelined_) {
    for (Exchange& one : crossing) start(one);
  }
  for (const Exchange& one : crossing) steps().exchanged(network_, one.started);
  if (is_pipelined_) steps().join(kCurrent, network_);
  if (own.size == 0) return;
  // The out of scattered columns is a matrix.
  Dims sizes = problem_.scatters_last() ? Dims{problem_.rows(), own.size} : problem_.sizes_of(own.size);
  sizes.insert(0, here_.num_hosts);
  const RootId stack =
      steps().at(Space::kScratch, stack_at_ + here_.num_hosts * own.offset * scatter_.unit_bytes(),
                 "sums of hosts", sizes, problem_.partials);
  const RootId out = scatter_.roots().out;
  const Operand to = problem_.gives_all         ? sums(here_.host, own)
                     : problem_.scatters_last() ? all_of(out)
                                                : part_of(out, 0, own.offset, own.size);
  steps().sum(network_, all_of(stack), to, problem_.reduce_op, scatter_.own_bias());
}

/// Sends the partners what this rank has summed of a chunk, and receives what they have.
void ScatterAcrossHosts::give(int chunk) {
  for (int step = 1; step < here_.num_hosts; ++step) {
    const int to = here_.partner_on(here_.host_to(step));
    const int from_host = here_.host_from(step);
    const int from = here_.partner_on(from_host);
    given_[static_cast<std::size_t>(chunk)].push_back(steps().exchange(
        network_, to, sums(here_.host, own_chunk(chunk)), from, sums(from_host, chunk_of(from, chunk))));
  }
}

/// Copies the sums of a chunk to out. Each rank of this host has its own and those of its partners.
void ScatterAcrossHosts::take(int chunk) {
  for (const std::size_t one : given_[static_cast<std::size_t>(chunk)]) steps().exchanged(network_, one);
  steps().barrier(network_, 0);  // all ranks of this host have theirs
  for (int step = 0; step < problem_.world; ++step) {
    const int source = (scatter_.rank() + step) % problem_.world;
    const int local = source % here_.per_host;
    const Shard part = chunk_of(source, chunk);
    if (part.size == 0) continue;
    const Operand from = sums(source / here_.per_host, part);
    const Operand to =
        part_of(scatter_.roots().out, 0, problem_.part_of(source).offset + part.offset, part.size);
    if (local == here_.local)
      steps().copy(network_, from, to, StepKind::kTakeSum, source);
    else
      steps().get(network_, local, from, to, StepKind::kTakeSum, chunk);
  }
}

/// All hosts' rows of a chunk come before those of the next, so that its sums are there early. They cross
/// beside the products of later chunks, and are taken once those of the next chunk are on their way. Between
/// CPUs, whose links have delays, the next chunk is on its way before the lane waits for one.
void ScatterAcrossHosts::reduce_and_give() {
  const int ahead = problem_.device.kind == DeviceKind::kCpu ? 1 : 0;
  for (int chunk = 0; chunk < chunks_.count + ahead; ++chunk) {
    if (chunk < chunks_.count) {
      for (int step = 1; step < here_.num_hosts; ++step) cross(step, chunk);
      sum_own_host(chunk);
    }
    const int come = chunk - ahead;
    if (come < 0) continue;
    sum_hosts(come);
    give(come);
    if (come > 0) take(come - 1);
  }
  take(chunks_.count - 1);
}

ScatterProgram ScatterAcrossHosts::build() {
  add_roots();
  scatter_.copy_operands();
  if (problem_.gives_all) {
    reduce_and_give();
  } else {
    for (int step = 1; step < here_.num_hosts; ++step) {
      for (int chunk = 0; chunk < chunks_.count; ++chunk) cross(step, chunk);
    }
    for (int chunk = 0; chunk < chunks_.count; ++chunk) {
      sum_own_host(chunk);
      sum_hosts(chunk);
    }
  }
  if (is_pipelined_) steps().join(network_, kCurrent);
  steps().barrier(kCurrent, 0);  // peers may use the workspace again
  return {scatter_.take(), scatter_.roots()};
}

}  // namespace

ScatterProgram build_scatter_across_hosts(const ScatterProblem& problem, Algorithm algorithm, int rank) {
  return ScatterAcrossHosts(problem, algorithm, rank).build();
}

}  // namespace tandem::fused
