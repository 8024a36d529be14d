// What a timeline costs the ops that it notes, and what it says: fused ops of bf16 with and without one, in
// turns; how far apart the ranks' times of one meeting are; and who is named where one rank stalls. GPUs, one
// a rank, or CPU ranks.
//   bench_timeline_cost [RANKS [CALLS [M N K [STALL_MS]]]]   prints JSON rows; each rank multiplies M x N x K

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <tandem/tandem.hpp>
#include <tandem/timeline/timeline.hpp>
#include <tandem/trace/summary.hpp>
#include <vector>

#include "base/try.hpp"
#include "bf16_values.hpp"
#include "launched_ranks.hpp"

namespace {

using namespace tandem;

struct Work {
  int calls = 100;
  std::int64_t m = 0, n = 0, k = 0;
  int stall_ms = 5;
  std::string command;
};

enum class Op : std::uint8_t { kGather, kScatter, kAllReduce };
constexpr std::array kOps = {Op::kGather, Op::kScatter, Op::kAllReduce};
constexpr std::array kAlgorithms = {Algorithm::kNative, Algorithm::kPipelined, Algorithm::kSerial};

const char* name_of(Op op) {
  switch (op) {
    case Op::kGather:
      return "all_gather_matmul";
    case Op::kScatter:
      return "matmul_reduce_scatter";
    case Op::kAllReduce:
      return "matmul_all_reduce";
  }
  return "?";
}

/// How calls are made: graphs are what a user without a timeline gets of calls that come again.
enum class Way : std::uint8_t { kGraphs, kEager, kNoted };
constexpr std::array kWays = {Way::kGraphs, Way::kEager, Way::kNoted};

constexpr int kCallsOfTurn = 10;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// A rank of the job.
class Rank {
 public:
  static Result<Rank> make(const RankContext& context, const Work& job);
  /// Of an op by an algorithm; nothing if it cannot run here.
  Result<void> measure(Op op, Algorithm algorithm);

 private:
  Result<std::string> call(Op op, Algorithm algorithm, Way way);
  Result<std::vector<std::uint16_t>> output(Op op);
  Result<double> turn(Op op, Algorithm algorithm, Way way);
  Result<std::vector<double>> slowest(const std::vector<double>& mine, std::string_view what);
  Result<bool> check(Op op, Algorithm algorithm, nlohmann::json& row);
  Result<void> time(Op op, Algorithm algorithm, nlohmann::json& row);
  Result<void> stall(Op op, Algorithm algorithm, nlohmann::json& row);
  [[nodiscard]] Group& group_of(Way way) { return way == Way::kGraphs ? *graphs_ : *eager_; }
  [[nodiscard]] TensorView out_of(Op op) {
    return op == Op::kScatter ? out_.view().narrow(0, 0, job_.m / graphs_->size()) : out_.view();
  }

