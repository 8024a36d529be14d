#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "check_collectives.hpp"
#include "command.hpp"
#include "failure.hpp"
#include "harness/reference.hpp"
#include "memory_need.hpp"
#include "rank_op.hpp"
#include "session.hpp"
#include "sweep.hpp"

namespace tandem::cli {
namespace {

/// What a rank counts for one op.
struct Tally {
  std::int64_t run = 0;
  std::int64_t skipped = 0;
  std::int64_t wrong = 0;
};

/// One rank's share of a sweep: runs cases and compares them with f64 and with `serial`.
class CaseRunner {
 public:
  /// In step: see CheckFlags.
  CaseRunner(const Session& session, bool is_in_step) : session_(session), is_in_step_(is_in_step) {}

  /// Runs and compares a collective.
  void run(const CollectiveCase& c);
  /// Runs a problem with each algorithm.
  void run(harness::Problem problem, const std::vector<Algorithm>& algorithms);
  [[nodiscard]] nlohmann::json result() const;

 private:
  /// Poisons the outputs, calls and waits for them.
  void call(RankOp& op, Algorithm algorithm) const;
  /// Runs and compares one case; false when it cannot run here.
  bool run_case(RankOp& op, const harness::Reference& reference, harness::Problem problem,
                Algorithm algorithm);
  void compare(const RankOp& op, const harness::Reference& reference, harness::Wrong& wrong) const;
  void compare_with_serial(const RankOp& op, harness::Wrong& wrong) const;
  void remember_serial(const RankOp& op);

