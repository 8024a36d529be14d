#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <tandem/base/time_text.hpp>

#include "bench_rows.hpp"
#include "command.hpp"
#include "failure.hpp"
#include "harness/problem.hpp"
#include "io/regular_file.hpp"
#include "outputs.hpp"
#include "plan_fit.hpp"
#include "plan_model.hpp"
#include "row_file.hpp"
#include "version.hpp"

namespace tandem::cli {
namespace {

constexpr std::size_t kMostMachineBytes = std::size_t{1} << 20;
constexpr double kGiga = 1e3;  // GB/s to bytes a us

struct PlanFlags {
  std::string op;
  std::string gpu;
  std::string machine;
  int ranks = 0;
  int hosts = 1;
  double link = 0;  ///< GB/s
  double latency_us = 10;
  std::vector<std::string> shapes;
  std::string preset;
  int layers = 0;
  std::int64_t tokens = 4096;
  bool trains = false;
  bool recomputes = false;
  double serial_tokens = 0;
  std::vector<std::string> overlap;
  std::string dtype = "bf16";
  std::string scales;
  bool fast_accum = false;
  bool graph = false;
  std::string algorithm = "auto";
  bool rates = false;
  std::vector<std::string> against;
  std::vector<std::string> fit;
  std::string output;
  std::string json;
};

class PlanCommand : public Command {
 public:
  void define(CLI::App& app) override;
  int launch(const Invocation& invocation) override;

 private:
  void check() const;
  [[nodiscard]] cost::Machine machine_of() const;
  [[nodiscard]] ForecastProblem like() const;
  [[nodiscard]] Hosts hosts_of() const;
  void print_heading(const cost::Machine& machine) const;
  void print_rates(const cost::Machine& machine) const;
  void compare(const cost::Machine& machine) const;
  void fit(const cost::Machine& base) const;
  void plan_shapes(const cost::Machine& machine, const Invocation& invocation) const;
  void plan_preset(const cost::Machine& machine, const Invocation& invocation) const;
  void print_op(const PlannedOp& op) const;
  void keep(const PlannedOp& op, const cost::Machine& machine, const Invocation& invocation) const;
  /// What all that a model does for its tokens takes, as --serial-tokens says.
  [[nodiscard]] double whole_us_of(const ModelRun& run) const;
  /// Throws exit 2 where that is less than its ops take.
  void check_whole(const PlannedModel& planned, const ModelRun& run) const;
  void print_ratio(const PlannedModel& planned, const ModelRun& run) const;