  Work job_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Group> graphs_, eager_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> begin_, end_;
  std::shared_ptr<Timeline> timeline_;
  Tensor a_, b_, out_;
};

Result<Rank> Rank::make(const RankContext& context, const Work& job) {
  Rank rank;
  rank.job_ = job;
  TANDEM_ASSIGN(Config config, Config::from_environment());
  const bool has_gpus = count_cuda_devices() >= context.size;
  TANDEM_ASSIGN(
      rank.device_,
      open_device({has_gpus ? DeviceKind::kCuda : DeviceKind::kCpu, has_gpus ? context.rank : 0}, config));
  TANDEM_ASSIGN(rank.graphs_,
                Group::create({context.rank, context.size, "with graphs", context.store, config}));
  config.record_after = 0;
  TANDEM_ASSIGN(rank.eager_, Group::create({context.rank, context.size, "eager", context.store, config}));
  Device& device = *rank.device_;
  TANDEM_ASSIGN(rank.stream_, device.create_stream());
  TANDEM_ASSIGN(rank.begin_, device.create_event());
  TANDEM_ASSIGN(rank.end_, device.create_event());
  TANDEM_ASSIGN(rank.timeline_, Timeline::create(device));
  TANDEM_ASSIGN(rank.a_, device.allocate_tensor({job.m, job.k}, DType::kBF16));
  TANDEM_ASSIGN(rank.b_, device.allocate_tensor({job.k, job.n}, DType::kBF16));
  TANDEM_ASSIGN(rank.out_, device.allocate_tensor({job.m, job.n}, DType::kBF16));
  const auto seed = static_cast<unsigned>(context.rank);
  TANDEM_TRY(device.copy_from_host(bench::random_bf16(job.m * job.k, seed).data(), rank.a_.view()));
  TANDEM_TRY(device.copy_from_host(bench::random_bf16(job.k * job.n, 100 + seed).data(), rank.b_.view()));
  return rank;
}

/// Returns the algorithm that runs.
Result<std::string> Rank::call(Op op, Algorithm algorithm, Way way) {
  Group& group = group_of(way);
  const std::vector a = {a_.view()};
  const std::vector b = {b_.view()};
  const std::vector out = {out_of(op)};
  const auto run = [&]() -> Result<OpReport> {
    switch (op) {
      case Op::kGather: {
        const std::int64_t rows = job_.m / group.size();
        return fused_all_gather_matmul({.a = a[0].narrow(0, group.rank() * rows, rows),
                                        .b = b,
                                        .gather_size = job_.m,
                                        .out = out,
                                        .algorithm = algorithm},
                                       group, *stream_);
      }
      case Op::kScatter:
        return fused_matmul_reduce_scatter({.a = a, .b = b, .out = out[0], .algorithm = algorithm}, group,
                                           *stream_);
      case Op::kAllReduce:
        return fused_matmul_all_reduce({.a = a, .b = b, .out = out[0], .algorithm = algorithm}, group,
                                       *stream_);
    }
    return fail(ErrorCode::kInternal, "no such op");
  };
  TANDEM_ASSIGN(const OpReport report, run());
  return std::string(to_string(report.algorithm));
}

Result<std::vector<std::uint16_t>> Rank::output(Op op) {
  TANDEM_TRY(stream_->synchronize());
  std::vector<std::uint16_t> values(static_cast<std::size_t>(out_of(op).numel()));
  TANDEM_TRY(device_->copy_to_host(out_of(op), values.data()));
  return values;
}

/// Microseconds a call.
Result<double> Rank::turn(Op op, Algorithm algorithm, Way way) {
  TANDEM_TRY(stream_->synchronize());
  eager_->set_timeline(way == Way::kNoted ? timeline_ : nullptr);
  TANDEM_TRY(eager_->all_gather({}, "turn"));
  TANDEM_TRY(call(op, algorithm, way));  // the ranks are together behind it
  TANDEM_TRY(stream_->record(*begin_));
  for (int i = 0; i < kCallsOfTurn; ++i) TANDEM_TRY(call(op, algorithm, way));
  TANDEM_TRY(stream_->record(*end_));
  TANDEM_TRY(stream_->synchronize());
  eager_->set_timeline(nullptr);
  TANDEM_ASSIGN(const double us, end_->elapsed_us(*begin_));
  return us / kCallsOfTurn;
}

/// Of each turn, over all ranks.
Result<std::vector<double>> Rank::slowest(const std::vector<double>& mine, std::string_view what) {
  TANDEM_ASSIGN(const auto all, eager_->all_gather(std::as_bytes(std::span(mine)), what));
  std::vector<double> slowest(mine.size(), 0);
  for (const auto& bytes : all) {
    std::vector<double> theirs(mine.size());
    std::memcpy(theirs.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < mine.size(); ++i) slowest[i] = std::max(slowest[i], theirs[i]);
  }
  return slowest;
}

/// By how much the ends of a meeting differ between ranks, in microseconds: of each meeting.
std::vector<double> spreads_of(const trace::Trace& trace) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<std::int64_t>> ends;
  for (const trace::RankEvents& rank : trace) {
    for (const trace::Event& event : rank.events) {
      if (event.meeting >= 0 && rank.text(event.step).find("barrier") != std::string_view::npos)
        ends[{event.call, event.meeting}].push_back(event.end_ns);
    }
  }
  std::vector<double> spreads;
  for (const auto& [meeting, of_ranks] : ends) {
    const auto [first, last] = std::minmax_element(of_ranks.begin(), of_ranks.end());
    if (of_ranks.size() == trace.size()) spreads.push_back(static_cast<double>(*last - *first) / 1e3);
  }
  return spreads;
}

