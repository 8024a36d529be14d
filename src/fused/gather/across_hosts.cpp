#include <algorithm>
#include <vector>

#include "base/format.hpp"
#include "fused/call/host_chunks.hpp"
#include "fused/call/host_ranks.hpp"
#include "fused/gather/algorithms.hpp"

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

constexpr Lane kNetwork = 2;

/// Rank r of this host exchanges its shard with rank r of each other host, so every row crosses once between
/// two hosts. What has come from there lies in its workspace, where the other ranks of this host get it, as
/// they do the shards of this host. `pipelined` multiplies this host's rows meanwhile, and those of others
/// chunk by chunk as they come. See docs/design/hosts.md.
class GatherAcrossHosts {
 public:
  GatherAcrossHosts(const GatherProblem& problem, Algorithm algorithm, int rank)
      : problem_(problem),
        is_pipelined_(algorithm == Algorithm::kPipelined),
        gather_(problem, algorithm, rank, is_pipelined_ ? kNetwork + 1 : 1),
        here_(RankOnHosts::of(rank, problem)) {
    if (is_pipelined_ && !problem.gathers_last()) {
      chunks_ = HostChunks::of(largest_part(), problem.unit_rows(),
                               problem.unit_elements() * size_bytes(problem.dtype), least_chunk());
    } else {
      chunks_ = HostChunks::whole(largest_part());
    }
  }

  GatherProgram build();

 private:
  /// Where a tensor lies in the workspace.
  struct Published {
    RootId own = program::kNone;        ///< this rank's shard
    std::vector<RootId> received = {};  ///< of its partner on host g; none of this one
  };
  /// An exchange of all that travels.
  struct Exchange {
    int host = 0;  ///< that it comes from
    int chunk = 0;
    std::vector<std::size_t> steps = {};
  };

  [[nodiscard]] program::Builder& steps() { return gather_.steps(); }
  /// A GPU multiplies few rows at a lower rate.
  [[nodiscard]] HostChunks::Least least_chunk() const {
    return problem_.device.kind == DeviceKind::kCuda ? HostChunks::Least{.rows = 1024} : HostChunks::Least{};
  }
  [[nodiscard]] std::int64_t largest_part() const { return shard_stride(problem_.total(), problem_.world); }
  void publish();
  void start(Lane lane);
  void finish(Lane lane, const Exchange& exchange);
  /// A chunk of what lies there of travelling tensor i.
  [[nodiscard]] Operand published(int i, RootId root, Shard chunk) const;
  [[nodiscard]] Shard chunk_of(int i, int of_rank, int chunk) const;
  void get(Lane lane, int host, int local, int chunk);
  void consume(Lane lane, int source, int chunk);
  void take_all();
  void take_as_it_comes();

  const GatherProblem& problem_;
  bool is_pipelined_;
  GatherBuilder gather_;
  RankOnHosts here_;
  HostChunks chunks_;
  std::vector<Published> tensors_;
  std::vector<Exchange> exchanges_;
};

Shard GatherAcrossHosts::chunk_of(int i, int of_rank, int chunk) const {
  const Travelling& tensor = gather_.tensors()[static_cast<std::size_t>(i)];
  const std::int64_t units = tensor.part_of(problem_.world, of_rank).size;
  return chunks_.count == 1 ? Shard{0, units} : chunks_.of_part(units, chunk);
}

Operand GatherAcrossHosts::published(int i, RootId root, Shard chunk) const {
  const bool by_slices = gather_.tensors()[static_cast<std::size_t>(i)].by_slices;
  return by_slices ? all_of(root) : part_of(root, 0, chunk.offset, chunk.size);
}

