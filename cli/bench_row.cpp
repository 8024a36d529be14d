#include "bench_row.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <tandem/coll/collectives.hpp>
#include <tandem/gemm/async_input_mm.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/scaled_mm.hpp>

#include "explain.hpp"
#include "failure.hpp"
#include "harness/reference.hpp"
#include "harness/stopwatch.hpp"
#include "rank_op.hpp"
#include "timing.hpp"

namespace tandem::cli {
namespace {

constexpr std::int64_t kNumSamples = 256;

/// The product, the collective and the op of one row, on one rank, ready to be run again and again.
class RowRunner {
 public:
  RowRunner(const BenchRow& row, const Session& session);

  /// Has whole_product() by this choice of the vendor's loaded; false if there are not so many. Before any
  /// rank has work that waits for another: on a GPU that ranks share, loading may wait for that work.
  [[nodiscard]] bool load_product(int heuristic) const;
  void whole_product(int heuristic = 0);
  /// The same product as the row's algorithm computes it, with nothing to wait for.
  void own_product();
  void communication();
  /// What a serial op does, into memory that no result is looked for in.
  void load() {
    communication();
    whole_product();
  }
  /// Has cores measured while no rank does anything else, so that every report has predictions.
  void learn_speeds() const;
  void op(Algorithm algorithm) { op_.call(algorithm); }
  void fused() { fused_report_ = op_.call(row_.problem.algorithm); }

  void poison() const { op_.poison(); }
  /// Takes the op's results to the host, for check().
  void look() { op_.download_results(); }
  /// Counts wrong elements of the op's results after a run, of all or of samples.
  void check(bool by_samples);
  /// Runs serial; its results are the ones to compare with, once samples of them agree with f64.
  void start_from_serial();

  /// Of the last fused(); a replay leaves it as it is.
  [[nodiscard]] const OpReport& fused_report() const { return fused_report_; }
  [[nodiscard]] const harness::Wrong& wrong() const { return wrong_; }

 private:
  /// What to do with a product: compute it, or have it loaded.
  enum class Step { kRun, kPrepare };
  /// The product of these rows and the i-th b.
  [[nodiscard]] Result<void> product(Step step, std::size_t i, const Shard& rows, int heuristic) const;
  [[nodiscard]] Shard all_rows() const { return {0, products_[0].view().size(0)}; }
  /// One piece a rank.
  void product_in_chunks(Step step) const;
  /// By the kernel that consumes what arrives, over operands that are all there; false if there is none for
  /// it, or nothing arrives before a product.
  bool native_product();
  void check_samples();