Result<void> Rank::stall(Op op, Algorithm algorithm, nlohmann::json& row) {
  constexpr int kLate = 1;
  eager_->set_timeline(timeline_);
  for (int i = 0; i < 3; ++i) {
    if (i == 1 && eager_->rank() == kLate)
      TANDEM_TRY(stream_->sleep(std::chrono::milliseconds(job_.stall_ms)));
    TANDEM_TRY(call(op, algorithm, Way::kNoted));
  }
  TANDEM_TRY(stream_->synchronize());
  eager_->set_timeline(nullptr);
  TANDEM_ASSIGN(const trace::Trace trace, timeline_->gather(*eager_));
  const trace::Summary summary = trace::summarize(trace);
  row["stall_us"] = 1e3 * job_.stall_ms;
  row["stalled_rank"] = kLate;
  row["slowest_rank"] = summary.slowest_rank;
  if (summary.losses.empty()) return {};
  const trace::Loss& largest = summary.losses.front();
  row["largest_loss"] = {{"rank", largest.rank},
                         {"what", largest.what},
                         {"us", largest.us},
                         {"waited_for", largest.waited_for},
                         {"because", largest.because}};
  return {};
}

/// Results first: those of noted calls are the bits of others. False if the algorithm cannot run here.
Result<bool> Rank::check(Op op, Algorithm algorithm, nlohmann::json& row) {
  const auto first = call(op, algorithm, Way::kEager);
  if (!first && first.error().code() == ErrorCode::kUnsupported) return false;
  if (!first) return tl::unexpected(first.error());
  row["algorithm"] = *first;
  TANDEM_ASSIGN(const auto reference, output(op));
  eager_->set_timeline(timeline_);
  TANDEM_TRY(call(op, algorithm, Way::kNoted));
  TANDEM_ASSIGN(const auto noted, output(op));
  eager_->set_timeline(nullptr);
  row["wrong"] = bench::count_wrong(noted, reference, job_.k, 0);
  return true;
}

Result<void> Rank::time(Op op, Algorithm algorithm, nlohmann::json& row) {
  std::array<std::vector<double>, kWays.size()> us;
  for (const Way way : kWays) TANDEM_TRY(turn(op, algorithm, way));
  TANDEM_TRY(timeline_->gather(*eager_));  // what came so far is not shown
  for (int done = 0; done < job_.calls; done += kCallsOfTurn) {
    for (const Way way : kWays) {
      TANDEM_ASSIGN(const double of_turn, turn(op, algorithm, way));
      us[static_cast<std::size_t>(way)].push_back(of_turn);
    }
  }
  constexpr std::array kKeys = {"graphs_us", "eager_us", "noted_us"};
  for (std::size_t way = 0; way < kWays.size(); ++way) {
    TANDEM_ASSIGN(us[way], slowest(us[way], kKeys[way]));
    row[kKeys[way]] = median(us[way]);
  }
  std::vector<double> ratios;
  for (std::size_t i = 0; i < us[0].size(); ++i) ratios.push_back(us[2][i] / us[1][i]);
  row["noted_to_eager"] = median(ratios);
  row["turns"] = ratios.size();
  return {};
}

