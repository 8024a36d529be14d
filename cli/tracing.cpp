#include "tracing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tandem/base/time_text.hpp>
#include <tandem/trace/summary.hpp>

#include "failure.hpp"
#include "outputs.hpp"
#include "rank_job.hpp"

namespace tandem::cli {
namespace {

constexpr const char* kAskedKey = "trace/asked";
constexpr const char* kNumSessionsKey = "trace/sessions";
constexpr std::string_view kOut = "--out";

std::string events_key(std::int64_t session, int rank) {
  return fmt::format("trace/{}/{}", session, rank);
}

/// Takes `--out DIR` or `--out=DIR` off, which begins at `at`; nothing if there is none.
std::optional<std::string> take_out(std::vector<std::string>& words, std::size_t at) {
  if (at >= words.size()) return std::nullopt;
  const auto begin = words.begin() + static_cast<std::ptrdiff_t>(at);
  const std::string with_value = fmt::format("{}=", kOut);
  std::string folder;
  if (begin->starts_with(with_value)) {
    folder = begin->substr(with_value.size());
    words.erase(begin);
  } else if (*begin == kOut && at + 1 < words.size()) {
    folder = words[at + 1];
    words.erase(begin, begin + 2);
  } else {
    return std::nullopt;
  }
  return folder;
}

/// The folder is that of the `--out` before the command, or else of the last one behind it.
std::optional<std::string> take_folder(std::vector<std::string>& words) {
  if (auto folder = take_out(words, 1)) return folder;
  for (std::size_t at = words.size() - 1; at > 1; --at) {
    if (auto folder = take_out(words, at)) return folder;
  }
  return std::nullopt;
}

std::string percent(const std::optional<double>& share) {
  return share ? fmt::format("{:.0f} %", 100 * *share) : "-";
}

/// What stands above the columns of sums().
constexpr std::string_view kSums = "     busy   product communication  hidden   waiting";

std::string sums(const trace::TimeSums& all) {
  return fmt::format("{:>9} {:>9} {:>13} {:>7} {:>9}", time_text(all.busy_us), time_text(all.product_us),
                     time_text(all.communication_us), percent(all.hidden_share()), time_text(all.waiting_us));
}

void print_ranks(const trace::Summary& summary) {
  fmt::print("# trace {:>4} {}\n", "rank", kSums);
  for (const trace::RankSummary& rank : summary.ranks)
    fmt::print("        {:>4} {}\n", rank.rank, sums(rank));
}

void print_ops(const trace::Summary& summary) {
  fmt::print("# calls {:>9} {}  over all ranks\n", "median", kSums);
  for (const trace::OpSummary& op : summary.ops) {
    fmt::print("{:>7} {:>9} {}  {}{}{}\n", op.num_calls, time_text(op.median_us), sums(op), op.op,
               op.algorithm.empty() ? "" : " ", op.algorithm);
    if (op.between_hosts_us > 0) {
      fmt::print("{:>50} {:>7}            of that between hosts\n", time_text(op.between_hosts_us),
                 percent(op.between_hosts_hidden_share()));
    }
  }
}

void print_losses(const trace::Summary& summary) {
  if (summary.slowest_rank >= 0) fmt::print("# slowest rank: {}\n", summary.slowest_rank);
  if (summary.losses.empty()) {
    fmt::print("# no rank lost time to waiting\n");
    return;
  }
  const trace::Loss& loss = summary.losses.front();
  fmt::print("# largest loss: {} of rank {} in '{}' of call {}; {}\n", time_text(loss.us), loss.rank,
             loss.what, loss.call, loss.because.empty() ? "nobody knows for whom" : loss.because);
}

}  // namespace

CommandLine CommandLine::of(int argc, char** argv) {
  CommandLine line{.words = {argv, argv + argc}, .trace = {}};
  constexpr std::string_view kTrace = "trace";
  if (argc < 3 || argv[1] != kTrace) return line;
  const std::string_view first = argv[2];
  if (first == "--help" || first == "-h") return line;
  line.words.erase(line.words.begin() + 1);
  const auto folder = take_folder(line.words);
  constexpr std::array<std::string_view, 3> kTraced = {"demo", "run", "bench"};
  if (line.words.size() < 2 || std::find(kTraced.begin(), kTraced.end(), line.words[1]) == kTraced.end()) {
    bad_input(
        fmt::format("trace '{}': only demo, run and bench can be traced: tandem trace bench ... --out DIR",
                    line.words.size() < 2 ? "" : line.words[1]));
  }
  if (!folder || folder->empty())
    bad_input("trace: need --out DIR, the folder for trace.json and trace.html, as the last argument");
  line.trace = *folder;
  return line;
}

Tracing::Tracing(std::filesystem::path folder) : folder_(std::move(folder)) {
  claim_in_folder("trace: --out", folder_, {"trace.json", "trace.html"});
}

void Tracing::ask(Store& store, bool is_traced) {
  send_to_ranks(store, kAskedKey, is_traced);
}

void Tracing::collect(Store& store) {
  const std::int64_t num_sessions = take(store.add(kNumSessionsKey, 0));
  for (std::int64_t session = 1; session <= num_sessions; ++session) {
    const int num_ranks = from_store(store, events_key(session, -1));
    trace_.resize(std::max(trace_.size(), static_cast<std::size_t>(num_ranks)));
    for (int rank = 0; rank < num_ranks; ++rank) {
      trace::RankEvents& all = trace_[static_cast<std::size_t>(rank)];
      all.rank = rank;
      all.append(take(trace::RankEvents::from_bytes(get_large(store, events_key(session, rank)))));
    }
  }
}

void Tracing::finish(const std::string& command, const Machine& machine) const {
  std::size_t num_events = 0;
  std::int64_t num_dropped = 0;
  std::int64_t num_unseen = 0;
  for (const trace::RankEvents& rank : trace_) {
    num_events += rank.events.size();
    num_dropped += rank.num_dropped;
    num_unseen = std::max(num_unseen, rank.num_unseen_calls);
  }
  if (num_events == 0) {
    not_supported(fmt::format("trace: nothing to show: the command ran no op of a group of ranks{}",
                              num_unseen == 0 ? "" : " but recorded ones; leave out --graph"));
  }
  const trace::Summary summary = trace::summarize(trace_);
  trace::Origin origin = origin_here(command);
  origin.machine = fmt::format("{}, {}, {} cores", origin.machine, machine.cpu_model, machine.usable_cores());
  {
    const Writing writing((folder_ / "trace.json").native());
    take(save(trace_, summary, origin, folder_));
    writing.kept();
  }
  print_ranks(summary);
  print_ops(summary);
  print_losses(summary);
  if (num_dropped > 0) fmt::print("# {} events found no room, or did not run\n", num_dropped);
  if (num_unseen > 0)
    fmt::print("# {} calls of each rank were recorded as graphs, and are not shown\n", num_unseen);
  fmt::print("# wrote {} and trace.html: {} events of {} ranks\n", (folder_ / "trace.json").native(),
             num_events, trace_.size());
}

std::shared_ptr<Timeline> asked_timeline(const RankContext& context, Device& device) {
  if (!receive(context, kAskedKey).get<bool>()) return nullptr;
  return take(Timeline::create(device));
}

void tell(Timeline& timeline, Group& group, const RankContext& context) {
  const trace::Trace trace = take(timeline.gather(group));
  if (context.rank != 0) return;
  const std::int64_t session = take(context.store->add(kNumSessionsKey, 1));
  for (const trace::RankEvents& rank : trace)
    set_large(*context.store, events_key(session, rank.rank), rank.to_bytes());
  send_to_ranks(*context.store, events_key(session, -1), trace.size());
}

}  // namespace tandem::cli
