#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <tandem/bootstrap/launched.hpp>
#include <vector>

#include "rank_job.hpp"

namespace tandem::cli {

// A command whose ranks are processes that mpirun, torchrun or srun has started. All have the same command
// line. Rank 0 does what the launcher of a job does elsewhere, and the work of its own rank on a thread
// beside it. The others do what rank 0 announces, one job after the other, and end with its exit code. They
// print nothing, unless rank 0 is lost.

/// Whether such a command line is for all processes. Rank 0 does all else alone, such as `doctor` and --help.
[[nodiscard]] bool is_for_all_ranks(const std::vector<std::string>& words);
/// The exit code of the other ranks where rank 0 does the command alone. Rank 0 says what is wrong with one
/// that is not known.
[[nodiscard]] int exit_code_without_work(const std::vector<std::string>& words);

using RankWork = std::function<nlohmann::json(const RankContext&)>;

/// The launch, in rank 0.
class Launch {
 public:
  /// `arguments`: rank 0's. The others compare them with theirs.
  Launch(RankContext self, const std::vector<std::string>& arguments, RankWork work);
  /// Lets the others end as failed, if end() was not called.
  ~Launch();
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  /// Runs a job on all processes and returns what each rank published, in rank order. A signal ends this
  /// process meanwhile, and the others with it. Throws the error of the rank that failed first.
  std::vector<nlohmann::json> run(const JobRequest& request);
  /// Tells the others to end with this code, and waits a moment for them: the store is this process's.
  void end(int exit_code);

 private:
  void announce(const nlohmann::json& what);
  /// Returns when all other ranks have a result, or some have failed.
  void await_others(Store& store) const;
  void check(const std::optional<Failure>& own) const;

  RankContext self_;
  RankWork work_;
  int num_announced_ = 0;
  bool has_ended_ = false;
};

/// What a process of the launch other than rank 0 does. Returns its exit code. Throws if rank 0 is lost.
[[nodiscard]] int follow_launch(const RankContext& self, const std::vector<std::string>& arguments,
                                const RankWork& work);

}  // namespace tandem::cli