/// What the timeline says of the timed calls.
void describe(const trace::Trace& trace, nlohmann::json& row) {
  std::int64_t num_events = 0;
  std::int64_t num_waits = 0;
  std::int64_t num_dropped = 0;
  std::int64_t num_calls = 0;
  for (const trace::RankEvents& rank : trace) {
    num_calls += rank.num_calls;
    num_dropped += rank.num_dropped;
    for (const trace::Event& event : rank.events) (event.within >= 0 ? num_waits : num_events) += 1;
  }
  row["events_of_call"] = static_cast<double>(num_events) / static_cast<double>(num_calls);
  row["chunk_waits_of_call"] = static_cast<double>(num_waits) / static_cast<double>(num_calls);
  row["dropped"] = num_dropped;
  row["schedule"] = trace[0].calls.empty() ? "" : std::string(trace[0].text(trace[0].calls[0].schedule));
  row["clock"] = trace[0].clock;
  row["uncertainty_us"] = static_cast<double>(trace[0].uncertainty_ns + trace.back().uncertainty_ns) / 1e3;
  const std::vector<double> spreads = spreads_of(trace);
  row["barriers"] = spreads.size();
  if (!spreads.empty()) {
    row["barrier_ends_differ_us"] = {{"median", median(spreads)},
                                     {"most", *std::max_element(spreads.begin(), spreads.end())}};
  }
  for (const trace::RankSummary& rank : trace::summarize(trace).ranks) {
    const auto share = rank.hidden_share();
    row["hidden_share"].push_back(share ? nlohmann::json(*share) : nlohmann::json());
  }
}

Result<void> Rank::measure(Op op, Algorithm algorithm) {
  nlohmann::json row{{"what", "a timeline of fused ops: us a call of the slowest rank, in turns"},
                     {"op", name_of(op)},
                     {"m", job_.m},
                     {"n", job_.n},
                     {"k", job_.k},
                     {"dtype", "bf16"},
                     {"world", eager_->size()}};
  TANDEM_ASSIGN(const bool can_run, check(op, algorithm, row));
  if (!can_run) return {};
  TANDEM_TRY(time(op, algorithm, row));
  TANDEM_ASSIGN(const trace::Trace trace, timeline_->gather(*eager_));
  describe(trace, row);
  TANDEM_TRY(stall(op, algorithm, row));
  row["machine"] = device_->description();
  row["commit"] = TANDEM_COMMIT;
  row["command"] = job_.command;
  if (eager_->rank() == 0) std::printf("%s\n", row.dump().c_str());
  return {};
}

Result<void> run_rank(const RankContext& context, const Work& job) {
  TANDEM_ASSIGN(Rank rank, Rank::make(context, job));
  for (const Op op : kOps) {
    for (const Algorithm algorithm : kAlgorithms) TANDEM_TRY(rank.measure(op, algorithm));
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_launched(argc, argv, [](const bench::Numbers& numbers) {
    const int ranks = numbers.at(0, 2);
    Work job{.calls = numbers.at(1, 100),
             .m = numbers.at(2, 4096),
             .n = numbers.at(3, 7168),
             .k = numbers.at(4, 8192),
             .stall_ms = numbers.at(5, 5),
             .command = "bench_timeline_cost"};
    for (const std::string& text : numbers.texts()) job.command += " " + text;
    const bool is_fine = ranks >= 2 && job.calls >= 1 && job.m % ranks == 0 && job.m > 0 && job.n > 0 &&
                         job.k > 0 && job.stall_ms >= 0;
    return bench::LaunchedRanks{
        .program = "bench_timeline_cost",
        .ranks = ranks,
        .refusal = is_fine
                       ? nullptr
                       : "bench_timeline_cost [RANKS >= 2 [CALLS >= 1 [M N K [STALL_MS]]]], M a multiple of "
                         "RANKS",
        .run_rank = [=](const RankContext& context) { return run_rank(context, job); }};
  });
}