  const BenchRow& row_;
  const Session& session_;
  RankOp op_;
  std::optional<RankOp> crossing_;  ///< the op with nothing to multiply, where collectives do not cross hosts
  harness::GuardedTensor gathered_;
  std::optional<harness::GuardedTensor> gathered_scale_;
  std::vector<harness::GuardedTensor> products_;
  harness::GuardedTensor collected_;
  harness::GuardedTensor signal_;  ///< of native_product(), which awaits none
  std::vector<std::vector<std::byte>> serial_bytes_;
  OpReport fused_report_;
  harness::Wrong wrong_;
};

// Sizes with `dim` first, as the collectives take them.
Dims moved_first(const Dims& sizes, int dim) {
  Dims moved = sizes;
  moved.insert(0, moved.erase(dim));
  return moved;
}

// The op without its products: a gather of no columns of b, a scatter of partials that are sums over nothing.
harness::Problem without_products(harness::Problem problem) {
  if (problem.op == harness::Op::kAllGatherMatmul)
    problem.n.assign(problem.n.size(), 0);
  else
    problem.a[problem.a.size() - 1] = 0;
  return problem;
}

RowRunner::RowRunner(const BenchRow& row, const Session& session)
    : row_(row), session_(session), op_(row.problem, session, harness::GeneratedTensors(row.problem)) {
  const harness::Problem& problem = row.problem;
  const harness::ProductSizes product = product_of_a_rank(problem);
  const Dims matrix{product.m, product.k};
  if (problem.op == harness::Op::kAllGatherMatmul) {
    gathered_ = harness::GuardedTensor(session.device(), matrix, problem.dtype);
    harness::generate({problem.seed, matrix}, gathered_.host());
    gathered_.upload();
    if (problem.is_scaled()) {
      const Dims whole = a_scale_sizes(problem);
      const Dims scales = whole.size() == 1 ? whole : Dims{product.m, whole.back()};
      gathered_scale_.emplace(session.device(), scales, DType::kF32);
      harness::generate({.seed = problem.seed, .sizes = scales, .scale = 0.25, .shift = 0.75},
                        gathered_scale_->host());
      gathered_scale_->upload();
    }
    signal_ = harness::GuardedTensor(session.device(), Dims{1}, DType::kU32);
    collected_ = harness::GuardedTensor(session.device(), moved_first(problem.a, problem.dim), problem.dtype);
  } else {
    Dims sizes = problem.result_sizes(0);
    const harness::Window window = window_of_result(problem, 0, session.rank());
    sizes[window.dim] = window.shard.size;
    collected_ =
        harness::GuardedTensor(session.device(), moved_first(sizes, problem.dim), problem.out_dtype());
  }
  for (const TensorView& b : op_.b()) {
    products_.emplace_back(session.device(), Dims{product.m, b.size(1)}, problem.out_dtype());
  }
  if (session.group().num_hosts() > 1) {
    const harness::Problem crossing = without_products(problem);
    crossing_.emplace(crossing, session, harness::GeneratedTensors(crossing));
  }
  static_cast<void>(load_product(0));
  if (!row.product_only) product_in_chunks(Step::kPrepare);
  session.meet("bench");
}

Result<void> RowRunner::product(Step step, std::size_t i, const Shard& rows, int heuristic) const {
  const harness::RankOperands& operands = op_.operands();
  const bool gathers = row_.problem.op == harness::Op::kAllGatherMatmul;
  const TensorView a = gathers ? gathered_.view() : op_.a().flatten_rows();
  harness::OperandProduct product{.a = a.narrow(0, rows.offset, rows.size),
                                  .i = static_cast<int>(i),
                                  .out = products_[i].view().narrow(0, rows.offset, rows.size),
                                  .heuristic = heuristic};
  if (row_.problem.is_scaled()) {
    product.a_scale = gathers ? gathered_scale_->view() : operands.a_scale();
    if (row_.problem.scales != harness::Scales::kTensor)
      product.a_scale = product.a_scale.flatten_rows().narrow(0, rows.offset, rows.size);
  }
  return step == Step::kRun ? operands.multiply(product, session_.stream())
                            : operands.prepare(product, session_.stream());
}

bool RowRunner::load_product(int heuristic) const {
  for (std::size_t i = 0; i < products_.size(); ++i) {
    const auto loaded = product(Step::kPrepare, i, all_rows(), heuristic);
    if (!loaded && loaded.error().code() == ErrorCode::kUnsupported && heuristic > 0) return false;
    take(loaded);
  }
  return true;
}

void RowRunner::whole_product(int heuristic) {
  for (std::size_t i = 0; i < products_.size(); ++i) take(product(Step::kRun, i, all_rows(), heuristic));
}

void RowRunner::own_product() {
  if (row_.problem.algorithm != Algorithm::kNative || !native_product()) product_in_chunks(Step::kRun);
}

bool RowRunner::native_product() {
  if (row_.problem.op != harness::Op::kAllGatherMatmul || row_.problem.is_scaled()) return false;
  const gemm::CompleteChunks all{gathered_.view(), 0, 1};
  for (std::size_t i = 0; i < products_.size(); ++i) {
    const auto done = gemm::async_input_mm({.a = gathered_.view(),
                                            .b = op_.b()[i],
                                            .out = products_[i].view(),
                                            .a_chunk_signals = signal_.view(),
                                            .complete = all},
                                           session_.stream());
    if (!done && done.error().code() == ErrorCode::kUnsupported) return false;
    take(done);
  }
  return true;
}

void RowRunner::product_in_chunks(Step step) const {
  for (int chunk = 0; chunk < session_.size(); ++chunk) {
    for (std::size_t i = 0; i < products_.size(); ++i)
      take(product(step, i, shard_of(all_rows().size, session_.size(), chunk), 0));
  }
}

void RowRunner::communication() {
  if (crossing_) {
    crossing_->call(Algorithm::kSerial);
    return;
  }
  const harness::Problem& problem = row_.problem;
  const DeviceId device = session_.device().id();
  if (problem.op == harness::Op::kAllGatherMatmul) {
    const TensorView mine =
        TensorView::contiguous(op_.a().data, moved_first(op_.a().sizes, problem.dim), problem.dtype, device);
    return take(coll::all_gather({mine, collected_.view()}, session_.group(), session_.stream()));
  }
  const TensorView whole =
      TensorView::contiguous(products_[0].view().data, moved_first(problem.result_sizes(0), problem.dim),
                             problem.out_dtype(), device);
  if (problem.op == harness::Op::kMatmulAllReduce) {
    return take(coll::all_reduce({whole, collected_.view(), problem.reduce, std::nullopt}, session_.group(),
                                 session_.stream()));
  }
  take(coll::reduce_scatter({whole, collected_.view(), problem.reduce, std::nullopt}, session_.group(),
                            session_.stream()));
}

void RowRunner::learn_speeds() const {
  if (row_.product_only || session_.placement().kind != DeviceKind::kCpu) return;
  session_.meet("bench");
  static_cast<void>(op_.plan(Algorithm::kAuto));
}

void RowRunner::check_samples() {
  for (int i = 0; i < static_cast<int>(op_.outputs().size()); ++i) {
    compare_samples(row_.problem, i, window_of_result(row_.problem, i, session_.rank()),
                    op_.outputs()[static_cast<std::size_t>(i)].host(), kNumSamples, wrong_);
  }
}

void RowRunner::start_from_serial() {
  op(Algorithm::kSerial);
  session_.finish();
  op_.download();
  check_samples();
  serial_bytes_.clear();
  for (const harness::GuardedTensor& out : op_.outputs()) {
    const auto* begin = out.host().data_as<const std::byte>();
    serial_bytes_.emplace_back(begin, begin + out.host().size_bytes());
  }
}

void RowRunner::check(bool by_samples) {
  if (!op_.guards_intact()) wrong_.add("bytes beside a tensor were overwritten");
  // Slices of k add up one after the other when the last dim is gathered: other bits than one sum.
  if (by_samples || (row_.problem.op == harness::Op::kAllGatherMatmul && row_.problem.dim_is_last()))
    return check_samples();
  for (std::size_t i = 0; i < serial_bytes_.size(); ++i) {
    compare_with_serial(row_.problem, static_cast<int>(i),
                        {.first = serial_bytes_[i],
                         .second = op_.outputs()[i].host(),
                         .same_bits = session_.placement().has_same_bits()},
                        wrong_);
  }
}

struct Variant {
  std::string_view name;
  bool is_checked;
  std::function<void()> enqueue;
};

/// Every variant runs once as it is, so that nothing is new to the ranks, and is a recording from then on.
void record_replays(std::vector<Variant>& variants, const Session& session,
                    std::vector<harness::Replay>& replays) {
  replays.reserve(variants.size());  // the variants keep pointers to them
  for (Variant& variant : variants) {
    session.meet("bench");
    variant.enqueue();
    session.finish();
    session.meet("bench");
    const harness::Replay& replay = replays.emplace_back(session.stream(), variant.enqueue);
    variant.enqueue = [&replay] { replay.run(); };
  }
}

/// One variant for each algorithm that could run in the place of the chosen one. All have to have run once.
void add_alternatives(RowRunner& runner, const Session& session, std::vector<Variant>& variants) {
  runner.fused();
  session.finish();
  for (const Candidate& candidate : runner.fused_report().candidates) {
    const Algorithm algorithm = candidate.algorithm;
    if (!candidate.why_not.empty() || algorithm == Algorithm::kSerial ||
        algorithm == runner.fused_report().algorithm)
      continue;
    runner.op(algorithm);
    session.finish();
    variants.push_back({to_string(algorithm), true, [&runner, algorithm] { runner.op(algorithm); }});
  }
}

/// The vendor's choice that is fastest here, found by a few runs of each; -1 on CPUs, which have one. Every
/// rank times as often as the others, whatever it finds.
int find_best_heuristic(RowRunner& runner, const Session& session, const harness::Stopwatch& stopwatch) {
  if (session.placement().kind == DeviceKind::kCpu) return -1;
  constexpr int kRuns = 5;
  std::array<bool, gemm::kMostHeuristics> exists{};
  for (int i = 0; i < gemm::kMostHeuristics; ++i) exists[i] = runner.load_product(i);
  session.meet("bench");
  double best_us = std::numeric_limits<double>::infinity();
  int best = 0;
  for (int i = 0; i < gemm::kMostHeuristics; ++i) {
    std::vector<double> us;
    for (int run = 0; run <= kRuns; ++run) {
      const double time_us = stopwatch.time_us([&] {
        if (exists[i]) runner.whole_product(i);
      });
      if (run > 0) us.push_back(time_us);
    }
    if (const double typical_us = harness::median(us); exists[i] && typical_us < best_us) {
      best_us = typical_us;
      best = i;
    }
  }
  return best;
}

std::vector<Variant> variants_of(const BenchRow& row, RowRunner& runner, Group& group, int best_heuristic) {
  std::vector<Variant> variants{{"gemm", false, [&] { runner.whole_product(); }}};
  if (best_heuristic >= 0) {
    variants.push_back(
        {"gemm_best", false, [&runner, best_heuristic] { runner.whole_product(best_heuristic); }});
  }
  if (row.product_only) return variants;
  variants.push_back({"own_mm", false, [&] { runner.own_product(); }});
  variants.push_back({"comm", false, [&] { runner.communication(); }});
  variants.push_back({"serial", true, [&] { runner.op(Algorithm::kSerial); }});
  variants.push_back({"fused", true, [&] { runner.fused(); }});
  if (!group.nan_check()) return variants;
  variants.push_back({"unchecked", true, [&] {
                        group.set_nan_check(false);
                        runner.op(row.problem.algorithm);
                        group.set_nan_check(true);
                      }});
  return variants;
}

double flops_of(const harness::ProductSizes& product) {
  return 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
         static_cast<double>(product.k);
}

/// How many times a collective and a product keep a GPU busy for about so long; every rank finds the same. At
/// least one: links that have been idle while results were looked at take time to wake.
int num_loads(const harness::Problem& problem, int load_ms) {
  // Of an H200, with what it waits for.
  constexpr double kFlopsPerUs = 500e6;
  constexpr double kShortestUs = 30;
  const double us = std::max(kShortestUs, flops_of(product_of_a_rank(problem)) / kFlopsPerUs);
  return 1 + static_cast<int>(std::ceil(1000 * load_ms / us));
}

harness::Stopwatch stopwatch_for(RowRunner& runner, const harness::Problem& problem,
                                 const BenchCounts& counts, const Session& session) {
  if (session.group().nan_check())
    runner.whole_product();  // which the collective sums, from the first load on
  harness::Stopwatch stopwatch(session.device(), session.group(), session.stream());
  stopwatch.load_before([&runner] { runner.load(); }, num_loads(problem, counts.load_ms));
  return stopwatch;
}

/// Times all variants, in a new order every round, and checks what they leave in the rounds that are to be
/// checked: a list of times by name.
nlohmann::json time_in_turns(const std::vector<Variant>& variants, const BenchCounts& counts,
                             RowRunner& runner, const harness::Stopwatch& stopwatch) {
  nlohmann::json times;
  for (const Variant& variant : variants) times[variant.name] = nlohmann::json::array();
  std::mt19937 random(20);  // the same on every rank, so that all take the same order
  std::vector<std::size_t> order(variants.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int round = -counts.warmup; round < counts.iterations; ++round) {
    const bool is_checked = !counts.by_samples || round == -counts.warmup;
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t which : order) {
      const Variant& variant = variants[which];
      // What comes around a call decides on how warm its GPU is: the same for those without a result.
      if (is_checked) runner.poison();
      const double us = stopwatch.time_us(variant.enqueue);
      if (is_checked) runner.look();
      if (is_checked && variant.is_checked) runner.check(counts.by_samples);
      if (round >= 0) times[variant.name].push_back(us);
    }
  }
  return times;
}

/// How long calls of the op keep the host: a list by name, empty on CPUs.
nlohmann::json time_host(const std::vector<Variant>& variants, const harness::Stopwatch& stopwatch) {
  constexpr int kBursts = 5;
  nlohmann::json times;
  for (const Variant& variant : variants) {
    times[variant.name] = nlohmann::json::array();
    const bool is_told = variant.name == "serial" || variant.name == "fused";
    for (int burst = 0; is_told && burst < kBursts; ++burst) {
      if (const auto us = stopwatch.host_us(variant.enqueue)) times[variant.name].push_back(*us);
    }
  }
  return times;
}

}  // namespace