  const Session& session_;
  const bool is_in_step_;
  std::map<std::string, Tally> tallies_;
  std::vector<std::vector<std::byte>> serial_bytes_;
  std::vector<std::string> wrong_lines_;
  std::vector<std::string> skip_reasons_;
};

std::vector<std::byte> contents_of(const TensorView& view) {
  const auto* begin = view.data_as<const std::byte>();
  return {begin, begin + view.size_bytes()};
}

void CaseRunner::run(harness::Problem problem, const std::vector<Algorithm>& algorithms) {
  problem.by_tensor_cores = session_.placement().kind == DeviceKind::kCuda;
  const harness::GeneratedTensors source(problem);
  const harness::Reference reference(problem, source);
  RankOp op(problem, session_, source);
  serial_bytes_.clear();
  if (std::find(algorithms.begin(), algorithms.end(), Algorithm::kSerial) == algorithms.end()) {
    call(op, Algorithm::kSerial);
    remember_serial(op);
  }
  Tally& tally = tallies_[std::string(to_string(problem.op))];
  for (const Algorithm algorithm : algorithms) {
    const bool ran = run_case(op, reference, problem, algorithm);
    ++(ran ? tally.run : tally.skipped);
  }
}

void CaseRunner::run(const CollectiveCase& c) {
  if (is_in_step_) session_.meet("every rank is about to call");
  const harness::Wrong wrong = check_case(c, session_);
  Tally& tally = tallies_[std::string(to_string(c.op))];
  ++tally.run;
  if (wrong.count == 0) return;
  ++tally.wrong;
  wrong_lines_.push_back(fmt::format("{} --ranks {} --dtype {}   {} wrong; first: {}", to_string(c.op),
                                     session_.size(), tandem::to_string(c.dtype), wrong.count, wrong.first));
}

void CaseRunner::call(RankOp& op, Algorithm algorithm) const {
  op.poison();
  if (is_in_step_) session_.meet("every rank is about to call");
  op.call(algorithm);
  if (is_in_step_) session_.meet("every rank has called");
  session_.finish();
  op.download();
}

bool CaseRunner::run_case(RankOp& op, const harness::Reference& reference, harness::Problem problem,
                          Algorithm algorithm) {
  problem.algorithm = algorithm;
  try {
    call(op, algorithm);
  } catch (const Failure& failure) {
    if (failure.error().code() == ErrorCode::kUnsupported) {
      skip_reasons_.push_back(fmt::format("--problem {}: {}", to_line(problem), failure.error().text()));
      return false;
    }
    throw Failure(failure.exit_code(),
                  Error(failure.error().code(), fmt::format("{} in tandem check --problem {}",
                                                            failure.error().text(), to_line(problem))));
  }
  if (algorithm == Algorithm::kSerial) remember_serial(op);
  harness::Wrong wrong;
  compare(op, reference, wrong);
  compare_with_serial(op, wrong);
  if (!op.guards_intact()) wrong.add("bytes beside a tensor were overwritten");
  if (wrong.count == 0) return true;
  ++tallies_[std::string(to_string(problem.op))].wrong;
  wrong_lines_.push_back(fmt::format("--problem {}   rank {}: {} wrong; first: {}", to_line(problem),
                                     session_.rank(), wrong.count, wrong.first));
  return true;
}

void CaseRunner::compare(const RankOp& op, const harness::Reference& reference, harness::Wrong& wrong) const {
  for (int i = 0; i < static_cast<int>(op.outputs().size()); ++i) {
    reference.compare(i, window_of_result(op.problem(), i, session_.rank()),
                      op.outputs()[static_cast<std::size_t>(i)].host(), wrong);
  }
  if (op.gathered() != nullptr) reference.compare_gathered(op.gathered()->host(), wrong);
}

void CaseRunner::remember_serial(const RankOp& op) {
  serial_bytes_.clear();
  for (const harness::GuardedTensor& out : op.outputs()) serial_bytes_.push_back(contents_of(out.host()));
}

void CaseRunner::compare_with_serial(const RankOp& op, harness::Wrong& wrong) const {
  const harness::Problem& problem = op.problem();
  // Slices of k add up one after the other when the last dim is gathered: other bits than one sum.
  if (problem.op == harness::Op::kAllGatherMatmul && problem.dim_is_last()) return;
  for (std::size_t i = 0; i < serial_bytes_.size(); ++i) {
    harness::compare_with_serial(problem, static_cast<int>(i),
                                 {.first = serial_bytes_[i],
                                  .second = op.outputs()[i].host(),
                                  .same_bits = session_.placement().has_same_bits()},
                                 wrong);
  }
}

nlohmann::json CaseRunner::result() const {
  nlohmann::json result{{"wrong_lines", wrong_lines_}, {"skip_reasons", skip_reasons_}};
  for (const auto& [op, tally] : tallies_) {
    result["tallies"][op] = {{"run", tally.run}, {"skipped", tally.skipped}, {"wrong", tally.wrong}};
  }
  return result;
}

struct CheckFlags {
  std::string op;
  std::string problem;
  std::vector<std::string> dtypes{"f32", "bf16", "f16", "f8e4m3", "f8e5m2"};
  std::vector<std::string> scales{"tensor", "row", "block"};
  std::vector<std::string> algorithms{"serial", "pipelined", "auto"};
  std::vector<int> ranks{1, 2, 3, 4, 8};
  std::string backend = "auto";
  bool loopback = false;
  bool nan_check = false;
  bool is_in_step = false;  ///< ranks meet on the host before each call, and again behind it
};

class CheckCommand : public Command {
 public:
  void define(CLI::App& app) override;
  int launch(const Invocation& invocation) override;
  nlohmann::json run_rank(const RankContext& context, const Config& config) override;

 private:
  [[nodiscard]] SweepLists lists() const;
  /// Throws exit 2 for a problem that is larger than memory.
  void check_sizes(const SweepLists& lists) const;
  /// Adds up what the ranks of one job found; prints a line.
  void collect(const Placement& placement, int ranks, const std::vector<nlohmann::json>& results);
  [[nodiscard]] Tally total_of(std::string_view op) const {
    const auto found = totals_.find(std::string(op));
    return found == totals_.end() ? Tally{} : found->second;
  }
  int conclude(const SweepLists& lists) const;
  /// Whether the user says how many ranks.
  [[nodiscard]] bool has_ranks() const { return ranks_->count() > 0 || !flags_.problem.empty(); }

