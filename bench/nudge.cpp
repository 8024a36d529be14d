// What the nap of produce_and_all_to_all is for: with and without it, on how many calls do two ranks begin
// with different products, and how long does the call take? GPUs, one a rank.
//   bench_nudge [RANKS [CALLS [M N K]]]   prints a JSON row for each; times in microseconds

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <tandem/tandem.hpp>
#include <vector>

#include "base/try.hpp"
#include "launched_ranks.hpp"
#include "pipeline/schedules.hpp"

namespace {

using namespace tandem;

struct Shape {
  std::int64_t m, n, k;  ///< of the whole product; each rank has k / ranks
};

/// Of one call on one rank.
struct Seen {
  double us = 0;
  bool own_first = false;  ///< the product for itself ended before the first one for another rank
};

/// A rank of the job, and what it measures with.
class Bench {
 public:
  static Result<Bench> make(const RankContext& context, const Shape& shape);
  Result<std::vector<Seen>> measure(bool nudge, int calls);
  [[nodiscard]] Device& device() const { return *device_; }

 private:
  Result<Seen> call(bool nudge);

  int world_ = 1;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Stream> stream_, side_;
  Tensor a_, b_, stack_;
  std::shared_ptr<symm::Handle> workspace_;
  std::unique_ptr<Event> begin_, end_, own_done_, first_other_done_;
};

Result<Bench> Bench::make(const RankContext& context, const Shape& shape) {
  Bench bench;
  TANDEM_ASSIGN(const Config config, Config::from_environment());
  bench.world_ = context.size;
  TANDEM_ASSIGN(bench.device_, open_device({DeviceKind::kCuda, context.rank}, config));
  Device& device = *bench.device_;
  TANDEM_ASSIGN(bench.group_, Group::create({context.rank, context.size, "world", context.store, config}));
  TANDEM_ASSIGN(bench.stream_, device.create_stream());
  TANDEM_ASSIGN(bench.side_, device.create_stream());
  for (auto* event : {&bench.begin_, &bench.end_, &bench.own_done_, &bench.first_other_done_}) {
    TANDEM_ASSIGN(*event, device.create_event());
  }
  const std::int64_t rows = shape.m / context.size;
  TANDEM_ASSIGN(bench.a_, device.allocate_tensor({rows, shape.k / context.size}, DType::kBF16));
  TANDEM_ASSIGN(bench.b_, device.allocate_tensor({shape.k / context.size, shape.n}, DType::kBF16));
  TANDEM_ASSIGN(bench.stack_, device.allocate_tensor({context.size, rows, shape.n}, DType::kBF16));
  TANDEM_ASSIGN(bench.workspace_,
                symm::workspace(*bench.group_, device,
                                pipeline::scatter_workspace_bytes(bench.stack_.view(), rows * context.size)));
  return bench;
}

Result<Seen> Bench::call(bool nudge) {
  const int rank = workspace_->rank();
  bool is_first_other = true;
  const auto produce = [&](int destination, const TensorView& to, Stream& stream) -> Result<void> {
    TANDEM_TRY(gemm::mm({.a = a_.view(), .b = b_.view(), .out = to, .bias = {}}, stream));
    if (destination == rank) return stream.record(*own_done_);
    if (!is_first_other) return {};
    is_first_other = false;
    return stream.record(*first_other_done_);
  };
  TANDEM_TRY(workspace_->barrier(*stream_, symm::kFirstUserChannel));
  TANDEM_TRY(stream_->record(*begin_));
  TANDEM_TRY(pipeline::produce_and_all_to_all(
      {.stack = stack_.view(), .total = stack_.view().size(1) * world_, .producer = produce, .nudge = nudge},
      *workspace_, {*stream_, *side_}));
  TANDEM_TRY(stream_->record(*end_));
  TANDEM_TRY(stream_->synchronize());
  TANDEM_ASSIGN(const double us, end_->elapsed_us(*begin_));
  TANDEM_ASSIGN(const double lead_us, first_other_done_->elapsed_us(*own_done_));
  return Seen{us, lead_us > 0};
}

Result<std::vector<Seen>> Bench::measure(bool nudge, int calls) {
  std::vector<Seen> seen;
  for (int i = 0; i < calls; ++i) {
    TANDEM_ASSIGN(seen.emplace_back(), call(nudge));
  }
  return seen;
}

/// Both ways in turns of 20 calls, since the GPUs slow down as they get warm. Rank 0 prints.
Result<void> run_rank(const RankContext& context, const Shape& shape, int calls) {
  constexpr int kTurn = 20;
  TANDEM_ASSIGN(Bench bench, Bench::make(context, shape));
  std::array<std::vector<Seen>, 2> seen;
  for (const bool nudge : {false, true}) TANDEM_TRY(bench.measure(nudge, kTurn));
  for (int done = 0; done < calls; done += kTurn) {
    for (const bool nudge : {false, true}) {
      TANDEM_ASSIGN(const auto some, bench.measure(nudge, kTurn));
      seen[nudge].insert(seen[nudge].end(), some.begin(), some.end());
    }
  }
  for (const bool nudge : {false, true}) {
    const std::string key = std::string(nudge ? "on/" : "off/");
    TANDEM_TRY(context.store->set(key + std::to_string(context.rank), std::as_bytes(std::span(seen[nudge]))));
    if (context.rank != 0) continue;
    const std::size_t count = seen[0].size();
    std::vector<double> slowest(count, 0);
    std::vector<int> own_first(count, 0);
    for (int r = 0; r < context.size; ++r) {
      TANDEM_ASSIGN(const auto bytes,
                    context.store->get(key + std::to_string(r), Deadline::after(std::chrono::seconds(60))));
      std::vector<Seen> theirs(count);
      std::memcpy(theirs.data(), bytes.data(), bytes.size());
      for (std::size_t i = 0; i < count; ++i) {
        slowest[i] = std::max(slowest[i], theirs[i].us);
        own_first[i] += theirs[i].own_first ? 1 : 0;
      }
    }
    std::sort(slowest.begin(), slowest.end());
    const auto differ = std::count_if(own_first.begin(), own_first.end(),
                                      [&](int ranks) { return ranks != 0 && ranks != context.size; });
    const auto all_own = std::count(own_first.begin(), own_first.end(), context.size);
    const nlohmann::json row{
        {"what", "produce_and_all_to_all, time of the slowest rank; order of the first two products"},
        {"nudge", nudge},
        {"world", context.size},
        {"m", shape.m},
        {"n", shape.n},
        {"k", shape.k},
        {"calls", count},
        {"share_ranks_differ", static_cast<double>(differ) / static_cast<double>(count)},
        {"share_own_first", static_cast<double>(all_own) / static_cast<double>(count)},
        {"p50_us", slowest[count / 2]},
        {"p99_us", slowest[count * 99 / 100]},
        {"machine", bench.device().description()},
        {"commit", TANDEM_COMMIT},
        {"command", "bench_nudge " + std::to_string(context.size) + " " + std::to_string(calls) + " " +
                        std::to_string(shape.m) + " " + std::to_string(shape.n) + " " +
                        std::to_string(shape.k)}};
    std::printf("%s\n", row.dump().c_str());
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_launched(argc, argv, [](const bench::Numbers& numbers) {
    const int ranks = numbers.at(0, 2);
    const int calls = numbers.at(1, 400);
    const Shape shape{numbers.at(2, 4096), numbers.at(3, 4096), numbers.at(4, 14336)};
    const bool is_fine = ranks >= 2 && calls >= 1 && shape.m % ranks == 0 && shape.k % ranks == 0;
    return bench::LaunchedRanks{
        .program = "bench_nudge",
        .ranks = ranks,
        .refusal =
            is_fine ? nullptr : "bench_nudge [RANKS >= 2 [CALLS >= 1 [M N K]]], M and K multiples of RANKS",
        .run_rank = [=](const RankContext& context) { return run_rank(context, shape, calls); }};
  });
}
