#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tandem/base/time_text.hpp>

#include "bench_4bit.hpp"
#include "bench_beside.hpp"
#include "bench_peaks.hpp"
#include "bench_products.hpp"
#include "bench_row.hpp"
#include "command.hpp"
#include "explain.hpp"
#include "failure.hpp"
#include "measure_flags.hpp"
#include "memory_need.hpp"
#include "row_file.hpp"
#include "timing.hpp"
#include "version.hpp"

namespace tandem::cli {
namespace {

constexpr const char* kRowKey = "bench/row";

struct BenchFlags {
  std::string op;
  std::vector<std::string> algorithms{"auto"};
  std::string problem;
  std::string json;
  std::string config;
  bool explain = false;
  bool all_cores = false;
  std::vector<std::string> peers;
  double link = 0;  ///< of the product's time; 0 where the delay is given
  std::vector<std::int64_t> group_sizes;
  std::string beside;
  std::vector<std::int64_t> mibs;
  MeasureFlags measure;
};

/// What the algorithms of a row took, by their names.
nlohmann::json times_here(const nlohmann::json& row) {
  nlohmann::json times = row.value("t_algorithms_us", nlohmann::json::object());
  times["serial"] = row.at("t_serial_us");
  times[row.at("algorithm").get<std::string>()] = row.at("t_fused_us");
  return times;
}

struct Column {
  const char* name;
  int width;
};
constexpr Column kColumns[] = {{"op", 21},       {"m", 6},       {"n", 6},        {"k", 6},
                               {"dtype", 6},     {"scales", 6},  {"b", 6},        {"W", 3},
                               {"algorithm", 9}, {"t_gemm", 9},  {"t_own_mm", 9}, {"t_comm", 9},
                               {"t_serial", 9},  {"t_fused", 9}, {"TFLOP/s", 8},  {"ECT", 9},
                               {"E", 6},         {"ceiling", 7}, {"speedup", 7},  {"wrong", 5}};

/// A line of the table: a cell for each of kColumns.
void print_line(char mark, const std::vector<std::string>& cells) {
  std::string line(1, mark);
  for (std::size_t i = 0; i < cells.size(); ++i) line += fmt::format(" {:>{}}", cells[i], kColumns[i].width);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

class BenchCommand : public Command {
 public:
  void define(CLI::App& app) override;
  int launch(const Invocation& invocation) override;
  nlohmann::json run_rank(const RankContext& context, const Config& config) override;

 private:
  void check_flags(const JobPlace& place) const;
  [[nodiscard]] int launch_4bit(const Invocation& invocation) const;
  [[nodiscard]] int launch_peaks(const Invocation& invocation) const;
  [[nodiscard]] BesideBench beside(CollectiveOp op) const;
  [[nodiscard]] int launch_beside(CollectiveOp op, const Invocation& invocation, const JobPlace& place) const;
  [[nodiscard]] int launch_products(const Invocation& invocation) const;
  [[nodiscard]] bool is_for_ranks() const;
  [[nodiscard]] bool is_product_only() const { return flags_.op == "mm"; }
  [[nodiscard]] std::vector<BenchRow> rows(int ranks) const;
  void print_heading(const Invocation& invocation, const JobPlace& place) const;
  void print_row(const nlohmann::json& row) const;
  static void print_link_verdict(const nlohmann::json& row);
  static void print_nan_check(const nlohmann::json& row);
  [[nodiscard]] std::chrono::microseconds link_of(const BenchRow& row, const RankContext& context,
                                                  const Config& config) const;

  BenchFlags flags_;
  bool on_gpus_ = false;
};

void BenchCommand::define(CLI::App& app) {
  app.add_option("op", flags_.op,
                 "all_gather_matmul, matmul_reduce_scatter, matmul_all_reduce, mm, matmul_4bit, peaks, " +
                     names_of_collectives());
  app.add_option("--algorithm", flags_.algorithms, "auto, native, pipelined, serial (list)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--problem", flags_.problem, "one row, as check prints it");
  app.add_option("--json", flags_.json, "append a JSON row per line to this file")->type_name("FILE");
  app.add_option("--config", flags_.config, "kernel config (CUDA)");
  app.add_flag("--graph", flags_.measure.counts.graph, "time captured replays (CUDA)");
  app.add_flag("--alternatives", flags_.measure.counts.alternatives,
               "time the other algorithms too, in the same rounds");
  app.add_option("--load-ms", flags_.measure.counts.load_ms,
                 "work before each timed call, so that a GPU's clocks are those under load (CUDA)");
  app.add_flag("--explain", flags_.explain, "show the candidates behind each row, and the steps of rank 0");
  app.add_option("--group-size", flags_.group_sizes,
                 "weights that share a scale (matmul_4bit; list); 0: all of k; default 32")
      ->delimiter(',');
  app.add_option(
         "--peers", flags_.peers,
         "libraries to time beside tandem on a CPU, each NAME or NAME=FILE (list): openblas and onednn for "
         "mm, xnnpack for matmul_4bit")
      ->delimiter(',');
  app.add_option("--beside", flags_.beside, "what runs beside a low-contention collective: mm");
  app.add_option("--mib", flags_.mibs, "MiB of a rank's part of such a collective (list); default 1,8,64")
      ->delimiter(',');
  app.add_flag("--all-cores", flags_.all_cores,
               "on one core, and then on all of them too (peaks, mm --peers)");
  flags_.measure.define(app);
  app.add_option("--link", flags_.link,
                 "simulated link: the copies from all peers take this share of the product's own time")
      ->type_name("X")
      ->excludes("--link-delay-us");
  problem_stands_alone(app,
                       {"--m", "--n", "--k", "--dtype", "--scales", "--algorithm", "--preset", "--b-order"});
}

void BenchCommand::check_flags(const JobPlace& place) const {
  if (!flags_.beside.empty() || !flags_.mibs.empty())
    bad_input("--beside, --mib: only low-contention collectives take them");
  if (flags_.measure.counts.graph && place.placement.kind == DeviceKind::kCpu)
    not_supported("--graph: CPU streams cannot be captured; leave it out");
  if (flags_.measure.counts.graph && flags_.measure.counts.alternatives)
    not_supported("--graph --alternatives: not all of them can be recorded; leave one out");
  if (const int load_ms = flags_.measure.counts.load_ms; load_ms < 0 || load_ms > 1000)
    bad_input(fmt::format("--load-ms {}: need 0 to 1000", load_ms));
  if (flags_.measure.counts.load_ms > 0 && place.placement.kind == DeviceKind::kCpu)
    not_supported("--load-ms: only for GPUs, whose clocks follow their load; leave it out");
  if (flags_.link != 0 && !(flags_.link > 0 && flags_.link <= 100))
    bad_input(
        fmt::format("--link {}: need a share of the product's time above 0 and up to 100", flags_.link));
  if (flags_.link > 0 && (place.ranks == 1 || is_product_only()))
    bad_input("--link: need an op that gets something from a peer, and at least 2 ranks");
  if (!flags_.config.empty())
    not_supported(fmt::format("--config {}: no kernel here has configs; leave it out", flags_.config));
  if (flags_.problem.empty() == flags_.op.empty()) {
    bad_input(fmt::format("bench needs an op (mm, {}) or --problem, not both", harness::names_of_ops()));
  }
  flags_.measure.check();
}

/// Whether a flag is set that has a meaning for ranks and their ops only.
bool BenchCommand::is_for_ranks() const {
  const MeasureFlags& measure = flags_.measure;
  return !flags_.problem.empty() || flags_.explain || !flags_.beside.empty() || !flags_.mibs.empty() ||
         measure.counts.graph || !measure.scales.empty() || measure.counts.alternatives ||
         measure.link_delay_us >= 0 || flags_.link != 0 || measure.job.ranks.value_or(1) != 1;
}

/// One rank on a CPU: this process.
JobPlace this_process(const Invocation& invocation) {
  JobFlags job;
  job.ranks = 1;
  job.backend = "cpu";
  return job.choose(invocation.machine);
}

/// In this process. Throws exit 2 for flags that it does not take.
int BenchCommand::launch_peaks(const Invocation& invocation) const {
  const MeasureFlags& measure = flags_.measure;
  if (is_for_ranks() || !measure.m.empty() || !measure.n.empty() || !measure.k.empty() ||
      !measure.preset.empty() || !measure.scale.empty() || !flags_.group_sizes.empty() ||
      !flags_.peers.empty()) {
    bad_input("bench peaks takes --all-cores, --iterations, --warmup and --json");
  }
  measure.check();
  return bench_peaks({flags_.all_cores, measure.counts.warmup, measure.counts.iterations, flags_.json},
                     invocation, this_process(invocation));
}

/// In this process. Throws exit 2 for flags that it does not take.
int BenchCommand::launch_products(const Invocation& invocation) const {
  const MeasureFlags& measure = flags_.measure;
  if (is_for_ranks() || measure.job.backend == "cuda" || !flags_.group_sizes.empty()) {
    bad_input(
        "bench mm --peers takes --m, --n and --k or --preset, --scale, --dtype f32, bf16 or f16, --b-order, "
        "--all-cores, --iterations, --warmup and --json");
  }
  measure.check();
  const ProductsBench bench{measure.problems(harness::Op::kAllGatherMatmul, 1, false),
                            parse_peers(flags_.peers),
                            flags_.all_cores,
                            measure.counts.warmup,
                            measure.counts.iterations,
                            flags_.json};
  return bench_products(bench, invocation, this_process(invocation));
}

/// In this process. Throws exit 2 for flags that it does not take.
int BenchCommand::launch_4bit(const Invocation& invocation) const {
  const MeasureFlags& measure = flags_.measure;
  if (is_for_ranks() || !measure.scale.empty()) {
    bad_input(
        "bench matmul_4bit takes --m, --n and --k or --preset, --group-size, --peers, --iterations, --warmup "
        "and "
        "--json");
  }
  const FourBitBench bench{measure.m,
                           measure.n,
                           measure.k,
                           flags_.group_sizes,
                           measure.preset,
                           parse_peers(flags_.peers),
                           measure.counts.warmup,
                           measure.counts.iterations,
                           flags_.json};
  return bench_4bit(bench, invocation, this_process(invocation));
}

/// Throws exit 2 for flags that it does not take.
BesideBench BenchCommand::beside(CollectiveOp op) const {
  const MeasureFlags& measure = flags_.measure;
  if (flags_.beside != "mm") bad_input(fmt::format("bench {} needs --beside mm", to_string(op)));
  if (!flags_.problem.empty() || flags_.explain || measure.counts.graph || measure.counts.alternatives ||
      !measure.scales.empty() || !measure.b_orders.empty() || measure.counts.by_samples ||
      measure.counts.load_ms != 0 || flags_.link != 0 ||
      flags_.algorithms != std::vector<std::string>{"auto"}) {
    bad_input(
        fmt::format("bench {} takes --beside, --mib, --m, --n and --k or --preset, --scale, --dtype, "
                    "--iterations, --warmup, --link-delay-us, --json and the flags of ranks",
                    to_string(op)));
  }
  BesideBench bench{.op = op,
                    .products = {},
                    .dtypes = {},
                    .mibs = flags_.mibs.empty() ? std::vector<std::int64_t>{1, 8, 64} : flags_.mibs,
                    .counts = measure.counts,
                    .json = flags_.json};
  for (const std::int64_t mib : bench.mibs) {
    if (mib < 1 || mib > 4096) bad_input(fmt::format("--mib {}: need 1 to 4096", mib));
  }
  for (const harness::Problem& problem : measure.problems(harness::Op::kAllGatherMatmul, 1, on_gpus_)) {
    const harness::ProductSizes sizes = product_of_a_rank(problem);
    const auto is_known = [&](const harness::ProductSizes& one) {
      return one.m == sizes.m && one.n == sizes.n && one.k == sizes.k;
    };
    if (std::none_of(bench.products.begin(), bench.products.end(), is_known)) bench.products.push_back(sizes);
    if (std::find(bench.dtypes.begin(), bench.dtypes.end(), problem.dtype) == bench.dtypes.end())
      bench.dtypes.push_back(problem.dtype);
  }
  return bench;
}

int BenchCommand::launch_beside(CollectiveOp op, const Invocation& invocation, const JobPlace& place) const {
  const BesideBench bench = beside(op);
  flags_.measure.check();
  check_memory_need(bench, place.ranks);
  const RowFile file(bench.json);
  flags_.measure.print_heading(invocation, place);
  return bench_beside(bench, file, invocation, place);
}

std::vector<BenchRow> BenchCommand::rows(int ranks) const {
  if (!flags_.problem.empty()) {
    BenchRow row{harness::parse_problem(flags_.problem)};
    row.problem.ranks = ranks;
    return {row};
  }
  const harness::Op op = is_product_only() ? harness::Op::kAllGatherMatmul : harness::parse_op(flags_.op);
  std::vector<BenchRow> rows;
  for (const harness::Problem& problem : flags_.measure.problems(op, ranks, on_gpus_)) {
    for (const std::string& algorithm : flags_.algorithms) {
      BenchRow row{problem, is_product_only()};
      row.problem.algorithm = harness::parse_algorithm_flag(algorithm);
      rows.push_back(row);
    }
  }
  return rows;
}

void BenchCommand::print_heading(const Invocation& invocation, const JobPlace& place) const {
  flags_.measure.print_heading(invocation, place);
  if (flags_.link > 0) fmt::print("# simulated link: {} of the product's own time\n", flags_.link);
  std::vector<std::string> names;
  for (const Column& column : kColumns) names.emplace_back(column.name);
  print_line('#', names);
}

void BenchCommand::print_row(const nlohmann::json& row) const {
  const auto text = [&](const char* key) {
    return row.at(key).is_null() ? std::string("-") : row.at(key).get<std::string>();
  };
  const auto count = [&](const char* key) { return std::to_string(row.at(key).get<std::int64_t>()); };
  const auto time = [&](const char* key) {
    return row.at(key).is_null() ? std::string("-") : time_text(row.at(key).get<double>());
  };
  const auto figure = [&](const char* key, int digits) {
    return row.at(key).is_null() ? std::string("-")
                                 : fmt::format("{:.{}f}", row.at(key).get<double>(), digits);
  };
  print_line(' ', {text("op"),
                   count("m"),
                   count("n"),
                   count("k"),
                   text("dtype"),
                   text("scales"),
                   text("b_order"),
                   count("world"),
                   text("algorithm"),
                   time("t_gemm_us"),
                   time("t_own_mm_us"),
                   time("t_comm_us"),
                   time("t_serial_us"),
                   time("t_fused_us"),
                   figure("tflops", 3),
                   time("ect_us"),
                   figure("efficiency", 2),
                   figure("ceiling", 2),
                   figure("speedup", 2),
                   count("wrong")});
}

void BenchCommand::print_link_verdict(const nlohmann::json& row) {
  const auto delay_us = row.at("link_delay_us").get<double>();
  if (delay_us <= 0 || row.at("t_fused_us").is_null()) return;
  const auto gemm_us = row.at("t_gemm_us").get<double>();
  const auto serial_us = row.at("t_serial_us").get<double>();
  const auto fused_us = row.at("t_fused_us").get<double>();
  const double link_us = (row.at("world").get<int>() - 1) * delay_us;
  const double saved = serial_us - fused_us;
  const double half = 0.5 * link_us;
  fmt::print("# link: saved {} against serial; 0.5*(W-1)*d = {} {}\n", time_text(saved), time_text(half),
             saved >= half ? "reached" : "not reached");
  fmt::print(
      "# link: takes {} ({:.2f} of the product); fused is {:.3f} of the longer one, serial {:.2f} of fused\n",
      time_text(link_us), link_us / gemm_us, fused_us / std::max(gemm_us, link_us), serial_us / fused_us);
}

void BenchCommand::print_nan_check(const nlohmann::json& row) {
  if (row.at("t_unchecked_us").is_null()) return;
  const auto unchecked_us = row.at("t_unchecked_us").get<double>();
  fmt::print("# NaN check: fused takes {} without it, {:.3f} of that with it\n", time_text(unchecked_us),
             row.at("t_fused_us").get<double>() / unchecked_us);
}

int BenchCommand::launch(const Invocation& invocation) {
  if (flags_.op == "peaks") return launch_peaks(invocation);
  if (is_product_only() && !flags_.peers.empty()) return launch_products(invocation);
  if (flags_.all_cores) bad_input("--all-cores: only peaks and mm --peers take it");
  if (flags_.op == "matmul_4bit") return launch_4bit(invocation);
  if (!flags_.peers.empty()) bad_input("--peers: only mm and matmul_4bit take it");
  if (!flags_.group_sizes.empty()) bad_input("--group-size: only matmul_4bit takes it");
  const JobPlace place = flags_.measure.job.choose(invocation.machine, flags_.problem);
  on_gpus_ = place.placement.kind == DeviceKind::kCuda;
  if (const auto collective = collective_named(flags_.op))
    return launch_beside(*collective, invocation, place);
  check_flags(place);
  const int ranks = place.ranks;
  const std::vector<BenchRow> rows = this->rows(ranks);
  for (const BenchRow& row : rows)
    check_memory_need(place.with_ranks("bench"), place.part_here(bytes_of_ranks(row.problem)));
  const RowFile file(flags_.json);
  print_heading(invocation, place);
  std::vector<double> speedups;
  std::string first_wrong;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto tell_row = [&](Store& store) { send_to_ranks(store, kRowKey, i); };
    const auto results = run_job({ranks, invocation.arguments, place.placement, tell_row, invocation.tracing},
                                 invocation.jobs);
    nlohmann::json row = summarize(rows[i], flags_.measure.counts, results);
    print_row(row);
    if (flags_.explain && !is_product_only()) {
      print_candidates(results[0].at("report"), times_here(row));
      print_program(results[0].at("report"));
    }
    row["link"] = flags_.link > 0 ? nlohmann::json(flags_.link) : nlohmann::json();
    for (const char* key : {"link_delay_us", "hosts", "transport"}) row[key] = results[0].at(key);
    print_link_verdict(row);
    print_nan_check(row);
    if (row.at("wrong") != 0) {
      const auto culprit =
          std::find_if(results.begin(), results.end(), [](const auto& r) { return r.at("wrong") != 0; });
      if (first_wrong.empty()) {
        first_wrong =
            fmt::format("--problem {}: rank {}: {}", to_line(rows[i].problem), culprit - results.begin(),
                        culprit->at("first_wrong").template get<std::string>());
      }
      continue;  // a wrong answer has no time
    }
    add_circumstances(row, invocation, place);
    file.append(row);
    if (!row.at("speedup").is_null()) speedups.push_back(row.at("speedup"));
  }
  if (!first_wrong.empty()) {
    throw Failure(kFailed, Error(ErrorCode::kNumeric, fmt::format("bench: wrong result: {}", first_wrong)));
  }
  if (!speedups.empty()) {
    double sum = 0;
    for (const double speedup : speedups) sum += speedup;
    fmt::print("# speedup over serial: worst {:.2f}, mean {:.2f}\n",
               *std::min_element(speedups.begin(), speedups.end()),
               sum / static_cast<double>(speedups.size()));
  }
  return kOk;
}

/// The delay of each copy. With --link it depends on the product, which is measured first, without a link.
std::chrono::microseconds BenchCommand::link_of(const BenchRow& row, const RankContext& context,
                                                const Config& config) const {
  if (flags_.link <= 0) return flags_.measure.link_of(config);
  Config without = config;
  without.link_delay = {};
  const Session session(context, without, "bench product");
  const double us = flags_.link * product_us(row, flags_.measure.counts, session) / (context.size - 1);
  return std::chrono::microseconds(std::llround(us));
}

nlohmann::json BenchCommand::run_rank(const RankContext& context, const Config& config) {
  Config own = flags_.measure.job.config_of(config);
  on_gpus_ = receive_placement(context).kind == DeviceKind::kCuda;
  if (const auto collective = collective_named(flags_.op)) {
    own.link_delay = flags_.measure.link_of(own);
    return measure_beside(beside(*collective), context, own);
  }
  const auto idx = receive(context, kRowKey).get<std::size_t>();
  BenchRow row = rows(context.size)[idx];
  row.problem.by_tensor_cores = on_gpus_;
  own.link_delay = link_of(row, context, own);
  const Session session(context, own, "bench");
  nlohmann::json measured = measure(row, flags_.measure.counts, session);
  session.tell_trace();
  measured["link_delay_us"] = own.link_delay.count();
  measured["hosts"] = session.group().num_hosts();
  measured["transport"] = session.transport();
  return measured;
}

}  // namespace

std::unique_ptr<Command> make_bench() {
  return std::make_unique<BenchCommand>();
}

}  // namespace tandem::cli
