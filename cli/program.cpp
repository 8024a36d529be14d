#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <tandem/base/convert.hpp>
#include <tandem/program/host/executor.hpp>
#include <tandem/program/host/lower.hpp>

#include "command.hpp"
#include "failure.hpp"
#include "harness/guarded_tensor.hpp"
#include "harness/operands.hpp"
#include "harness/problem.hpp"
#include "harness/reference.hpp"
#include "memory_need.hpp"
#include "session.hpp"

namespace tandem::cli {
namespace {

namespace host = program::host;
using host::ParallelType;

constexpr int kMeshOfTheLowering = 8;
constexpr std::int64_t kSamples = 4096;

/// A distributed matmul as the flags state it.
struct ProgramFlags {
  std::string form = "gather";
  std::string op = "matmul";
  std::string dtype = "f32";
  bool bias = false;
  bool stream_axis = false;
  host::LowerOptions options;
  std::optional<std::int64_t> s;
  std::optional<std::int64_t> m;
  std::optional<std::int64_t> n;
  std::optional<std::int64_t> k;
  int num_streams = host::kDefaultStreams;

  void define(CLI::App& app);
  [[nodiscard]] bool scatters() const { return form == "scatter"; }
  [[nodiscard]] bool is_linear() const { return op == "linear"; }
};

void ProgramFlags::define(CLI::App& app) {
  app.add_option("--form", form, "gather, ring (shards from rank to rank) or scatter (sum over the ranks)")
      ->check(CLI::IsMember({"gather", "ring", "scatter"}))
      ->capture_default_str();
  app.add_option("--op", op, "matmul, or linear: the weight is [n, k]")
      ->check(CLI::IsMember({"matmul", "linear"}))
      ->capture_default_str();
  app.add_flag("--bias", bias, "of a linear");
  app.add_option("--dtype", dtype, "f32, f16 or bf16")->capture_default_str();
  app.add_flag("--stream-axis", stream_axis, "axis 0 of the output is Stream, not Serial");
  app.add_flag("--workers-wait", options.workers_wait,
               "streams first wait for the caller's, in a loop of their own");
  app.add_flag("--joining-loop", options.joining_loop,
               "the caller's stream waits in a loop behind the main one");
  app.add_flag("--single-select", options.single_select,
               "select the shard once, and keep it out of the outputs");
  app.add_flag("--offset-by-rank", options.offset_by_rank,
               "of a ring: rank r takes shards r, r+1, ... from their owners");
  app.add_option("--s", s, "iterations of the host's loop")->type_name("S");
  app.add_option("--m", m, "rows of the whole product")->type_name("M");
  app.add_option("--n", n, "columns of it")->type_name("N");
  app.add_option("--k", k, "summed over, on all ranks")->type_name("K");
  app.add_option("--streams", num_streams, "streams beside the caller's")->capture_default_str();
}

DType dtype_of(const ProgramFlags& flags) {
  const DType dtype = harness::parse_product_dtype(flags.dtype);
  if (is_f8(dtype))
    not_supported(
        fmt::format("--dtype {}: host programs have no scaled products; pass f32, f16 or bf16", flags.dtype));
  return dtype;
}

host::Fusion stated_gather(const ProgramFlags& flags, int num_devices) {
  const DType dtype = dtype_of(flags);
  host::Fusion fusion;
  host::SymbolicTensor* const a = fusion.make_contig_tensor(4, dtype);
  host::SymbolicTensor* const b = fusion.make_contig_tensor(2, dtype);
  host::SymbolicTensor* const bias = flags.bias ? fusion.make_contig_tensor(1, dtype) : nullptr;
  host::SymbolicTensor* const c = flags.is_linear() ? fusion.linear(a, b, bias) : fusion.matmul(a, b);
  const auto mesh = host::DeviceMesh::create_for_num_devices(num_devices);
  for (host::SymbolicTensor* tensor : {a, b, bias, c}) {
    if (tensor == nullptr) continue;
    tensor->set_device_mesh(mesh);
    if (tensor != c) fusion.add_input(tensor);
  }
  fusion.add_output(c);
  a->axis(1).parallelize(ParallelType::kDIDx);
  if (flags.stream_axis) c->axis(0).parallelize(ParallelType::kStream);
  return fusion;
}

host::Fusion stated_scatter(const ProgramFlags& flags, int num_devices) {
  const DType dtype = dtype_of(flags);
  host::Fusion fusion;
  host::SymbolicTensor* const a = fusion.make_contig_tensor(5, dtype);
  host::SymbolicTensor* const b = fusion.make_contig_concrete_tensor({-1, 1, -1, -1}, dtype);
  host::SymbolicTensor* const partial = fusion.matmul(a, b);
  host::SymbolicTensor* const c = fusion.sum(partial, {1});
  const auto mesh = host::DeviceMesh::create_for_num_devices(num_devices);
  for (host::SymbolicTensor* tensor : {a, b, partial, c}) tensor->set_device_mesh(mesh);
  fusion.add_input(a);
  fusion.add_input(b);
  fusion.add_output(c);
  a->axis(1).parallelize(ParallelType::kDIDx);
  b->axis(0).parallelize(ParallelType::kDIDx);
  partial->axis(1).parallelize(ParallelType::kDIDx);
  c->axis(2).parallelize(ParallelType::kDIDx);
  if (flags.stream_axis) c->axis(0).parallelize(ParallelType::kStream);
  return fusion;
}

host::HostProgram lower_for(const ProgramFlags& flags, int num_devices, host::LowerOptions options) {
  harness::check_ranks(num_devices, "--ranks");
  if (flags.bias && !flags.is_linear()) bad_input("--bias: it is of --op linear");
  if (options.offset_by_rank && flags.form != "ring") {
    bad_input("--offset-by-rank: it is of --form ring; in a gather all ranks have one order");
  }
  if (flags.scatters() && flags.is_linear())
    not_supported("--form scatter: it is lowered for --op matmul only");
  options.point_to_point = flags.form == "ring";
  const host::Fusion fusion =
      flags.scatters() ? stated_scatter(flags, num_devices) : stated_gather(flags, num_devices);
  auto program = host::lower(fusion, options);
  if (!program && program.error().code() == ErrorCode::kInvalidArgument) bad_input(program.error().text());
  return take(std::move(program));
}

/// The sizes of a product on `ranks` ranks; s * ranks divides m.
struct HostSizes {
  std::int64_t s = 1;
  std::int64_t m = 0;      ///< rows of one shard
  harness::Problem whole;  ///< the product of the global tensors