nlohmann::json measure(const BenchRow& row, const BenchCounts& counts, const Session& session) {
  RowRunner runner(row, session);
  runner.learn_speeds();
  const harness::Stopwatch stopwatch = stopwatch_for(runner, row.problem, counts, session);
  std::vector<Variant> variants =
      variants_of(row, runner, session.group(), find_best_heuristic(runner, session, stopwatch));
  if (!row.product_only) runner.start_from_serial();
  if (!row.product_only && counts.alternatives) add_alternatives(runner, session, variants);
  std::vector<harness::Replay> replays;
  if (counts.graph) record_replays(variants, session, replays);
  nlohmann::json times = time_in_turns(variants, counts, runner, stopwatch);
  times["host"] = time_host(variants, stopwatch);
  return {{"times", times},
          {"report", to_json(runner.fused_report())},
          {"wrong", runner.wrong().count},
          {"first_wrong", runner.wrong().first}};
}

double product_us(const BenchRow& row, const BenchCounts& counts, const Session& session) {
  RowRunner runner(row, session);
  const harness::Stopwatch stopwatch = stopwatch_for(runner, row.problem, counts, session);
  std::vector<double> slowest;
  for (int round = -counts.warmup; round < counts.iterations; ++round) {
    const double own = stopwatch.time_us([&] { runner.whole_product(); });
    const std::vector<double> all = session.exchange(own, "bench product");
    if (round >= 0) slowest.push_back(*std::max_element(all.begin(), all.end()));
  }
  return harness::median(slowest);
}

