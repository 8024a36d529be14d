#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "command.hpp"
#include "explain.hpp"
#include "failure.hpp"
#include "harness/operands.hpp"
#include "job_results.hpp"
#include "memory_need.hpp"
#include "quantized_tensors.hpp"
#include "rank_op.hpp"
#include "run_4bit.hpp"
#include "run_collective.hpp"
#include "scale_files.hpp"
#include "session.hpp"
#include "shell_words.hpp"
#include "tensor_file.hpp"

namespace tandem::cli {
namespace {

struct RunFlags {
  std::string op;
  std::string a;
  std::vector<std::string> b;
  std::vector<std::string> bias;
  std::vector<std::string> out;
  ScaleFiles scale_files;
  std::string scales;
  std::string dtype;
  std::string out_dtype;
  std::string algorithm = "auto";
  std::string reduce = "sum";
  std::string problem;
  std::optional<int> gather_dim;
  std::optional<int> scatter_dim;
  std::optional<std::int64_t> group_size;
  bool transpose_b = false;
  bool explain = false;
  JobFlags job;
};

/// The problem and the tensors it is about. Mapped files stay mapped as long as this lives.
struct Inputs {
  harness::Problem problem;
  std::vector<Tensor> files;
  std::unique_ptr<harness::OperandSource> source;
};

// The type in which the op runs: --dtype, or a's.
DType choose_dtype(const RunFlags& flags, DType a) {
  if (!flags.dtype.empty()) return harness::parse_product_dtype(flags.dtype);
  if (a == DType::kF64) return DType::kF32;
  if (!is_floating(a)) {
    bad_input(fmt::format("--a {}: its type {} is no floating type; store it as f16, bf16, f32 or f64",
                          flags.a, to_string(a)));
  }
  return harness::parse_product_dtype(std::string(to_string(a)));
}

/// How f8 operands get their scales: from files, or from the operands themselves. `a` is the type of A's
/// file.
void choose_scales(const RunFlags& flags, DType a, harness::Problem& problem) {
  if (!flags.scales.empty()) problem.scales = harness::parse_scales(flags.scales);
  if (!flags.out_dtype.empty()) problem.out = harness::parse_out_dtype(flags.out_dtype);
  if (flags.scale_files.are_given() && (!is_f8(a) || !is_f8(problem.dtype))) {
    bad_input(
        fmt::format("--a-scale, --b-scale: --a {} holds {} and is multiplied as {}: need f8 files as they "
                    "are; to make f8 of others, pass --dtype f8e4m3 --scales row",
                    flags.a, to_string(a), to_string(problem.dtype)));
  }
  if (is_f8(a) && is_f8(problem.dtype) && !flags.scale_files.are_given()) {
    bad_input(
        fmt::format("--a {} holds {}: pass its scales by --a-scale and --b-scale, or pass --dtype f32, f16 "
                    "or bf16 to multiply the numbers as they are",
                    flags.a, to_string(a)));
  }
}

void check_type(const RunFlags& flags, const std::string& flag, const std::string& file, DType type,
                DType a) {
  if (!is_floating(type)) {
    bad_input(fmt::format("{} {}: its type {} is no floating type; store it as f16, bf16, f32 or f64", flag,
                          file, to_string(type)));
  }
  if (flags.dtype.empty() && type != a) {
    bad_input(fmt::format("{} {} holds {} and --a {} holds {}: pass --dtype to convert both", flag, file,
                          to_string(type), flags.a, to_string(a)));
  }
}

int choose_dim(const RunFlags& flags, harness::Op op) {
  const bool gathers = op == harness::Op::kAllGatherMatmul;
  const bool scatters = op == harness::Op::kMatmulReduceScatter;
  const auto refuse = [&](const char* flag) {
    bad_input(fmt::format("{}: {} takes {}", flag, to_string(op),
                          gathers    ? "--gather-dim"
                          : scatters ? "--scatter-dim"
                                     : "no dimension"));
  };
  if (!scatters && flags.scatter_dim) refuse("--scatter-dim");
  if (!gathers && flags.gather_dim) refuse("--gather-dim");
  return (gathers ? flags.gather_dim : flags.scatter_dim).value_or(0);
}

// Sizes in the files of b against a.
void check_b(const RunFlags& flags, const Dims& a, const std::vector<Dims>& b) {
  const int k_dim = flags.transpose_b ? 1 : 0;
  const auto fits = [&](const Dims& sizes, int dim) { return sizes.size() == 2 && sizes[dim] == a.back(); };
  const auto fits_other_way = [&](const Dims& sizes) { return fits(sizes, 1 - k_dim); };
  const char* other_way = flags.transpose_b ? "without" : "with";
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (fits(b[i], k_dim)) continue;
    const std::string file = fmt::format("--b {} has sizes {}", flags.b[i], to_string(b[i]));
    if (b[i].size() != 2) {
      bad_input(fmt::format("{}: need two dimensions {}", file,
                            flags.transpose_b ? "[n, k], as --transpose-b says" : "[k, n]"));
    }
    std::string remedy;
    if (std::all_of(b.begin(), b.end(), fits_other_way)) {
      remedy = flags.transpose_b ? "; it fits as it is: leave out --transpose-b"
                                 : "; it fits as [n, k]: pass --transpose-b";
    } else if (fits_other_way(b[i])) {
      remedy =
          fmt::format("; it fits {} --transpose-b, but not every --b does: run it on its own", other_way);
    }
    bad_input(fmt::format("{}{}, {} rows, but --a {} has {} columns, sizes {}: they must be equal{}", file,
                          flags.transpose_b ? ", which is transposed" : "", b[i][k_dim], flags.a, a.back(),
                          to_string(a), remedy));
  }
}

// Sizes of the files against each other.
void check_shapes(const RunFlags& flags, const Dims& a, const std::vector<Dims>& b,
                  const std::vector<TensorView>& bias) {
  if (a.size() < 2) {
    bad_input(
        fmt::format("--a {} has sizes {}: need at least two dimensions [..., k]", flags.a, to_string(a)));
  }
  check_b(flags, a, b);
  if (!bias.empty() && bias.size() != b.size()) {
    bad_input(fmt::format("{} --bias for {} --b: pass one for each or none", bias.size(), b.size()));
  }
  for (std::size_t i = 0; i < bias.size(); ++i) {
    const std::int64_t n = b[i][flags.transpose_b ? 0 : 1];
    if (bias[i].sizes == Dims{n}) continue;
    bad_input(fmt::format("--bias {} has sizes {}: need [{}], the columns of --b {}", flags.bias[i],
                          to_string(bias[i].sizes), n, flags.b[i]));
  }
}

Inputs inputs_from_files(const RunFlags& flags, int ranks) {
  Inputs inputs;
  harness::Problem& problem = inputs.problem;
  problem.op = harness::parse_op(flags.op);
  problem.dim = choose_dim(flags, problem.op);
  problem.ranks = ranks;
  problem.algorithm = harness::parse_algorithm_flag(flags.algorithm);
  problem.reduce = harness::parse_reduce(flags.reduce);
  if (flags.a.empty() || flags.b.empty()) bad_input("run needs --a FILE and --b FILE (or --problem)");
  auto source = std::make_unique<harness::WholeTensors>();
  const auto read = [&](const std::string& file, const std::string& flag) {
    inputs.files.push_back(read_tensor_file(file, flag));
    return inputs.files.back().view();
  };
  source->a = read(flags.a, "--a");
  problem.dtype = choose_dtype(flags, source->a.dtype);
  choose_scales(flags, source->a.dtype, problem);
  check_type(flags, "--a", flags.a, source->a.dtype, source->a.dtype);
  for (const std::string& file : flags.b) {
    source->b.push_back(read(file, "--b"));
    check_type(flags, "--b", file, source->b.back().dtype, source->a.dtype);
  }
  for (const std::string& file : flags.bias) {
    source->bias.push_back(read(file, "--bias"));
    const DType a = is_f8(problem.dtype) ? source->bias.back().dtype : source->a.dtype;
    check_type(flags, "--bias", file, source->bias.back().dtype, a);
  }
  std::vector<Dims> sizes_of_b;
  for (const TensorView& b : source->b) sizes_of_b.push_back(b.sizes);
  check_shapes(flags, source->a.sizes, sizes_of_b, source->bias);
  if (flags.transpose_b) {
    for (TensorView& b : source->b) b = b.movedim(0, 1);
    problem.b_is_column_major = true;
  }
  problem.a = source->a.sizes;
  for (const TensorView& b : source->b) problem.n.push_back(b.size(1));
  problem.bias = !flags.bias.empty();
  if (flags.scale_files.are_given()) read_scales(flags.scale_files, problem, *source, inputs.files);
  check_problem(problem);
  if (problem.is_scaled() && !flags.scale_files.are_given()) {
    inputs.source = std::make_unique<QuantizedTensors>(problem, std::move(*source));
  } else {
    inputs.source = std::move(source);
  }
  return inputs;
}

Inputs read_inputs(const RunFlags& flags, int ranks) {
  if (flags.problem.empty()) return inputs_from_files(flags, ranks);
  Inputs inputs;
  inputs.problem = harness::parse_problem(flags.problem);
  inputs.problem.ranks = ranks;
  inputs.source = std::make_unique<harness::GeneratedTensors>(inputs.problem);
  return inputs;
}

void claim_outputs(const RunFlags& flags, std::size_t num_results) {
  if (flags.out.size() != num_results) {
    bad_input(
        fmt::format("{} --out for {} result(s): pass one --out for each --b", flags.out.size(), num_results));
  }
  for (const std::string& path : flags.out) claim_tensor_file(path);
}

JobResults results_of(const harness::Problem& problem) {
  JobResults results{.ranks = problem.ranks, .tensors = {}, .part_of = {}};
  for (int i = 0; i < static_cast<int>(problem.n.size()); ++i)
    results.tensors.push_back({problem.result_sizes(i), problem.out_dtype()});
  results.part_of = [problem](int i, int rank) {
    harness::Window window = window_of_result(problem, i, rank);
    // Rank 0 has it all.
    if (problem.op == harness::Op::kMatmulAllReduce && rank > 0) window.shard = {};
    return window;
  };
  return results;
}

/// Of the ranks here and of the launcher, which writes the results of all ranks when they have ended: some in
/// another type.
std::int64_t bytes_needed(const harness::Problem& problem, const JobPlace& place,
                          const std::vector<std::string>& files) {
  std::int64_t widened = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const DType stored = stored_dtype(files[i], problem.out_dtype());
    if (stored != problem.out_dtype())
      widened = std::max(widened, bytes_of(problem.result_sizes(static_cast<int>(i)), stored));
  }
  return sum_of_bytes(
      {std::max(place.part_here(bytes_of_ranks(problem)), widened), bytes_of_results(problem)});
}

