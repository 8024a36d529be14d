#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <tandem/base/time_text.hpp>
#include <tandem/cost/folder.hpp>
#include <tandem/cost/table.hpp>

#include "bench_row.hpp"
#include "command.hpp"
#include "explain.hpp"
#include "failure.hpp"
#include "harness/stopwatch.hpp"
#include "measure_flags.hpp"
#include "memory_need.hpp"
#include "outputs.hpp"
#include "timing.hpp"
#include "version.hpp"

namespace tandem::cli {
namespace {

constexpr const char* kProblemKey = "tune/problem";
/// In the order of the columns.
constexpr Algorithm kCandidates[] = {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative};

struct TuneFlags {
  std::string op;
  std::string folder;
  bool explain = false;
  MeasureFlags measure;
};

class TuneCommand : public Command {
 public:
  void define(CLI::App& app) override;
  int launch(const Invocation& invocation) override;
  nlohmann::json run_rank(const RankContext& context, const Config& config) override;

 private:
  [[nodiscard]] std::vector<harness::Problem> problems(int ranks, bool on_gpus) const;
  void print_row(const harness::Problem& problem, const cost::Row& row) const;

  TuneFlags flags_;
};

void TuneCommand::define(CLI::App& app) {
  app.add_option("op", flags_.op, harness::names_of_ops() + "; default: all");
  app.add_option("--folder", flags_.folder,
                 "where the table is; default: TANDEM_TUNE_FOLDER or the user's cache")
      ->type_name("DIR");
  app.add_flag("--explain", flags_.explain, "show what was predicted, and what had been measured before");
  flags_.measure.define(app);
}

std::vector<harness::Problem> TuneCommand::problems(int ranks, bool on_gpus) const {
  std::vector<harness::Problem> all;
  for (const harness::Op op : harness::kOps) {
    if (!flags_.op.empty() && harness::parse_op(flags_.op) != op) continue;
    for (const harness::Problem& problem : flags_.measure.problems(op, ranks, on_gpus))
      all.push_back(problem);
  }
  return all;
}

void TuneCommand::print_row(const harness::Problem& problem, const cost::Row& row) const {
  const harness::ProductSizes product = product_of_a_rank(problem);
  const auto fastest = std::min_element(row.us.begin(), row.us.end(),
                                        [](const auto& x, const auto& y) { return x.second < y.second; });
  fmt::print("  {:>21} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>3}", to_string(problem.op), product.m,
             product.n, product.k, to_string(problem.dtype),
             problem.is_scaled() ? to_string(problem.scales) : "-",
             problem.b_is_column_major ? "column" : "row", problem.ranks);
  for (const Algorithm algorithm : kCandidates) {
    const auto us = row.us.find(to_string(algorithm));
    fmt::print(" {:>10}", us == row.us.end() ? "-" : time_text(us->second));
  }
  fmt::print(" {:>10}\n", fastest->first);
  std::fflush(stdout);
}

/// What the ranks measured, for the table. Throws exit 1 for a wrong result: it has no time.
cost::Table table_of(const harness::Problem& problem, const std::vector<nlohmann::json>& results) {
  for (std::size_t r = 0; r < results.size(); ++r) {
    if (results[r].at("wrong") == 0) continue;
    throw Failure(kFailed,
                  Error(ErrorCode::kNumeric,
                        fmt::format("tune: wrong result: --problem {}: rank {}: {}", to_line(problem), r,
                                    results[r].at("first_wrong").get<std::string>())));
  }
  cost::Table table = take(cost::parse_table(results[0].at("table").get<std::string>()));
  for (auto& [algorithm, us] : table.rows[0].us)
    us = harness::median(slowest_rank(results, "/times/" + algorithm));
  return table;
}

cost::Written add_to(const std::filesystem::path& folder, const cost::Table& table) {
  const Writing writing((folder / cost::file_name_of(table.device)).native());
  cost::Written written = take(cost::add_rows(folder, table.device, table.rows));
  writing.kept_row();
  return written;
}

int TuneCommand::launch(const Invocation& invocation) {
  const JobPlace place = flags_.measure.job.choose(invocation.machine);
  flags_.measure.check();
  if (place.placement.loopback)
    not_supported("tune: ranks that share a GPU take turns there; give each rank a GPU, or --backend cpu");
  if (flags_.measure.b_orders.size() > 1)
    bad_input("tune --b-order: a table keeps times of one order of b: name one");
  const std::vector<harness::Problem> problems =
      this->problems(place.ranks, place.placement.kind == DeviceKind::kCuda);
  for (const harness::Problem& problem : problems)
    check_memory_need(fmt::format("tune on {} ranks", place.ranks), bytes_of_ranks(problem));
  const std::string folder = flags_.folder.empty() ? invocation.config.tune_folder : flags_.folder;
  if (folder.empty()) bad_input("tune: no folder for the table: give --folder, or set TANDEM_TUNE_FOLDER");
  take(cost::check_folder(folder));  // before minutes are spent on what could not be kept
  flags_.measure.print_heading(invocation, place);
  fmt::print("# {:>21} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>3}", "op", "m", "n", "k", "dtype", "scales",
             "b", "W");
  for (const Algorithm algorithm : kCandidates) fmt::print(" {:>10}", to_string(algorithm));
  fmt::print(" {:>10}\n", "fastest");
  std::string file;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const auto tell_problem = [&](Store& store) { send_to_ranks(store, kProblemKey, i); };
    const auto results =
        run_job({place.ranks, invocation.arguments, place.placement, tell_problem}, invocation.jobs);
    cost::Table table = table_of(problems[i], results);
    table.rows[0].command = fmt::format("tandem {}", fmt::join(invocation.arguments, " "));
    table.rows[0].commit = kCommit;
    print_row(problems[i], table.rows[0]);
    if (flags_.explain) print_candidates(results[0].at("report"));
    // At once: what was measured stays when the rest is interrupted.
    const cost::Written written = add_to(folder, table);
    if (!written.warning.empty()) fmt::print("# {}\n", written.warning);
    file = written.file.native();
  }
  fmt::print("# {}: {} rows taken in\n", file, problems.size());
  return kOk;
}

nlohmann::json TuneCommand::run_rank(const RankContext& context, const Config& config) {
  Config own = flags_.measure.job.config_of(config);
  own.link_delay = flags_.measure.link_of(config);
  if (!flags_.folder.empty()) own.tune_folder = flags_.folder;
  const Session session(context, own, "tune");
  const auto idx = receive(context, kProblemKey).get<std::size_t>();
  const harness::Problem problem = problems(context.size, session.placement().kind == DeviceKind::kCuda)[idx];
  return measure_algorithms(problem, flags_.measure.counts, session);
}

}  // namespace

std::unique_ptr<Command> make_tune() {
  return std::make_unique<TuneCommand>();
}

}  // namespace tandem::cli