nlohmann::json measure_algorithms(const harness::Problem& problem, const BenchCounts& counts,
                                  const Session& session) {
  const BenchRow row{problem};
  RowRunner runner(row, session);
  runner.learn_speeds();
  runner.start_from_serial();
  runner.fused();
  session.finish();
  std::vector<Variant> variants;
  for (const Candidate& candidate : runner.fused_report().candidates) {
    const Algorithm algorithm = candidate.algorithm;
    if (!candidate.why_not.empty()) continue;
    variants.push_back({to_string(algorithm), true, [&runner, algorithm] { runner.op(algorithm); }});
  }
  const harness::Stopwatch stopwatch = stopwatch_for(runner, problem, counts, session);
  const nlohmann::json times = time_in_turns(variants, counts, runner, stopwatch);
  const OpReport& report = runner.fused_report();
  cost::Row measured;
  measured.key = *report.tune_key;
  for (const Variant& variant : variants)
    measured.us[std::string(variant.name)] = harness::median(times[variant.name].get<std::vector<double>>());
  return {{"times", times},
          {"table", cost::to_json(cost::Table{session.device().description(), {measured}})},
          {"report", to_json(runner.fused_report())},
          {"wrong", runner.wrong().count},
          {"first_wrong", runner.wrong().first}};
}

