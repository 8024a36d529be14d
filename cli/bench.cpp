#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <tandem/base/unique_fd.hpp>

#include "bench_row.hpp"
#include "command.hpp"
#include "failure.hpp"
#include "timing.hpp"
#include "version.hpp"

namespace tandem::cli {
namespace {

constexpr const char* kRowKey = "bench/row";

/// The product that one rank computes.
struct GemmSizes {
  std::int64_t m, n, k;
};

// One rank's slice of Llama 3 under 8-way tensor parallelism, 4096 tokens: query/key/value and gate+up for
// the gather, attention output and down for the scatter.
std::vector<GemmSizes> preset_sizes(const std::string& name, bool gathers) {
  if (name == "seed") return {{4096, 6656, 16384}};
  if (name == "llama3-8b") {
    return gathers ? std::vector<GemmSizes>{{4096, 768, 4096}, {4096, 3584, 4096}}
                   : std::vector<GemmSizes>{{4096, 4096, 512}, {4096, 4096, 1792}};
  }
  if (name == "llama3-70b") {
    return gathers ? std::vector<GemmSizes>{{4096, 1280, 8192}, {4096, 7168, 8192}}
                   : std::vector<GemmSizes>{{4096, 8192, 1024}, {4096, 8192, 3584}};
  }
  bad_input(fmt::format("--preset '{}': need seed, llama3-8b or llama3-70b", name));
}

struct BenchFlags {
  std::string op;
  std::vector<std::int64_t> m;
  std::vector<std::int64_t> n;
  std::vector<std::int64_t> k;
  std::vector<std::string> dtypes{"bf16"};
  std::vector<std::string> algorithms{"auto"};
  std::string preset;
  std::string scale;
  std::string problem;
  std::string json;
  std::string config;
  BenchCounts counts;
  int link_delay_us = -1;
  JobFlags job;
};

// Where a row is kept says nothing about how it was measured.
std::vector<std::string> without_json(std::vector<std::string> arguments) {
  const auto flag = std::find(arguments.begin(), arguments.end(), "--json");
  if (flag != arguments.end()) arguments.erase(flag, std::min(flag + 2, arguments.end()));
  return arguments;
}

/// Appends lines to a file; each line arrives whole, also when several processes append.
class RowFile {
 public:
  explicit RowFile(const std::string& path) : path_(path) {
    if (path.empty()) return;
    fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (!fd_.valid())
      bad_input(fmt::format("--json {}: {}; name a file that can be written", path, std::strerror(errno)));
  }
  void append(const nlohmann::json& row) const {
    if (!fd_.valid()) return;
    const std::string line = row.dump() + "\n";
    ::flock(fd_.get(), LOCK_EX);
    const ssize_t written = ::write(fd_.get(), line.data(), line.size());
    ::flock(fd_.get(), LOCK_UN);
    if (written == static_cast<ssize_t>(line.size())) return;
    throw Failure(kFailed, Error(ErrorCode::kDriver,
                                 fmt::format("--json {}: wrote {} of {} bytes: {}", path_, written,
                                             line.size(), std::strerror(errno)),
                                 errno));
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

class BenchCommand : public Command {
 public:
  void define(CLI::App& app) override;
  int launch(const Invocation& invocation) override;
  nlohmann::json run_rank(const RankContext& context, const Config& config) override;

 private:
  void check_flags(const JobPlace& place) const;
  [[nodiscard]] bool is_product_only() const { return flags_.op == "mm"; }
  [[nodiscard]] double scale() const;
  /// As asked for, or what the machine can take.
  [[nodiscard]] std::string scale_text() const {
    return !flags_.scale.empty() ? flags_.scale : on_gpus_ ? "1" : "1/8";
  }
  [[nodiscard]] std::vector<GemmSizes> sizes(bool gathers) const;
  [[nodiscard]] std::vector<BenchRow> rows(int ranks) const;
  void print_heading(const Invocation& invocation, const JobPlace& place) const;
  /// The simulated link: the flag, or what the environment says.
  [[nodiscard]] std::chrono::microseconds link_of(const Config& config) const {
    return flags_.link_delay_us >= 0 ? std::chrono::microseconds(flags_.link_delay_us) : config.link_delay;
  }
  void print_row(const nlohmann::json& row) const;
  static void print_link_verdict(const nlohmann::json& row, std::chrono::microseconds link);

  BenchFlags flags_;
  bool on_gpus_ = false;
};

void BenchCommand::define(CLI::App& app) {
  app.add_option("op", flags_.op, "all_gather_matmul, matmul_reduce_scatter or mm");
  const auto add_sizes = [&](const char* name, std::vector<std::int64_t>& list, const char* text) {
    app.add_option(name, list, text)->delimiter(',');
  };
  add_sizes("--m", flags_.m, "rows of the product that one rank computes (list)");
  add_sizes("--n", flags_.n, "its columns (list)");
  add_sizes("--k", flags_.k, "its inner size (list)");
  app.add_option("--dtype", flags_.dtypes, "f32, bf16, f16 (list)")->delimiter(',')->capture_default_str();
  app.add_option("--algorithm", flags_.algorithms, "auto, native, pipelined, serial (list)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--preset", flags_.preset, "seed, llama3-8b or llama3-70b");
  app.add_option("--scale", flags_.scale, "shrinks m, n and k of a preset; default 1/8 on CPUs")
      ->type_name("X");
  app.add_option("--problem", flags_.problem, "one row, as check prints it");
  app.add_option("--iterations", flags_.counts.iterations, "timed rounds")->capture_default_str();
  app.add_option("--warmup", flags_.counts.warmup, "rounds before them")->capture_default_str();
  app.add_option("--link-delay-us", flags_.link_delay_us,
                 "simulated link: each copy from a peer takes so long first");
  app.add_option("--json", flags_.json, "append a JSON row per line to this file")->type_name("FILE");
  app.add_option("--config", flags_.config, "kernel config (CUDA)");
  app.add_flag("--graph", flags_.counts.graph, "time captured replays (CUDA)");
  flags_.job.define(app);
  problem_stands_alone(app, {"--m", "--n", "--k", "--dtype", "--algorithm", "--preset"});
}

void BenchCommand::check_flags(const JobPlace& place) const {
  if (flags_.counts.graph && place.placement.kind == DeviceKind::kCpu)
    not_supported("--graph: CPU streams cannot be captured; leave it out");
  if (!flags_.config.empty())
    not_supported(fmt::format("--config {}: no kernel here has configs; leave it out", flags_.config));
  if (flags_.counts.iterations < 1 || flags_.counts.warmup < 0) {
    bad_input(fmt::format("--iterations {} --warmup {}: need at least 1 and 0", flags_.counts.iterations,
                          flags_.counts.warmup));
  }
  if (flags_.link_delay_us < -1 || flags_.link_delay_us > 10'000'000) {
    bad_input(fmt::format("--link-delay-us {}: need 0 to 10000000", flags_.link_delay_us));
  }
  if (flags_.problem.empty() == flags_.op.empty()) {
    bad_input("bench needs an op (all_gather_matmul, matmul_reduce_scatter or mm) or --problem, not both");
  }
  if (!flags_.scale.empty() && flags_.preset.empty())
    bad_input("--scale shrinks a --preset; give --m --n --k as they are");
}

double BenchCommand::scale() const {
  return parse_scale(scale_text());
}

std::vector<GemmSizes> BenchCommand::sizes(bool gathers) const {
  const bool has_sizes = !flags_.m.empty() || !flags_.n.empty() || !flags_.k.empty();
  if (!flags_.preset.empty()) {
    if (has_sizes) bad_input("--preset already says the sizes: leave out --m, --n and --k");
    std::vector<GemmSizes> sizes = preset_sizes(flags_.preset, gathers);
    const auto shrink = [&](std::int64_t& size) {
      size = std::max<std::int64_t>(1, std::llround(static_cast<double>(size) * scale()));
    };
    for (GemmSizes& size : sizes) {
      shrink(size.m);
      shrink(size.n);
      shrink(size.k);
    }
    return sizes;
  }
  if (flags_.m.empty() || flags_.n.empty() || flags_.k.empty())
    bad_input("bench needs --m, --n and --k, or --preset");
  std::vector<GemmSizes> sizes;
  for (const auto m : flags_.m) {
    for (const auto n : flags_.n) {
      for (const auto k : flags_.k) {
        if (std::min({m, n, k}) < 1 || std::max({m, n, k}) > (1 << 24)) {
          bad_input(fmt::format("--m {} --n {} --k {}: each needs to be from 1 to {}", m, n, k, 1 << 24));
        }
        sizes.push_back({m, n, k});
      }
    }
  }
  return sizes;
}

std::vector<BenchRow> BenchCommand::rows(int ranks) const {
  if (!flags_.problem.empty()) {
    BenchRow row{parse_problem(flags_.problem)};
    row.problem.ranks = ranks;
    return {row};
  }
  const Op op = is_product_only() ? Op::kAllGatherMatmul : parse_op(flags_.op);
  const bool gathers = op == Op::kAllGatherMatmul;
  std::vector<BenchRow> rows;
  for (const GemmSizes& size : sizes(gathers)) {
    for (const std::string& dtype : flags_.dtypes) {
      for (const std::string& algorithm : flags_.algorithms) {
        BenchRow row;
        row.product_only = is_product_only();
        row.problem.op = op;
        row.problem.a = {size.m, gathers ? size.k : size.k * ranks};
        row.problem.n = {gathers ? size.n * ranks : size.n};
        row.problem.dtype = parse_product_dtype(dtype);
        row.problem.ranks = ranks;
        row.problem.algorithm = parse_algorithm_flag(algorithm);
        check_problem(row.problem);
        rows.push_back(row);
      }
    }
  }
  return rows;
}

void BenchCommand::print_heading(const Invocation& invocation, const JobPlace& place) const {
  const Machine& machine = invocation.machine;
  fmt::print("{}\n", place.heading);
  fmt::print("# tandem {}{}{}, {}\n", kVersion, *kCommit ? " commit " : "", kCommit, date_utc());
  if (on_gpus_) fmt::print("# GPUs: {}\n", fmt::join(gpu_states(), "; "));
  fmt::print("# {}, {} cores, Linux {}\n", machine.cpu_model, machine.usable_cores(), machine.kernel_release);
  if (!flags_.preset.empty()) {
    fmt::print("# preset {} at scale {}\n", flags_.preset, scale_text());
  }
  if (const auto link = link_of(invocation.config); link.count() > 0)
    fmt::print("# simulated link: {} us for each copy from a peer\n", link.count());
  fmt::print(
      "# times in us: median over {} rounds of the slowest rank; m, n, k: the product one rank computes\n",
      flags_.counts.iterations);
  fmt::print(
      "# {:>21} {:>6} {:>6} {:>6} {:>5} {:>3} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9} {:>6} {:>7} "
      "{:>7} {:>5}\n",
      "op", "m", "n", "k", "dtype", "W", "algorithm", "t_gemm", "t_own_mm", "t_comm", "t_serial", "t_fused",
      "TFLOP/s", "ECT", "E", "ceiling", "speedup", "wrong");
  std::fflush(stdout);
}

void BenchCommand::print_row(const nlohmann::json& row) const {
  const auto figure = [&](const char* key, int digits) {
    return row.at(key).is_null() ? std::string("-")
                                 : fmt::format("{:.{}f}", row.at(key).get<double>(), digits);
  };
  const std::string algorithm = row.at("algorithm").is_null() ? "-" : row.at("algorithm").get<std::string>();
  fmt::print(
      "  {:>21} {:>6} {:>6} {:>6} {:>5} {:>3} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9} {:>6} {:>7} "
      "{:>7} {:>5}\n",
      row.at("op").get<std::string>(), row.at("m").get<std::int64_t>(), row.at("n").get<std::int64_t>(),
      row.at("k").get<std::int64_t>(), row.at("dtype").get<std::string>(), row.at("world").get<int>(),
      algorithm, figure("t_gemm_us", 1), figure("t_own_mm_us", 1), figure("t_comm_us", 1),
      figure("t_serial_us", 1), figure("t_fused_us", 1), figure("tflops", 3), figure("ect_us", 1),
      figure("efficiency", 2), figure("ceiling", 2), figure("speedup", 2),
      row.at("wrong").get<std::int64_t>());
  std::fflush(stdout);
}

void BenchCommand::print_link_verdict(const nlohmann::json& row, std::chrono::microseconds link) {
  if (link.count() <= 0 || row.at("t_fused_us").is_null()) return;
  const double saved = row.at("t_serial_us").get<double>() - row.at("t_fused_us").get<double>();
  const double half = 0.5 * (row.at("world").get<int>() - 1) * static_cast<double>(link.count());
  fmt::print("# link: saved {:.0f} us against serial; 0.5*(W-1)*d = {:.0f} us {}\n", saved, half,
             saved >= half ? "reached" : "not reached");
}

int BenchCommand::launch(const Invocation& invocation) {
  const JobPlace place = flags_.job.choose(invocation.machine, flags_.problem);
  check_flags(place);
  on_gpus_ = place.placement.kind == DeviceKind::kCuda;
  const int ranks = place.ranks;
  const std::vector<BenchRow> rows = this->rows(ranks);
  const RowFile file(flags_.json);
  print_heading(invocation, place);
  std::vector<double> speedups;
  std::string first_wrong;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto tell_row = [&](Store& store) { send_to_ranks(store, kRowKey, i); };
    const auto results =
        run_job({ranks, invocation.arguments, place.placement, tell_row}, invocation.interrupts);
    nlohmann::json row = summarize(rows[i], flags_.counts.graph, results);
    print_row(row);
    print_link_verdict(row, link_of(invocation.config));
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
    if (on_gpus_) {
      row["gpu"] = invocation.machine.gpus.front();
      row["gpu_states"] = gpu_states();
      row["loopback"] = place.placement.loopback;
    }
    row["cpu"] = invocation.machine.cpu_model;
    row["cores"] = invocation.machine.usable_cores();
    row["commit"] = kCommit;
    row["command"] = fmt::format("tandem {}", fmt::join(without_json(invocation.arguments), " "));
    row["link_delay_us"] = link_of(invocation.config).count();
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

nlohmann::json BenchCommand::run_rank(const RankContext& context, const Config& config) {
  Config own = config;
  own.link_delay = link_of(config);
  const Session session(context, own, "bench");
  on_gpus_ = session.placement().kind == DeviceKind::kCuda;
  const auto idx = receive(context, kRowKey).get<std::size_t>();
  return measure(rows(context.size)[idx], flags_.counts, session);
}

}  // namespace

std::unique_ptr<Command> make_bench() {
  return std::make_unique<BenchCommand>();
}

}  // namespace tandem::cli
