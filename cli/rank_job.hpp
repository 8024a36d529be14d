#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <tandem/bootstrap/launcher.hpp>
#include <vector>

#include "placement.hpp"

namespace tandem::cli {

/// While one exists, ^C and SIGTERM end the ranks of the running job instead of this process at once; the
/// command then ends with exit 130 (or 143) when it asks. Make it before other threads exist.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  /// `end` is called, from another thread, when a signal arrives; null takes it back.
  void on_signal(std::function<void()> end);
  /// From here on a signal ends this process at once, with that exit code: there are no ranks to end first.
  void end_process();
  /// Throws the Failure that a signal asks for, if one came.
  void check() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// A job of this program: W ranks with the arguments of the launcher, which parse them again.
struct JobRequest {
  int ranks = 1;
  std::vector<std::string> arguments;
  Placement placement;
  /// Puts what the ranks ask for into the store.
  std::function<void(Store&)> prepare;
};

/// Runs it and returns what each rank published, in rank order. Throws the first failing rank's error.
std::vector<nlohmann::json> run_job(const JobRequest& request, Interrupts& interrupts);

/// In a rank: hands `result` to the launcher.
void publish_result(const RankContext& context, const nlohmann::json& result);

// Small values from the launcher to the ranks.
void send_to_ranks(Store& store, const std::string& key, const nlohmann::json& value);
[[nodiscard]] nlohmann::json receive(const RankContext& context, const std::string& key);

/// What a process of a job does: `work` once, or once for each rank of a loopback job, on threads of their
/// own. Returns the exit code; the first failure is reported to the launcher.
[[nodiscard]] int work_as_ranks(const RankContext& process,
                                const std::function<nlohmann::json(const RankContext&)>& work);

}  // namespace tandem::cli