  CheckFlags flags_;
  CLI::Option* ranks_ = nullptr;
  std::map<std::string, Tally> totals_;
  std::vector<std::string> wrong_lines_;
  std::vector<std::string> skip_reasons_;
};

void CheckCommand::define(CLI::App& app) {
  app.add_option("op", flags_.op, harness::names_of_ops() + ", " + names_of_collectives() + "; default: all");
  app.add_option("--problem", flags_.problem, "just this case, as a failure prints it");
  ranks_ = app.add_option("--ranks", flags_.ranks, "numbers of ranks");
  ranks_->delimiter(',')->capture_default_str();
  app.add_option("--dtype", flags_.dtypes, "element types")->delimiter(',')->capture_default_str();
  app.add_option("--scales", flags_.scales, "of f8 operands; block: gathers only")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--algorithm", flags_.algorithms, "algorithms")->delimiter(',')->capture_default_str();
  app.add_option("--backend", flags_.backend, "auto, cpu or cuda");
  app.add_flag("--nan-check", flags_.nan_check, "ops look for NaN in their inputs; results are full of it");
  app.add_flag("--loopback", flags_.loopback,
               "all ranks as threads on GPU 0, also where there are enough GPUs");
  app.add_flag("--in-step", flags_.is_in_step,
               "no rank waits for its GPU before all have enqueued a call: for checkers that hold up every "
               "launch while one thread asks the driver");
  problem_stands_alone(app, {"op", "--ranks", "--dtype", "--scales", "--algorithm"});
}

SweepLists CheckCommand::lists() const {
  SweepLists lists;
  if (!flags_.problem.empty()) {
    const harness::Problem problem = harness::parse_problem(flags_.problem);
    return {.ops = {problem.op}, .dtypes = {}, .algorithms = {problem.algorithm}, .ranks = {problem.ranks}};
  }
  if (const auto collective = collective_named(flags_.op)) {
    lists.collectives = {*collective};
  } else if (!flags_.op.empty()) {
    lists.ops = {harness::parse_op(flags_.op)};
  } else {
    lists.ops.assign(std::begin(harness::kOps), std::end(harness::kOps));
    lists.collectives.assign(std::begin(kCollectives), std::end(kCollectives));
  }
  for (const std::string& name : flags_.dtypes) {
    const DType dtype = harness::parse_product_dtype(name);
    (is_f8(dtype) ? lists.f8_types : lists.dtypes).push_back(dtype);
  }
  for (const std::string& name : flags_.scales) lists.scales.push_back(harness::parse_scales(name));
  for (const std::string& name : flags_.algorithms)
    lists.algorithms.push_back(harness::parse_algorithm_flag(name));
  lists.ranks = flags_.ranks;
  for (const int ranks : lists.ranks) harness::check_ranks(ranks, "--ranks");
  const bool is_empty =
      lists.collectives.empty() && std::all_of(lists.ops.begin(), lists.ops.end(),
                                               [&](harness::Op op) { return num_cases(op, lists) == 0; });
  if (is_empty) not_supported("check: no case: sums over ranks have scales of tensors and of rows only");
  return lists;
}

void CheckCommand::check_sizes(const SweepLists& lists) const {
  std::int64_t largest = 0;
  if (!flags_.problem.empty()) largest = bytes_of_ranks(harness::parse_problem(flags_.problem));
  for (const harness::Op op : lists.ops) {
    for (const int ranks : lists.ranks) {
      for (const harness::Problem& problem : problems_of(op, lists, ranks))
        largest = std::max(largest, bytes_of_ranks(problem));
    }
  }
  check_memory_need("check", largest);
}

int CheckCommand::launch(const Invocation& invocation) {
  const Machine& machine = invocation.machine;
  const Placement first = place(machine, flags_.backend, flags_.loopback, 1);
  SweepLists lists = this->lists();
  if (machine.launched_ranks > 0 && !has_ranks()) lists.ranks = {machine.launched_ranks};
  for (const int ranks : lists.ranks)
    check_launched(machine, ranks, flags_.problem.empty() ? "--ranks" : "--problem with ranks");
  check_sizes(lists);
  fmt::print("backend {}, {} cores\n", backend_and_why(machine, first, flags_.backend, 1),
             machine.usable_cores());
  std::fflush(stdout);
  for (const int ranks : lists.ranks) {
    const Placement placement = place(machine, flags_.backend, flags_.loopback, ranks);
    collect(placement, ranks, run_job({ranks, invocation.arguments, placement, nullptr}, invocation.jobs));
  }
  return conclude(lists);
}

void CheckCommand::collect(const Placement& placement, int ranks,
                           const std::vector<nlohmann::json>& results) {
  Tally sum;
  // A case counts as run when every rank ran it, and as wrong when any rank found it wrong.
  for (const auto& [op, tally] : results[0].at("tallies").items()) {
    Tally of_op{tally.at("run"), tally.at("skipped"), 0};
    for (const auto& result : results) {
      const auto& other = result.at("tallies").at(op);
      of_op.run = std::min(of_op.run, other.at("run").get<std::int64_t>());
      of_op.skipped = std::max(of_op.skipped, other.at("skipped").get<std::int64_t>());
      of_op.wrong = std::max(of_op.wrong, other.at("wrong").get<std::int64_t>());
    }
    Tally& total = totals_[op];
    for (Tally* to : {&total, &sum}) {
      to->run += of_op.run;
      to->skipped += of_op.skipped;
      to->wrong += of_op.wrong;
    }
  }
  for (const auto& result : results) {
    for (const auto& line : result.at("wrong_lines")) wrong_lines_.push_back(line);
  }
  for (const auto& line : results[0].at("skip_reasons")) skip_reasons_.push_back(line);
  fmt::print("ranks {}{}: {} cases run, {} skipped, {} wrong\n", ranks,
             placement.loopback ? " (loopback)" : "", sum.run, sum.skipped, sum.wrong);
  std::fflush(stdout);
}

int CheckCommand::conclude(const SweepLists& lists) const {
  Tally sum;
  std::int64_t product = 0;
  for (const harness::Op op : lists.ops) {
    const Tally tally = total_of(to_string(op));
    const std::int64_t cases = flags_.problem.empty() ? num_cases(op, lists) : 1;
    fmt::print("{}: {}: {} run, {} skipped, {} wrong\n", to_string(op),
               flags_.problem.empty() ? product_in_words(op, lists) : "1 problem", tally.run, tally.skipped,
               tally.wrong);
    product += cases;
    sum.run += tally.run;
    sum.skipped += tally.skipped;
    sum.wrong += tally.wrong;
  }
  for (const CollectiveOp op : lists.collectives) {
    const Tally tally = total_of(to_string(op));
    fmt::print("{}: {}: {} run, {} skipped, {} wrong\n", to_string(op), product_in_words(op, lists),
               tally.run, tally.skipped, tally.wrong);
    product += static_cast<std::int64_t>(cases_of(op, lists).size() * lists.ranks.size());
    sum.run += tally.run;
    sum.skipped += tally.skipped;
    sum.wrong += tally.wrong;
  }
  constexpr std::size_t kMostLines = 10;
  for (std::size_t i = 0; i < std::min(kMostLines, skip_reasons_.size()); ++i) {
    fmt::print("skipped: {}\n", skip_reasons_[i]);
  }
  for (std::size_t i = 0; i < std::min(kMostLines, wrong_lines_.size()); ++i)
    fmt::print("wrong: {}\n", wrong_lines_[i]);
  const bool complete = sum.run + sum.skipped == product;
  fmt::print("total: {} cases run, {} skipped, of {}; {} wrong\n", sum.run, sum.skipped, product, sum.wrong);
  if (!wrong_lines_.empty()) {
    throw Failure(kFailed,
                  Error(ErrorCode::kNumeric, fmt::format("check: {} of {} cases are wrong; first: {}",
                                                         sum.wrong, sum.run, wrong_lines_[0])));
  }
  if (sum.run == 0 && !skip_reasons_.empty()) {
    not_supported(fmt::format("check: none of the {} cases can run here; {}", product, skip_reasons_[0]));
  }
  if (!complete) {
    throw Failure(kFailed,
                  Error(ErrorCode::kInternal, fmt::format("check: {} cases run and {} skipped, but the lists "
                                                          "make {}",
                                                          sum.run, sum.skipped, product)));
  }
  return kOk;
}

nlohmann::json CheckCommand::run_rank(const RankContext& context, const Config& config) {
  Config own = config;
  own.nan_check = own.nan_check || flags_.nan_check;
  const Session session(context, own, "check");
  CaseRunner runner(session, flags_.is_in_step);
  const SweepLists lists = this->lists();
  if (!flags_.problem.empty()) {
    runner.run(harness::parse_problem(flags_.problem), lists.algorithms);
    return runner.result();
  }
  for (const harness::Op op : lists.ops) {
    for (const harness::Problem& problem : problems_of(op, lists, context.size))
      runner.run(problem, lists.algorithms);
  }
  for (const CollectiveOp op : lists.collectives) {
    for (const CollectiveCase& c : cases_of(op, lists)) runner.run(c);
  }
  return runner.result();
}

}  // namespace

std::unique_ptr<Command> make_check() {
  return std::make_unique<CheckCommand>();
}

}  // namespace tandem::cli
