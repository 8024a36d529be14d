#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <tandem/tandem.hpp>
#include <vector>

namespace tandem::bench {

/// What a program starts as ranks of itself.
struct LaunchedRanks {
  const char* program;
  int ranks = 2;
  std::chrono::minutes longest{5};
  const char* refusal = nullptr;  ///< of the arguments; null if they are fine
  std::function<Result<void>(const RankContext&)> run_rank;
};

/// A program's own arguments, numbers all.
class Numbers {
 public:
  Numbers(int argc, char** argv) : arguments_(argv + 1, argv + argc) {}
  /// Number i from 0, or `otherwise` if there are fewer.
  [[nodiscard]] int at(std::size_t i, int otherwise) const {
    return i < arguments_.size() ? std::atoi(arguments_[i].c_str()) : otherwise;
  }
  [[nodiscard]] const std::vector<std::string>& texts() const { return arguments_; }

 private:
  std::vector<std::string> arguments_;
};

/// All of main(): this process is a rank that was launched, or it launches them with its own arguments.
/// `make(Numbers)` returns LaunchedRanks, on the ranks as well. Returns the exit status.
template <class Make>
int run_launched(int argc, char** argv, Make make) {
  const auto context = join_job(argc, argv);  // takes what the launcher added away
  const Numbers numbers(argc, argv);
  const LaunchedRanks what = make(numbers);
  const auto fail_with = [&](const Error& error) {
    std::fprintf(stderr, "%s: %s\n", what.program, error.to_string().c_str());
    return 1;
  };
  if (!context) return fail_with(context.error());
  if (*context) {
    const auto ran = what.run_rank(**context);
    if (ran) return 0;
    report_failure(**context, ran.error());
    return 1;
  }
  if (what.refusal != nullptr) {
    std::fprintf(stderr, "%s\n", what.refusal);
    return 2;
  }
  LaunchOptions options;
  options.ranks = what.ranks;
  options.arguments = numbers.texts();
  auto job = Job::start(options);
  if (!job) return fail_with(job.error());
  const auto outcome = (*job)->wait(Deadline::after(what.longest));
  if (!outcome) return fail_with(outcome.error());
  if (const auto status = outcome->status(); !status) return fail_with(status.error());
  return 0;
}

}  // namespace tandem::bench