  [[nodiscard]] bool scatters() const { return whole.op == harness::Op::kMatmulReduceScatter; }
  [[nodiscard]] std::int64_t n() const { return whole.n[0]; }
  [[nodiscard]] std::int64_t own_k() const { return scatters() ? whole.k() / whole.ranks : whole.k(); }
  [[nodiscard]] std::vector<Dims> inputs(const ProgramFlags& flags) const;
  /// The row of the whole result that is row `local` of this rank's.
  [[nodiscard]] std::int64_t whole_row(std::int64_t local, int rank) const {
    return scatters() ? (local / m * whole.ranks + rank) * m + local % m : local;
  }
};

std::vector<Dims> HostSizes::inputs(const ProgramFlags& flags) const {
  if (scatters()) return {{s, 1, whole.ranks, m, own_k()}, {1, 1, own_k(), n()}};
  std::vector<Dims> sizes{{s, 1, m, whole.k()},
                          flags.is_linear() ? Dims{n(), whole.k()} : Dims{whole.k(), n()}};
  if (flags.bias) sizes.push_back({n()});
  return sizes;
}

HostSizes sizes_for(const ProgramFlags& flags, int ranks) {
  const auto positive = [](const std::optional<std::int64_t>& value, const char* flag) {
    if (!value) bad_input(fmt::format("{} is missing: need --m, --n and --k", flag));
    if (*value < 1) bad_input(fmt::format("{} {}: need at least 1", flag, *value));
    return *value;
  };
  const std::int64_t m = positive(flags.m, "--m");
  HostSizes sizes;
  sizes.s = positive(flags.s.value_or(1), "--s");
  sizes.whole = {.op = flags.scatters() ? harness::Op::kMatmulReduceScatter : harness::Op::kAllGatherMatmul,
                 .a = {m, positive(flags.k, "--k")},
                 .n = {positive(flags.n, "--n")},
                 .dtype = dtype_of(flags),
                 .ranks = ranks,
                 .bias = flags.bias};
  check_problem(sizes.whole);
  if (sizes.s > m || m % (sizes.s * ranks) != 0) {
    bad_input(fmt::format("--m {}: need a multiple of --s {} times {} ranks", m, sizes.s, ranks));
  }
  if (sizes.scatters() && sizes.whole.k() % ranks != 0) {
    bad_input(fmt::format("--k {}: need a multiple of {} ranks, which share it", sizes.whole.k(), ranks));
  }
  sizes.m = m / (sizes.s * ranks);
  if (flags.num_streams < 1 || flags.num_streams > host::kMostStreams) {
    bad_input(fmt::format("--streams {}: need 1 to {}", flags.num_streams, host::kMostStreams));
  }
  return sizes;
}

/// One rank's inputs, made from the global tensors.
std::vector<harness::GuardedTensor> make_inputs(const ProgramFlags& flags, const HostSizes& sizes,
                                                const Session& session) {
  const harness::GeneratedTensors source(sizes.whole);
  std::vector<harness::GuardedTensor> tensors;
  for (const Dims& local : sizes.inputs(flags)) {
    tensors.emplace_back(session.device(), local, sizes.whole.dtype);
  }
  const std::int64_t first_k = sizes.scatters() ? session.rank() * sizes.own_k() : 0;
  const Shard k{first_k, sizes.own_k()};
  const auto matrix = [&](const harness::GuardedTensor& tensor, std::int64_t rows, std::int64_t columns) {
    return TensorView::contiguous(tensor.host().data, {rows, columns}, sizes.whole.dtype);
  };
  if (sizes.scatters()) {
    source.read({harness::OperandKind::kA}, {1, k}, matrix(tensors[0], sizes.whole.a[0], k.size));
  } else {
    const TensorView own = matrix(tensors[0], sizes.s * sizes.m, k.size);
    for (std::int64_t j = 0; j < sizes.s; ++j) {
      const Shard rows{(j * session.size() + session.rank()) * sizes.m, sizes.m};
      source.read({harness::OperandKind::kA}, {0, rows}, own.narrow(0, j * sizes.m, sizes.m));
    }
  }
  const TensorView b = flags.is_linear() ? matrix(tensors[1], sizes.n(), k.size).movedim(0, 1)
                                         : matrix(tensors[1], k.size, sizes.n());
  source.read({harness::OperandKind::kB}, {0, k}, b);
  if (flags.bias) source.read({harness::OperandKind::kBias}, {0, {0, sizes.n()}}, tensors[2].host());
  for (const harness::GuardedTensor& tensor : tensors) tensor.upload();
  return tensors;
}

/// Elements of one rank's result, evenly spread, against sums in f64.
harness::Wrong compare(const HostSizes& sizes, const TensorView& out, int rank, std::int64_t& num_compared) {
  const harness::GeneratedTensors source(sizes.whole);
  harness::Wrong wrong;
  num_compared = std::min(out.numel(), kSamples);
  for (std::int64_t i = 0; i < num_compared; ++i) {
    const std::int64_t element = i * out.numel() / num_compared;
    const std::int64_t row = sizes.whole_row(element / sizes.n(), rank);
    const std::int64_t column = element % sizes.n();
    const harness::Expected expected =
        expect(sizes.whole, source.row_of_a(row), source.column_of_b(0, column), source.bias_at(0, column));
    const double got = element_as_f64(out, element);
    if (is_right(got, expected)) continue;
    wrong.add(fmt::format("row {}, column {} on rank {}: got {}, need {} +- {:.3g}", row, column, rank, got,
                          expected.value, expected.tolerance));
  }
  return wrong;
}

class ProgramCommand : public Command {
 public:
  void define(CLI::App& app) override;
  int launch(const Invocation& invocation) override;
  nlohmann::json run_rank(const RankContext& context, const Config& config) override;