class RunCommand : public Command {
 public:
  void define(CLI::App& app) override;
  int launch(const Invocation& invocation) override;
  nlohmann::json run_rank(const RankContext& context, const Config& config) override;

 private:
  void print_report(const harness::Problem& problem, const nlohmann::json& report, int ranks) const;
  RunFlags flags_;
};

void RunCommand::define(CLI::App& app) {
  app.add_option("op", flags_.op, harness::names_of_ops() + ", matmul_4bit, " + names_of_collectives());
  app.add_option("--a", flags_.a, "A [..., k]: a .npy file, or a tensor of a .safetensors file or model")
      ->type_name("PATH[#NAME]");
  const auto add_list = [&](const char* name, std::vector<std::string>& list, const char* text,
                            const char* type) {
    app.add_option(name, list, text)->type_name(type)->allow_extra_args(false);
  };
  add_list("--b", flags_.b, "B [k, n]; may be given several times, each with its --out", "PATH[#NAME]");
  add_list("--bias", flags_.bias, "added to the result [n]; as many as --b", "PATH[#NAME]");
  add_list("--out", flags_.out, "where A*B goes: .npy (f32) or .safetensors (keeps the type, key 'out')",
           "FILE");
  app.add_flag("--transpose-b", flags_.transpose_b, "every B is stored as [n, k], as models do");
  app.add_option(
      "--dtype", flags_.dtype,
      "convert inputs to f32, f16 or bf16, or with --scales to f8e4m3 or f8e5m2; default: A's type");
  app.add_option("--scales", flags_.scales,
                 "of f8 operands: tensor, row (of A; column of B) or block (128 of k; gathers only)");
  app.add_option("--a-scale", flags_.scale_files.a, "scales of an f8 A: one, [..., 1] or [..., kb]")
      ->type_name("PATH[#NAME]");
  add_list("--b-scale", flags_.scale_files.b, "scales of an f8 B: one, [1, n], [kb, n] or [kb, nb]",
           "PATH[#NAME]");
  app.add_option("--out-dtype", flags_.out_dtype, "of f8 operands' products: f32, f16 or bf16 (default)");
  app.add_option("--algorithm", flags_.algorithm, "auto, native, pipelined or serial");
  app.add_flag("--explain", flags_.explain,
               "show what the algorithm was chosen from, and the steps of rank 0");
  app.add_option("--gather-dim", flags_.gather_dim,
                 "dimension of A that is sharded (all_gather_matmul, low_contention_all_gather)");
  app.add_option("--scatter-dim", flags_.scatter_dim, "dimension of the result that is scattered");
  app.add_option(
      "--reduce", flags_.reduce,
      "sum or avg over ranks (matmul_reduce_scatter, matmul_all_reduce, low_contention_reduce_scatter)");
  app.add_option("--problem", flags_.problem, "generated inputs, as check and bench print them");
  app.add_option(
      "--group-size", flags_.group_size,
      "weights that share a scale (matmul_4bit): k, or a multiple of 32 that divides it; default 32");
  flags_.job.define(app);
  problem_stands_alone(
      app, {"op", "--a", "--b", "--bias", "--transpose-b", "--dtype", "--scales", "--a-scale", "--b-scale",
            "--out-dtype", "--algorithm", "--gather-dim", "--scatter-dim", "--reduce"});
}

