// What the nap of the pipelined scatter is for: with and without it, on how many calls do two ranks begin
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
#include "fused/scatter/algorithms.hpp"
#include "launched_ranks.hpp"
#include "program/runner.hpp"

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

  std::unique_ptr<Device> device_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Stream> stream_, side_;
  Tensor a_, b_, out_;
  Buffer scratch_;
  std::shared_ptr<symm::Handle> workspace_;
  /// The program, with its nap and without: up to its first product, to the one for this rank, and the rest.
  using Parts = std::array<program::Program, 3>;
  std::array<Parts, 2> parts_;
  program::Bindings bindings_;
  std::unique_ptr<Event> begin_, end_, own_done_, first_other_done_;
};

/// The program cut behind its first and its last product.
std::array<program::Program, 3> parts_of(const program::Program& whole, bool nudge) {
  std::array<program::Program, 3> parts;
  for (program::Program& part : parts) {
    part = whole;
    part.steps.clear();
  }
  std::size_t num_products = 0;
  for (const program::Step& step : whole.steps) {
    if (step.kind == program::StepKind::kNap && !nudge) continue;
    const bool is_behind_all = num_products == whole.products.size();
    parts[is_behind_all ? 2 : num_products == 0 ? 0 : 1].steps.push_back(step);
    if (step.kind == program::StepKind::kProduct) ++num_products;
  }
  return parts;
}

Result<Bench> Bench::make(const RankContext& context, const Shape& shape) {
  Bench bench;
  TANDEM_ASSIGN(const Config config, Config::from_environment());
  TANDEM_ASSIGN(bench.device_, open_device({DeviceKind::kCuda, context.rank}, config));
  Device& device = *bench.device_;
  TANDEM_ASSIGN(bench.group_, Group::create({context.rank, context.size, "world", context.store, config}));
  TANDEM_ASSIGN(bench.stream_, device.create_stream());
  TANDEM_ASSIGN(bench.side_, device.create_stream());
  for (auto* event : {&bench.begin_, &bench.end_, &bench.own_done_, &bench.first_other_done_}) {
    TANDEM_ASSIGN(*event, device.create_event());
  }
  const std::int64_t rows = shape.m / context.size;
  const std::int64_t k = shape.k / context.size;
  TANDEM_ASSIGN(bench.a_, device.allocate_tensor({shape.m, k}, DType::kBF16));
  TANDEM_ASSIGN(bench.b_, device.allocate_tensor({k, shape.n}, DType::kBF16));
  TANDEM_ASSIGN(bench.out_, device.allocate_tensor({rows, shape.n}, DType::kBF16));
  const fused::ScatterProblem problem{.dtype = DType::kBF16,
                                      .partials = DType::kBF16,
                                      .sizes = {shape.m, shape.n},
                                      .world = context.size,
                                      .device = device.id(),
                                      .num_products = 1,
                                      .sum_k = k};
  const auto built = fused::build_pipelined_scatter(problem, context.rank, device);
  const program::Program& whole = built.program;
  for (const bool nudge : {false, true}) bench.parts_[nudge] = parts_of(whole, nudge);
  TANDEM_ASSIGN(bench.workspace_, symm::workspace(*bench.group_, device, whole.memory.workspace_bytes));
  TANDEM_ASSIGN(bench.scratch_, device.allocate(whole.memory.scratch_bytes));
  bench.bindings_ = program::Bindings(whole);
  bench.bindings_.bind_lane(program::kCurrent, *bench.stream_);
  bench.bindings_.bind_lane(program::kSide, *bench.side_);
  bench.bindings_.bind_scratch(whole, static_cast<std::byte*>(bench.scratch_.data()), device.id());
  bench.bindings_.bind_workspace(whole, bench.workspace_.get(), device.id());
  const TensorView a = bench.a_.view(), b = bench.b_.view();
  bind({.a = {&a, 1}, .b = {&b, 1}, .out = bench.out_.view()}, problem, built.roots, bench.bindings_);
  TANDEM_TRY(program::prepare(whole, bench.bindings_));
  return bench;
}

Result<Seen> Bench::call(bool nudge) {
  const auto& [first_product, to_the_own, rest] = parts_[nudge];
  TANDEM_TRY(workspace_->barrier(*stream_, symm::kFirstUserChannel));
  TANDEM_TRY(stream_->record(*begin_));
  TANDEM_TRY(program::run(first_product, bindings_));
  TANDEM_TRY(side_->record(*first_other_done_));
  TANDEM_TRY(program::run(to_the_own, bindings_));
  TANDEM_TRY(stream_->record(*own_done_));
  TANDEM_TRY(program::run(rest, bindings_));
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
        {"what", "pipelined scatter, time of the slowest rank; order of the first two products"},
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