  PlanFlags flags_;
  std::optional<RowFile> rows_;  ///< of --json
};

void PlanCommand::define(CLI::App& app) {
  app.add_option("op", flags_.op, "with --shape: " + harness::names_of_ops());
  app.add_option("--gpu", flags_.gpu,
                 fmt::format("a GPU that the tool knows: {}", fmt::join(cost::machine_names(), ", ")));
  app.add_option("--machine", flags_.machine, "a machine file in place of --gpu")->type_name("FILE");
  app.add_option("--ranks", flags_.ranks, "number of ranks, each with a GPU");
  app.add_option("--hosts", flags_.hosts, "number of hosts with as many ranks each")->capture_default_str();
  app.add_option("--link", flags_.link,
                 "GB/s in one direction: of a GPU's link to its peers, or with --hosts to another host")
      ->type_name("GB/S");
  app.add_option("--latency-us", flags_.latency_us, "of a transfer to another host")->capture_default_str();
  app.add_option("--shape", flags_.shapes, "MxNxK of the product that one rank computes (list)")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--preset", flags_.preset, "a model's layers: llama3-8b or llama3-70b");
  app.add_option("--layers", flags_.layers, "of the preset; default: the model's");
  app.add_option("--tokens", flags_.tokens, "rows of the preset's products")->capture_default_str();
  app.add_flag("--training", flags_.trains, "of the preset: forward and backward");
  app.add_flag("--recompute", flags_.recomputes, "with --training: forward once more before backward");
  app.add_option("--serial-tokens", flags_.serial_tokens,
                 "tokens/s of one GPU measured without overlap: what else it does is taken from there");
  app.add_option("--overlap", flags_.overlap, "of the preset: gather, scatter or both (list); default: both")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--dtype", flags_.dtype, "f32, bf16, f16 or f8e4m3")->capture_default_str();
  app.add_option("--scales", flags_.scales, "of f8 operands: tensor or row; default: row");
  app.add_flag("--fast-accum", flags_.fast_accum, "of f8 operands: sums over all of k in the tensor cores");
  app.add_flag("--graph", flags_.graph, "the op as a captured graph");
  app.add_option("--algorithm", flags_.algorithm, "auto, serial, pipelined or native")->capture_default_str();
  app.add_flag("--rates", flags_.rates, "list the machine's rates and where each comes from");
  app.add_option("--against", flags_.against,
                 "files of tandem bench --json: how close predictions are (list)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FILE");
  app.add_option("--fit", flags_.fit, "files of tandem bench --json: make a machine file from them (list)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FILE");
  app.add_option("--output", flags_.output, "the machine file that --fit makes")->type_name("FILE");
  app.add_option("--json", flags_.json, "add a row for each op to this file")->type_name("FILE");
}

void PlanCommand::check() const {
  const bool plans = !flags_.shapes.empty() || !flags_.preset.empty();
  const bool has_other = flags_.rates || !flags_.against.empty() || !flags_.fit.empty();
  const bool has_neither = flags_.gpu.empty() && flags_.machine.empty();
  const bool fits_only =
      has_neither && !flags_.fit.empty() && !plans && !flags_.rates && flags_.against.empty();
  if (flags_.gpu.empty() == flags_.machine.empty() && !fits_only)
    bad_input(
        fmt::format("plan: need one of --gpu {} and --machine FILE", fmt::join(cost::machine_names(), "|")));
  if (!plans && !has_other)
    bad_input("plan: need --shape MxNxK or --preset, or one of --rates, --against and --fit");
  if (!flags_.shapes.empty() && !flags_.preset.empty()) bad_input("plan: need one of --shape and --preset");
  if (!flags_.op.empty() && !flags_.preset.empty())
    bad_input(fmt::format("plan {}: a preset has its own ops: leave the op out", flags_.op));
  if (plans && (flags_.ranks < 2 || flags_.ranks > 1024))
    bad_input(fmt::format("--ranks {}: need 2 to 1024", flags_.ranks));
  if (flags_.hosts < 1 || (plans && flags_.ranks % flags_.hosts != 0))
    bad_input(fmt::format("--hosts {}: need a number that divides the {} ranks", flags_.hosts, flags_.ranks));
  if (flags_.link < 0 || flags_.link > 1e5 || !(flags_.latency_us >= 0 && flags_.latency_us <= 1e6)) {
    bad_input(fmt::format("--link {} --latency-us {}: need up to 100000 GB/s and up to 1000000 us",
                          flags_.link, flags_.latency_us));
  }
  if (flags_.hosts > 1 && flags_.link == 0)
    bad_input("--hosts: need --link, the GB/s of a GPU's way to another host: 50 for a card of 400 Gbit/s");
  if (flags_.tokens < 1 || flags_.tokens > (1 << 24) || flags_.layers < 0 || flags_.layers > 100'000 ||
      flags_.serial_tokens < 0) {
    bad_input(fmt::format(
        "--tokens {} --layers {} --serial-tokens {}: need 1 to {}, 1 to 100000, and no less than 0",
        flags_.tokens, flags_.layers, flags_.serial_tokens, 1 << 24));
  }
  if (flags_.recomputes && !flags_.trains) bad_input("--recompute: need --training");
  if (flags_.fit.empty() != flags_.output.empty())
    bad_input("--fit: need --output FILE for the machine file");
  for (const std::string& one : flags_.overlap) {
    if (one != "gather" && one != "scatter")
      bad_input(fmt::format("--overlap '{}': need gather or scatter", one));
  }
}

/// With the link between GPUs as asked for: what multiprocessors send over it goes with it.
cost::Machine with_link(cost::Machine machine, double gigabytes) {
  cost::MachineRate* const link = machine.find("link_bytes_per_us");
  const double factor = gigabytes * kGiga / link->value;
  for (const char* name :
       {"link_bytes_per_us", "piece_bytes_per_us", "first_wave_bytes_per_us", "later_wave_bytes_per_us",
        "sender_bytes_per_us", "partial_bytes_per_ns", "partial_bytes_per_us"}) {
    cost::MachineRate& rate = *machine.find(name);
    rate.value *= factor;
    rate.source = fmt::format("--link {:g} GB/s; before: {}", gigabytes, rate.source);
  }
  return machine;
}

cost::Machine PlanCommand::machine_of() const {
  cost::Machine machine;
  if (flags_.machine.empty() && flags_.gpu.empty()) {
    machine = cost::reference_machine();
  } else if (!flags_.machine.empty()) {
    const auto text = io::read_small_file(flags_.machine, kMostMachineBytes);
    if (!text) bad_input(fmt::format("--machine {}: {}", flags_.machine, text.error().text()));
    auto parsed = cost::parse_machine(*text);
    if (!parsed) bad_input(fmt::format("--machine {}: {}", flags_.machine, parsed.error().text()));
    machine = *std::move(parsed);
  } else {
    auto found = cost::find_machine(flags_.gpu);
    if (!found) bad_input(fmt::format("--gpu: {}; or give --machine FILE", found.error().text()));
    machine = *std::move(found);
  }
  return flags_.hosts == 1 && flags_.link > 0 ? with_link(std::move(machine), flags_.link) : machine;
}

ForecastProblem PlanCommand::like() const {
  ForecastProblem problem{.dtype = harness::parse_product_dtype(flags_.dtype),
                          .fast_accum = flags_.fast_accum,
                          .world = flags_.ranks,
                          .is_recorded = flags_.graph};
  if (!is_f8(problem.dtype)) {
    if (!flags_.scales.empty() || flags_.fast_accum)
      bad_input(fmt::format("--dtype {}: --scales and --fast-accum are of f8e4m3", flags_.dtype));
    return problem;
  }
  if (!flags_.scales.empty() && flags_.scales != "row" && flags_.scales != "tensor")
    bad_input(fmt::format("--scales '{}': need tensor or row", flags_.scales));
  problem.scales = flags_.scales == "tensor" ? ScaleMode::kTensorwise : ScaleMode::kRowwiseSharded;
  return problem;
}

Hosts PlanCommand::hosts_of() const {
  if (flags_.hosts == 1) return {};
  return {.count = flags_.hosts, .bytes_per_us = flags_.link * kGiga, .latency_us = flags_.latency_us};
}

void PlanCommand::print_heading(const cost::Machine& machine) const {
  fmt::print("# tandem {}, plan: {} ranks with an {} each{}\n", kVersion, flags_.ranks, machine.gpu,
             flags_.hosts > 1 ? fmt::format(" on {} hosts", flags_.hosts) : "");
  fmt::print("# rates of {}{}; --rates lists their sources\n",
             flags_.machine.empty() ? flags_.gpu : flags_.machine,
             machine.note.empty() ? "" : fmt::format(", {}", machine.note));
  if (flags_.hosts > 1) {
    fmt::print("# between hosts: {:g} GB/s a rank and {:g} us; a model without measurement\n", flags_.link,
               flags_.latency_us);
  }
  fmt::print("# times are predicted by the models of auto; m, n, k: the product one rank computes\n");
}

void PlanCommand::print_rates(const cost::Machine& machine) const {
  fmt::print("# rates of an {}\n", machine.gpu);
  for (const cost::MachineRate& rate : machine.rates)
    fmt::print("  {:<28} {:>12.6g}  {}\n", rate.name, rate.value, rate.source);
}

const char* name_of(ForecastOp op) {
  switch (op) {
    case ForecastOp::kAllGatherMatmul:
      return "all_gather_matmul";
    case ForecastOp::kMatmulReduceScatter:
      return "matmul_reduce_scatter";
    case ForecastOp::kMatmulAllReduce:
      break;
  }
  return "matmul_all_reduce";
}

ForecastOp op_of(const std::string& name) {
  switch (harness::parse_op(name)) {
    case harness::Op::kAllGatherMatmul:
      return ForecastOp::kAllGatherMatmul;
    case harness::Op::kMatmulReduceScatter:
      return ForecastOp::kMatmulReduceScatter;
    case harness::Op::kMatmulAllReduce:
      break;
  }
  return ForecastOp::kMatmulAllReduce;
}

void print_columns() {
  fmt::print("# {:>21} {:>7} {:>6} {:>6} {:>6} {:>4} {:>10} {:>10} {:>10} {:>10} {:>10} {:>9} {:>6} {:>7}\n",
             "op", "m", "n", "k", "dtype", "W", "product", "comm", "serial", "pipelined", "native", "auto",
             "hidden", "speedup");
}

void PlanCommand::print_op(const PlannedOp& op) const {
  const auto text = [](const std::optional<double>& us) { return us ? time_text(*us) : std::string("-"); };
  const ForecastProblem& problem = op.problem;
  fmt::print(
      "  {:>21} {:>7} {:>6} {:>6} {:>6} {:>4} {:>10} {:>10} {:>10} {:>10} {:>10} {:>9} {:>5.0f}% {:>7.3f}\n",
      name_of(problem.op), problem.m, problem.n, problem.k, to_string(problem.dtype), problem.world,
      time_text(op.product_us), time_text(op.collective_us), time_text(op.serial_us), text(op.pipelined_us),
      text(op.native_us), to_string(op.algorithm), 100 * op.hidden(), op.serial_us / op.us);
  if (!op.why_not.empty()) fmt::print("#   {}\n", op.why_not);
}

void PlanCommand::keep(const PlannedOp& op, const cost::Machine& machine,
                       const Invocation& invocation) const {
  if (flags_.json.empty()) return;
  const auto value = [](const std::optional<double>& us) {
    return us ? nlohmann::json(*us) : nlohmann::json();
  };
  rows_->append({{"op", name_of(op.problem.op)},
                 {"m", op.problem.m},
                 {"n", op.problem.n},
                 {"k", op.problem.k},
                 {"dtype", to_string(op.problem.dtype)},
                 {"scales", to_string(op.problem.scales)},
                 {"world", op.problem.world},
                 {"hosts", flags_.hosts},
                 {"gpu", machine.gpu},
                 {"planned", true},
                 {"product_us", op.product_us},
                 {"comm_us", op.collective_us},
                 {"serial_us", op.serial_us},
                 {"pipelined_us", value(op.pipelined_us)},
                 {"native_us", value(op.native_us)},
                 {"algorithm", to_string(op.algorithm)},
                 {"us", op.us},
                 {"hidden", op.hidden()},
                 {"command", fmt::format("tandem {}", fmt::join(invocation.arguments, " "))}});
}

void PlanCommand::plan_shapes(const cost::Machine& machine, const Invocation& invocation) const {
  std::vector<ForecastProblem> problems;
  for (const std::string& text : flags_.shapes) {
    const Shape shape = parse_shape("--shape", text);
    for (const harness::Op op : harness::kOps) {
      if (!flags_.op.empty() && harness::parse_op(flags_.op) != op) continue;
      ForecastProblem problem = like();
      problem.op = op_of(std::string(to_string(op)));
      problem.m = shape.m;
      problem.n = shape.n;
      problem.k = shape.k;
      problems.push_back(problem);
    }
  }
  const Forecaster forecaster = take(Forecaster::make(machine));
  const Algorithm asked = harness::parse_algorithm_flag(flags_.algorithm);
  std::vector<PlannedOp> planned;
  for (const ForecastProblem& problem : problems)
    planned.push_back(plan_op(forecaster, problem, hosts_of(), asked));
  print_heading(machine);
  print_columns();
  for (const PlannedOp& op : planned) {
    print_op(op);
    keep(op, machine, invocation);
  }
}

double PlanCommand::whole_us_of(const ModelRun& run) const {
  return static_cast<double>(run.tokens) / (flags_.serial_tokens * flags_.ranks) * 1e6;
}

void PlanCommand::check_whole(const PlannedModel& planned, const ModelRun& run) const {
  if (flags_.serial_tokens == 0) return;
  const double whole_us = whole_us_of(run);
  if (whole_us < planned.serial_us) {
    bad_input(
        fmt::format("--serial-tokens {:g}: {} tokens take {} then, and these ops alone are predicted to "
                    "take {}: see --training, --recompute, --tokens and --gpu",
                    flags_.serial_tokens, run.tokens, time_text(whole_us), time_text(planned.serial_us)));
  }
}

void PlanCommand::print_ratio(const PlannedModel& planned, const ModelRun& run) const {
  const double saved_us = planned.serial_us - planned.us;
  fmt::print("# {} layers, {} fused ops each, {} tokens: products {}, serial {}, overlapped {}\n",
             run.shape.layers, planned.num_ops, run.tokens, time_text(planned.product_us),
             time_text(planned.serial_us), time_text(planned.us));
  fmt::print("# hidden: {:.0f} % of what is not the products\n",
             100 * std::clamp(saved_us / std::max(planned.serial_us - planned.product_us, 1e-9), 0.0, 1.0));
  if (flags_.serial_tokens == 0) {
    fmt::print("# tokens/s: {:+.1f} % at most, as nothing else of a model counts; see --serial-tokens\n",
               100 * (planned.serial_us / planned.us - 1));
    return;
  }
  const double whole_us = whole_us_of(run);
  const double ratio = whole_us / (whole_us - saved_us);
  fmt::print("# tokens/s of one GPU: {:.1f} serial, {:.1f} overlapped, {:+.1f} %\n", flags_.serial_tokens,
             flags_.serial_tokens * ratio, 100 * (ratio - 1));
}

void PlanCommand::plan_preset(const cost::Machine& machine, const Invocation& invocation) const {
  const auto overlaps = [&](const char* what) {
    return flags_.overlap.empty() ||
           std::find(flags_.overlap.begin(), flags_.overlap.end(), what) != flags_.overlap.end();
  };
  ModelRun run{.shape = model_of(flags_.preset),
               .tokens = flags_.tokens,
               .trains = flags_.trains,
               .recomputes = flags_.recomputes,
               .overlaps_gathers = overlaps("gather"),
               .overlaps_scatters = overlaps("scatter")};
  if (flags_.layers > 0) run.shape.layers = flags_.layers;
  const Forecaster forecaster = take(Forecaster::make(machine));
  const PlannedModel planned =
      plan_model(forecaster, run, like(), hosts_of(), harness::parse_algorithm_flag(flags_.algorithm));
  check_whole(planned, run);
  print_heading(machine);
  fmt::print("# {}: the ops of a layer, forward\n", flags_.preset);
  print_columns();
  for (const PlannedOp& op : planned.ops) {
    print_op(op);
    keep(op, machine, invocation);
  }
  print_ratio(planned, run);
}

/// Rows of this GPU; the others are counted, not used.
std::vector<MeasuredRow> rows_of(const std::vector<std::string>& files) {
  std::vector<MeasuredRow> rows;
  for (const std::string& file : files) {
    const std::vector<MeasuredRow> more = read_bench_rows(file);
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

void PlanCommand::compare(const cost::Machine& machine) const {
  std::vector<MeasuredRow> rows = rows_of(flags_.against);
  const std::size_t all = rows.size();
  std::erase_if(rows, [&](const MeasuredRow& row) { return row.gpu != machine.gpu; });
  if (rows.empty())
    bad_input(fmt::format("--against: {} rows, none of an {}: name files of that GPU", all, machine.gpu));
  const Forecaster forecaster = take(Forecaster::make(machine));
  std::set<std::string> files;
  for (const MeasuredRow& row : rows) files.insert(row.file);
  fmt::print("# {} rows of an {}; within 10 % of what was measured, and the median error\n", rows.size(),
             machine.gpu);
  fmt::print("# {:<58} {:>8} {:>18} {:>18} {:>18} {:>18}\n", "file", "rows", "product", "serial", "pipelined",
             "native");
  const auto print_of = [&](const std::string& name, const char* kind, const auto& counts) {
    std::vector<MeasuredRow> some;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(some), counts);
    if (some.empty()) return;
    const auto text = [](const Accuracy& one) {
      return one.count == 0 ? std::string("-")
                            : fmt::format("{}/{} {:.1f}%", one.within, one.count, 100 * one.median);
    };
    fmt::print("  {:<58} {:>8} {:>18} {:>18} {:>18} {:>18}\n", name, kind,
               text(accuracy_of_products(forecaster, some)),
               text(accuracy_of(forecaster, some, Algorithm::kSerial)),
               text(accuracy_of(forecaster, some, Algorithm::kPipelined)),
               text(accuracy_of(forecaster, some, Algorithm::kNative)));
  };
  for (const std::string& file : files) {
    print_of(file, is_fitted_to(machine, file) ? "fitted" : "held out",
             [&](const MeasuredRow& row) { return row.file == file; });
  }
  print_of("all", "fitted", [&](const MeasuredRow& row) { return is_fitted_to(machine, row.file); });
  print_of("all", "held out", [&](const MeasuredRow& row) { return !is_fitted_to(machine, row.file); });
}

void PlanCommand::fit(const cost::Machine& base) const {
  claim_output("--output", flags_.output);
  const std::vector<MeasuredRow> rows = rows_of(flags_.fit);
  const cost::Machine machine = fit_machine(base, rows);
  write_output("--output", flags_.output, cost::to_text(machine));
  const auto changed = std::count_if(machine.rates.begin(), machine.rates.end(), [&](const auto& rate) {
    return base.find(rate.name)->value != rate.value;
  });
  fmt::print("# {}: {} rates of an {}, {} of them fitted to {} rows\n", flags_.output, machine.rates.size(),
             machine.gpu, changed, rows.size());
}

int PlanCommand::launch(const Invocation& invocation) {
  check();
  rows_.emplace(flags_.json);
  const cost::Machine machine = machine_of();
  if (!flags_.fit.empty()) fit(machine);
  if (flags_.rates) print_rates(machine);
  if (!flags_.against.empty()) compare(machine);
  if (!flags_.shapes.empty()) plan_shapes(machine, invocation);
  if (!flags_.preset.empty()) plan_preset(machine, invocation);
  return kOk;
}

}  // namespace

std::unique_ptr<Command> make_plan() {
  return std::make_unique<PlanCommand>();
}

}  // namespace tandem::cli