/// `run matmul_4bit` is a product of one process. Throws exit 2 for flags that it does not take.
FourBitRun four_bit_run(const RunFlags& flags) {
  if (flags.b.size() > 1 || flags.bias.size() > 1 || flags.out.size() > 1)
    bad_input("run matmul_4bit takes one --b, one --bias and one --out");
  const bool has_others = !flags.dtype.empty() || !flags.scales.empty() || !flags.out_dtype.empty() ||
                          flags.scale_files.are_given() || flags.gather_dim || flags.scatter_dim ||
                          !flags.problem.empty() || flags.explain || flags.algorithm != "auto" ||
                          flags.job.ranks.value_or(1) != 1;
  if (has_others) {
    bad_input(
        "run matmul_4bit takes --a, --b, --transpose-b, --bias, --out and --group-size alone: it multiplies "
        "f32 "
        "values in one process");
  }
  const auto first = [](const std::vector<std::string>& list) {
    return list.empty() ? std::string() : list[0];
  };
  return {flags.a, first(flags.b), first(flags.bias), first(flags.out), flags.transpose_b, flags.group_size};
}

/// `run` of a collective. Throws exit 2 for flags that it does not take.
CollectiveRun collective_run(const RunFlags& flags, CollectiveOp op) {
  const bool gathers = op == CollectiveOp::kLowContentionAllGather;
  const bool has_others =
      !flags.b.empty() || !flags.bias.empty() || flags.transpose_b || !flags.scales.empty() ||
      flags.scale_files.are_given() || !flags.out_dtype.empty() || !flags.problem.empty() || flags.explain ||
      flags.algorithm != "auto" || flags.group_size || flags.out.size() != 1 ||
      (gathers ? flags.scatter_dim : flags.gather_dim) || (gathers && flags.reduce != "sum");
  if (has_others) {
    bad_input(fmt::format("run {} takes --a, --out, --dtype, {} and the flags of ranks", to_string(op),
                          gathers ? "--gather-dim" : "--scatter-dim, --reduce"));
  }
  return {.op = op,
          .a = flags.a,
          .out = flags.out[0],
          .dtype = flags.dtype,
          .reduce = flags.reduce,
          .dim = (gathers ? flags.gather_dim : flags.scatter_dim).value_or(0)};
}