/// Places for the own shard and for each that its partners send. They have the size of the largest part, so
/// that they lie in one place on all ranks; of slices that of their rank, as their rows lie one behind the
/// other.
void GatherAcrossHosts::publish() {
  std::int64_t at = 0;
  for (int i = 0; i < static_cast<int>(gather_.tensors().size()); ++i) {
    const Travelling& tensor = gather_.tensors()[static_cast<std::size_t>(i)];
    const std::int64_t bytes = program::aligned_to_root(tensor.part_bytes(problem_.world));
    const auto place = [&](int of_rank, const std::string& name) {
      const std::int64_t units = tensor.by_slices ? tensor.part_of(problem_.world, of_rank).size
                                                  : shard_stride(tensor.total, problem_.world);
      const RootId root = steps().at(Space::kWorkspace, at, name, tensor.sizes_of(units), tensor.dtype);
      at += bytes;
      return root;
    };
    Published& one = tensors_.emplace_back();
    one.own = place(gather_.rank(), fmt::format("published {}", tensor.name));
    for (int host = 0; host < here_.num_hosts; ++host) {
      one.received.push_back(host == here_.host ? program::kNone
                                                : place(here_.partner_on(host),
                                                        fmt::format("{} of host {}", tensor.name, host)));
    }
  }
  steps().memory().workspace_bytes = std::max(at, program::kRootAlignment);
  GatherBuilder::Label label = StepKind::kPublish;
  for (int i = 0; i < static_cast<int>(tensors_.size()); ++i) {
    const std::int64_t own =
        gather_.tensors()[static_cast<std::size_t>(i)].part_of(problem_.world, gather_.rank()).size;
    steps().copy(kCurrent, gather_.own_shard(i),
                 published(i, tensors_[static_cast<std::size_t>(i)].own, {0, own}), label);
    label.reset();
  }
}

/// What is sent lies in the workspace, where nobody writes before the end.
void GatherAcrossHosts::start(Lane lane) {
  for (int step = 1; step < here_.num_hosts; ++step) {
    const int to = here_.partner_on(here_.host_to(step));
    const int from_host = here_.host_from(step);
    const int from = here_.partner_on(from_host);
    for (int chunk = 0; chunk < chunks_.count; ++chunk) {
      Exchange& exchange = exchanges_.emplace_back(Exchange{.host = from_host, .chunk = chunk});
      for (int i = 0; i < static_cast<int>(tensors_.size()); ++i) {
        const Published& tensor = tensors_[static_cast<std::size_t>(i)];
        exchange.steps.push_back(steps().exchange(
            lane, to, published(i, tensor.own, chunk_of(i, gather_.rank(), chunk)), from,
            published(i, tensor.received[static_cast<std::size_t>(from_host)], chunk_of(i, from, chunk))));
      }
    }
  }
}

void GatherAcrossHosts::finish(Lane lane, const Exchange& exchange) {
  for (const std::size_t step : exchange.steps) steps().exchanged(lane, step);
}

/// Chunk `chunk` of what rank `local` of this host has of its partner on `host`.
void GatherAcrossHosts::get(Lane lane, int host, int local, int chunk) {
  GatherBuilder::Label label = StepKind::kGet;
  const int source = here_.rank_on(host, local);
  for (int i = 0; i < static_cast<int>(tensors_.size()); ++i) {
    const Published& tensor = tensors_[static_cast<std::size_t>(i)];
    const Shard part = chunk_of(i, source, chunk);
    const Travelling& travelling = gather_.tensors()[static_cast<std::size_t>(i)];
    const RootId root = host == here_.host ? tensor.own : tensor.received[static_cast<std::size_t>(host)];
    const Operand from = published(i, root, part);
    const Operand to =
        travelling.by_slices
            ? gather_.arrived(i, gather_.from(source))
            : part_of(gather_.travel(i).gathered, 0,
                      travelling.part_of(problem_.world, source).offset + part.offset, part.size);
    if (local == here_.local)
      steps().copy(lane, from, to, label, source);
    else
      steps().get(lane, local, from, to, label);
    label.reset();
  }
}

