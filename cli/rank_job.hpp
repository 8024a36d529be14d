#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <tandem/bootstrap/launcher.hpp>
#include <vector>

#include "failure.hpp"
#include "interrupts.hpp"
#include "placement.hpp"
#include "tracing.hpp"

namespace tandem::cli {

class GatheredResults;

/// A job of this program: W ranks with the arguments of the launcher, which parse them again.
struct JobRequest {
  int ranks = 1;
  std::vector<std::string> arguments;
  Placement placement;
  /// Puts what the ranks ask for into the store.
  std::function<void(Store&)> prepare;
  /// Gets what the ranks' timelines tell; null: they have none.
  Tracing* tracing = nullptr;
  /// Gets what the ranks hand in; null: that is nothing.
  const GatheredResults* results = nullptr;
};

class Launch;

/// What run_job() needs besides: who ends the ranks at a signal, and which processes they are.
struct JobMeans {
  Interrupts& interrupts;
  Launch* launch = nullptr;  ///< the processes that another program has started; null: run_job() starts some
};

/// Runs it and returns what each rank published, in rank order. Throws the first failing rank's error.
std::vector<nlohmann::json> run_job(const JobRequest& request, const JobMeans& means);

// Its parts, for a Launch.

/// Before the ranks begin: puts into the store what they will ask for.
void prepare_job(Store& store, const JobRequest& request);
/// In a rank: publishes what `work` returns. Returns what it throws.
[[nodiscard]] std::optional<Failure> work_and_publish(
    const RankContext& context, const std::function<nlohmann::json(const RankContext&)>& work);
[[nodiscard]] bool has_result(Store& store, int rank);
/// Once all ranks have ended well.
[[nodiscard]] std::vector<nlohmann::json> collect_results(Store& store, const JobRequest& request);

/// In a rank: hands `result` to the launcher.
void publish_result(const RankContext& context, const nlohmann::json& result);

// Small values from the launcher to the ranks.
void send_to_ranks(Store& store, const std::string& key, const nlohmann::json& value);
[[nodiscard]] nlohmann::json receive(const RankContext& context, const std::string& key);
/// In the launcher: such a value of a rank.
[[nodiscard]] nlohmann::json from_store(Store& store, const std::string& key);
[[nodiscard]] nlohmann::json from_store(Store& store, const std::string& key, Deadline deadline);

// Bytes of any number, which a store keeps in parts.
void set_large(Store& store, const std::string& key, std::span<const std::byte> bytes);
[[nodiscard]] Store::Bytes get_large(Store& store, const std::string& key);

/// What a process of a job does: `work` once, or once for each rank of a loopback job, on threads of their
/// own. Returns the exit code; the first failure is reported to the launcher.
[[nodiscard]] int work_as_ranks(const RankContext& process,
                                const std::function<nlohmann::json(const RankContext&)>& work);

}  // namespace tandem::cli