int RunCommand::launch(const Invocation& invocation) {
  if (const auto collective = collective_named(flags_.op))
    return run_collective(collective_run(flags_, *collective), flags_.job, invocation);
  if (flags_.op == "matmul_4bit") return run_4bit(four_bit_run(flags_), invocation);
  if (flags_.group_size) bad_input("--group-size: only matmul_4bit takes it");
  const JobPlace place = flags_.job.choose(invocation.machine, flags_.problem);
  const int ranks = place.ranks;
  const Inputs inputs = read_inputs(flags_, ranks);
  const harness::Problem& problem = inputs.problem;
  check_memory_need(place.with_ranks("run"), bytes_needed(problem, place, flags_.out));
  claim_outputs(flags_, problem.n.size());

  fmt::print("{}\n", place.heading);
  std::fflush(stdout);
  const GatheredResults results(results_of(problem));
  const auto reports = run_job(
      {ranks, invocation.arguments, place.placement, nullptr, invocation.tracing, &results}, invocation.jobs);

  for (std::size_t i = 0; i < flags_.out.size(); ++i) write_tensor_file(flags_.out[i], results.tensors()[i]);
  print_report(problem, reports[0], ranks);
  return kOk;
}

void RunCommand::print_report(const harness::Problem& problem, const nlohmann::json& report,
                              int ranks) const {
  fmt::print("{}: algorithm {} ({})\n", report.at("key").get<std::string>(),
             report.at("algorithm").get<std::string>(), report.at("reason").get<std::string>());
  if (flags_.explain) {
    print_candidates(report);
    print_program(report);
  }
  for (int i = 0; i < static_cast<int>(flags_.out.size()); ++i) {
    const std::string& path = flags_.out[static_cast<std::size_t>(i)];
    fmt::print("wrote {}: {} {}\n", path, to_string(stored_dtype(path, problem.out_dtype())),
               to_string(problem.result_sizes(i)));
  }
  std::vector<std::string> again{"tandem", "run"};
  const auto add = [&](std::initializer_list<std::string> words) { again.insert(again.end(), words); };
  if (flags_.problem.empty()) {
    add({flags_.op, "--a", flags_.a});
    for (const std::string& file : flags_.b) add({"--b", file});
    if (flags_.transpose_b) add({"--transpose-b"});
    for (const std::string& file : flags_.bias) add({"--bias", file});
    if (problem.op == harness::Op::kAllGatherMatmul) add({"--gather-dim", std::to_string(problem.dim)});
    if (problem.op == harness::Op::kMatmulReduceScatter) add({"--scatter-dim", std::to_string(problem.dim)});
    if (reduces(problem.op)) add({"--reduce", std::string(coll::to_string(problem.reduce))});
    add({"--dtype", std::string(to_string(problem.dtype)), "--algorithm", flags_.algorithm});
    if (problem.is_scaled()) {
      add({"--scales", std::string(to_string(problem.scales)), "--out-dtype",
           std::string(to_string(problem.out_dtype()))});
    }
    if (flags_.scale_files.are_given()) add({"--a-scale", flags_.scale_files.a});
    for (const std::string& file : flags_.scale_files.b) add({"--b-scale", file});
  } else {
    add({"--problem", flags_.problem});
  }
  for (const std::string& file : flags_.out) add({"--out", file});
  add({"--ranks", std::to_string(ranks)});
  fmt::print("again: {}\nsame shapes, generated: --problem {}\n", shell_words(again), to_line(problem));
}

nlohmann::json RunCommand::run_rank(const RankContext& context, const Config& config) {
  if (const auto collective = collective_named(flags_.op))
    return run_collective_rank(collective_run(flags_, *collective), flags_.job, context, config);
  const Inputs inputs = read_inputs(flags_, context.size);
  const harness::Problem& problem = inputs.problem;
  const Session session(context, flags_.job.config_of(config), "run");
  RankOp op(problem, session, *inputs.source);
  op.poison();
  const OpReport report = op.call(problem.algorithm);
  session.finish();
  session.tell_trace();
  op.download();

  std::vector<TensorView> parts;
  for (const harness::GuardedTensor& part : op.outputs()) parts.push_back(part.host());
  hand_in(parts, results_of(problem), context);
  return to_json(report);
}

}  // namespace

std::unique_ptr<Command> make_run() {
  return std::make_unique<RunCommand>();
}

}  // namespace tandem::cli