namespace {

/// Of serial, and of the algorithm that ran.
void add_predictions(const nlohmann::json& report, nlohmann::json& row) {
  for (const auto& candidate : report.at("candidates")) {
    if (candidate.at("algorithm") == row["algorithm"]) row["predicted_us"] = candidate.at("predicted_us");
    if (candidate.at("algorithm") == "serial") row["predicted_serial_us"] = candidate.at("predicted_us");
  }
}

/// On all ranks together.
std::int64_t count_wrong(const std::vector<nlohmann::json>& results) {
  std::int64_t wrong = 0;
  for (const auto& result : results) wrong += result.at("wrong").get<std::int64_t>();
  return wrong;
}

}  // namespace

nlohmann::json scales_json(harness::Scales scales) {
  return scales == harness::Scales::kNone ? nlohmann::json() : nlohmann::json(to_string(scales));
}

nlohmann::json summarize(const BenchRow& row, const BenchCounts& counts,
                         const std::vector<nlohmann::json>& results) {
  const harness::Problem& problem = row.problem;
  const harness::ProductSizes product = product_of_a_rank(problem);
  const auto typical = [&](const char* variant) {
    return harness::median(slowest_rank(results, std::string("/times/") + variant));
  };
  const double t_gemm = typical("gemm");
  nlohmann::json json{{"op", row.op_name()},
                      {"m", product.m},
                      {"n", product.n},
                      {"k", product.k},
                      {"dtype", to_string(problem.dtype)},
                      {"scales", scales_json(problem.scales)},
                      {"fast_accum", problem.fast_accum},
                      {"world", problem.ranks},
                      {"graph", counts.graph},
                      {"load_ms", counts.load_ms},
                      {"b_order", problem.b_is_column_major ? "column" : "row"},
                      {"t_gemm_us", t_gemm},
                      {"t_gemm_best_us", nullptr}};
  if (results[0].at("times").contains("gemm_best")) json["t_gemm_best_us"] = typical("gemm_best");
  for (const char* key : {"algorithm", "as_graph", "nan_check", "t_own_mm_us", "t_comm_us", "t_serial_us",
                          "t_fused_us", "t_unchecked_us", "predicted_us", "predicted_serial_us", "host_us",
                          "host_serial_us", "ect_us", "efficiency", "ceiling", "speedup"}) {
    json[key] = nullptr;
  }
  json["wrong"] = 0;
  json["tflops"] = flops_of(product) / t_gemm * 1e-6;
  if (row.product_only) return json;

  const double t_comm = typical("comm");
  const double t_serial = typical("serial");
  const double t_fused = typical("fused");
  const double ect = t_fused - t_gemm;
  for (const char* key : {"algorithm", "as_graph", "nan_check"}) json[key] = results[0].at("report").at(key);
  json["t_own_mm_us"] = typical("own_mm");
  json["t_comm_us"] = t_comm;
  json["t_serial_us"] = t_serial;
  json["t_fused_us"] = t_fused;
  if (results[0].at("times").contains("unchecked")) json["t_unchecked_us"] = typical("unchecked");
  add_predictions(results[0].at("report"), json);
  if (!results[0].at("times").at("host").at("fused").empty()) {
    json["host_us"] = typical("host/fused");
    json["host_serial_us"] = typical("host/serial");
  }
  for (const char* name : {"serial", "pipelined", "native"}) {
    if (!counts.alternatives) break;
    const bool is_chosen = json["algorithm"] == name;
    if (is_chosen || results[0].at("times").contains(name))
      json["t_algorithms_us"][name] = is_chosen ? t_fused : typical(name);
  }
  json["tflops"] = flops_of(product) / t_fused * 1e-6;
  json["ect_us"] = ect;
  if (t_serial > t_gemm) json["efficiency"] = 1 - ect / (t_serial - t_gemm);
  json["ceiling"] = std::max(t_gemm, t_comm) / t_fused;
  json["speedup"] = t_serial / t_fused;
  json["wrong"] = count_wrong(results);
  return json;
}

}  // namespace tandem::cli