 private:
  [[nodiscard]] int lower() const;
  [[nodiscard]] int run(const Invocation& invocation) const;

  const CLI::App* run_app_ = nullptr;
  ProgramFlags flags_;
  int mesh_ = kMeshOfTheLowering;
  std::optional<int> unrolled_rank_;
  bool only_text_ = false;
  bool dump_ = false;
  JobFlags job_;
};

void ProgramCommand::define(CLI::App& app) {
  app.require_subcommand(1);
  CLI::App* const lower = app.add_subcommand("lower", "Print the host program of a distributed matmul");
  flags_.define(*lower);
  lower->add_option("--ranks", mesh_, "devices of the mesh")->type_name("D")->capture_default_str();
  lower
      ->add_option("--unroll", unrolled_rank_,
                   "print what this rank enqueues, for --s, --m, --n, --k and --streams")
      ->type_name("RANK");
  lower->add_flag("--dump", only_text_, "the program's text and nothing else");
  CLI::App* const run = app.add_subcommand("run", "Run the host program on ranks, and check the result");
  flags_.define(*run);
  job_.define(*run);
  run->add_flag("--dump", dump_, "print the program, as device 0 has it");
  run_app_ = run;
}

int ProgramCommand::launch(const Invocation& invocation) {
  if (run_app_->parsed()) return run(invocation);
  return lower();
}

std::string fixes_in_words(const host::LowerOptions& options) {
  std::vector<std::string> fixes;
  const auto add = [&](bool on, const char* words) {
    if (on) fixes.emplace_back(words);
  };
  add(options.workers_wait, "workers wait");
  add(options.joining_loop, "joining loop");
  add(options.single_select, "single select");
  add(options.offset_by_rank, "offset by rank");
  return fixes.empty() ? "first generation" : fmt::format("{}", fmt::join(fixes, ", "));
}

int ProgramCommand::lower() const {
  const host::HostProgram program = lower_for(flags_, mesh_, flags_.options);
  std::string text = program.to_string();
  if (unrolled_rank_) {
    if (*unrolled_rank_ < 0 || *unrolled_rank_ >= mesh_) {
      bad_input(fmt::format("--unroll {}: need a rank from 0 to {}", *unrolled_rank_, mesh_ - 1));
    }
    if (!flags_.options.workers_wait) {
      bad_input("--unroll: needs --workers-wait, as without it inputs may be read before they are written");
    }
    const auto inputs = sizes_for(flags_, mesh_).inputs(flags_);
    text = take_input(host::unrolled_text(program, inputs, *unrolled_rank_, flags_.num_streams), "--unroll");
  } else if (flags_.m || flags_.n || flags_.k || flags_.s) {
    static_cast<void>(sizes_for(flags_, mesh_));  // sizes that could not run are no use
  }
  if (!only_text_) {
    fmt::print("{} {} as {} over {} devices ({})\n", flags_.op, flags_.dtype, flags_.form, mesh_,
               fixes_in_words(flags_.options));
  }
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kOk;
}

int ProgramCommand::run(const Invocation& invocation) const {
  const JobPlace place = job_.choose(invocation.machine);
  const HostSizes sizes = sizes_for(flags_, place.ranks);
  host::LowerOptions options = flags_.options;
  options.workers_wait = true;
  static_cast<void>(lower_for(flags_, place.ranks, options));
  check_memory_need(fmt::format("program on {} ranks", place.ranks), bytes_of_ranks(sizes.whole));
  fmt::print("{}\n", place.heading);
  std::fflush(stdout);
  const auto reports = run_job({place.ranks, invocation.arguments, place.placement, {}}, invocation.jobs);
  fmt::print("{}", reports[0].at("dump").get<std::string>());
  fmt::print("{} {} as {} ({}): s {}, m {}, n {}, k {}, {} streams beside the caller's\n", flags_.op,
             flags_.dtype, flags_.form, fixes_in_words(options), sizes.s, sizes.whole.a[0], sizes.n(),
             sizes.whole.k(), reports[0].at("streams").get<int>());
  std::int64_t compared = 0;
  std::int64_t wrong = 0;
  std::string first;
  for (const nlohmann::json& report : reports) {
    compared += report.at("compared").get<std::int64_t>();
    wrong += report.at("wrong").get<std::int64_t>();
    if (first.empty()) first = report.at("first").get<std::string>();
  }
  fmt::print("{} elements compared with float64, {} wrong\n", compared, wrong);
  if (wrong == 0) return kOk;
  throw Failure(kFailed, Error(ErrorCode::kNumeric, fmt::format("{} elements are wrong: {}", wrong, first)));
}

nlohmann::json ProgramCommand::run_rank(const RankContext& context, const Config& config) {
  const Session session(context, job_.config_of(config), "program");
  const HostSizes sizes = sizes_for(flags_, session.size());
  std::string dumped;
  host::LowerOptions options = flags_.options;
  options.workers_wait = true;
  options.device = session.rank();
  if (dump_) options.dump = [&](std::string_view text) { dumped += text; };
  const host::HostProgram program = lower_for(flags_, session.size(), options);

  const std::vector<harness::GuardedTensor> tensors = make_inputs(flags_, sizes, session);
  std::vector<TensorView> inputs;
  inputs.reserve(tensors.size());
  for (const harness::GuardedTensor& tensor : tensors) inputs.push_back(tensor.view());
  const auto executor =
      take(host::Executor::create(program, inputs, session.group(), session.device(), flags_.num_streams));
  const harness::GuardedTensor out(session.device(), executor->out_sizes(), executor->out_dtype());
  out.poison();
  take(executor->run(inputs, out.view(), session.stream()));
  session.finish();
  out.download();

  std::int64_t num_compared = 0;
  harness::Wrong wrong = compare(sizes, out.host(), session.rank(), num_compared);
  if (!out.guards_are_whole())
    wrong.add(fmt::format("memory beside the result of rank {} was written", session.rank()));
  return {{"dump", dumped},
          {"streams", executor->num_streams()},
          {"compared", num_compared},
          {"wrong", wrong.count},
          {"first", wrong.first}};
}

}  // namespace

std::unique_ptr<Command> make_program() {
  return std::make_unique<ProgramCommand>();
}

}  // namespace tandem::cli