void GatherAcrossHosts::consume(Lane lane, int source, int chunk) {
  if (problem_.gathers_last()) return gather_.slice_arrived(lane, source);
  const Shard part = problem_.part_of(source);
  const Shard rows = chunk_of(0, source, chunk);
  if (source == gather_.rank()) return gather_.multiply(lane, gather_.from(source), StepKind::kConsumeOwn);
  gather_.multiply(lane, {{part.offset + rows.offset, rows.size}, source, true}, StepKind::kConsume);
}

/// One thing after the other: shards cross, ranks of a host take them, then all is multiplied at once.
void GatherAcrossHosts::take_all() {
  start(kCurrent);
  for (const Exchange& exchange : exchanges_) finish(kCurrent, exchange);
  steps().barrier(kCurrent, 1);  // all shards and those of partners are there
  for (int step = 0; step < problem_.world; ++step) {
    const int source = (gather_.rank() + step) % problem_.world;
    if (source == gather_.rank() && problem_.gathers_last()) continue;
    get(kCurrent, source / here_.per_host, source % here_.per_host, 0);
  }
  steps().barrier(kCurrent, 0);  // peers may use the workspace again
  if (!problem_.gathers_last()) return gather_.multiply(kCurrent, gather_.all());
  for (int source = 0; source < problem_.world; ++source) gather_.slice_arrived(kCurrent, source);
  gather_.finish_slices();
}

/// The rows of this host are multiplied while those of others cross.
void GatherAcrossHosts::take_as_it_comes() {
  steps().join(kCurrent, kNetwork);
  start(kNetwork);
  steps().barrier(kCurrent, 1);  // all shards of this host are published
  steps().join(kCurrent, kSide);
  steps().join(kCurrent, kNetwork);
  consume(kCurrent, gather_.rank(), 0);
  for (int step = 1; step < here_.per_host; ++step) {
    const Lane lane = step % 2 == 1 ? kSide : kCurrent;
    const int local = (here_.local + step) % here_.per_host;
    for (int chunk = 0; chunk < chunks_.count; ++chunk) get(lane, here_.host, local, chunk);
    if (problem_.gathers_last())
      consume(lane, here_.rank_on(here_.host, local), 0);
    else
      gather_.multiply(lane, gather_.from(here_.rank_on(here_.host, local)), StepKind::kConsume);
  }
  int turn = here_.per_host % 2;
  for (const Exchange& exchange : exchanges_) {
    finish(kNetwork, exchange);
    steps().barrier(kNetwork, 1);  // all ranks of this host have this chunk of their partners
    const Lane lane = turn++ % 2 == 0 ? kCurrent : kSide;
    steps().join(kNetwork, lane);
    for (int step = 0; step < here_.per_host; ++step) {
      const int local = (here_.local + step) % here_.per_host;
      const int source = here_.rank_on(exchange.host, local);
      if (!problem_.gathers_last() && chunk_of(0, source, exchange.chunk).size == 0) continue;
      get(lane, exchange.host, local, exchange.chunk);
      consume(lane, source, exchange.chunk);
    }
  }
  if (!problem_.gathers_last()) gather_.keep_own(kCurrent, StepKind::kKeepOwn);
  steps().join(kSide, kCurrent);
  steps().join(kNetwork, kCurrent);
  steps().barrier(kCurrent, 0);  // peers may use the workspace again
  if (problem_.gathers_last()) gather_.finish_slices();
}

GatherProgram GatherAcrossHosts::build() {
  gather_.add_gathered();
  gather_.copy_shards();
  publish();
  is_pipelined_ ? take_as_it_comes() : take_all();
  return {gather_.take(), gather_.roots()};
}

}  // namespace

GatherProgram build_gather_across_hosts(const GatherProblem& problem, Algorithm algorithm, int rank) {
  return GatherAcrossHosts(problem, algorithm, rank).build();
}

}  // namespace tandem::fused
