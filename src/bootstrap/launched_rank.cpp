#include <algorithm>
#include <charconv>
#include <cstdint>
#include <tandem/bootstrap/launched.hpp>
#include <vector>

#include "base/environment.hpp"
#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem {
namespace {

constexpr std::string_view kWithout = "or set TANDEM_LAUNCHER=none to run without the launcher";

/// The variables that name a number of one process; none of them is optional.
struct PlaceVariables {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr PlaceVariables kOpenMpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr PlaceVariables kMpich = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr PlaceVariables kTorchrun = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

/// Reads the variables of one launcher.
class Reader {
 public:
  Reader(const GetVariable& get, const char* launcher) : get_(get), launcher_(launcher) {}

  [[nodiscard]] bool has(const char* name) const { return get_(name).has_value(); }

  [[nodiscard]] Result<int> number(const char* name, int smallest) const {
    const auto text = get_(name);
    if (!text) {
      return failf(ErrorCode::kInvalidArgument,
                   "{} is not set, though other variables of {} are: start the process by {}, {}", name,
                   launcher_, launcher_, kWithout);
    }
    constexpr int kMost = 1 << 20;
    int value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value < smallest || value > kMost) {
      return failf(ErrorCode::kInvalidArgument,
                   "{}='{}': need a whole number from {} to {}, as {} sets it, {}", name, *text, smallest,
                   kMost, launcher_, kWithout);
    }
    return value;
  }

  /// "NAME=value", for those that are set.
  [[nodiscard]] std::string job_of(std::initializer_list<const char*> names) const {
    std::string job;
    for (const char* name : names) {
      if (const auto value = get_(name)) job += fmt::format("{}{}={}", job.empty() ? "" : " ", name, *value);
    }
    return job;
  }

  [[nodiscard]] Result<LaunchedRank> place(const PlaceVariables& names) const {
    LaunchedRank place;
    place.launcher = launcher_;
    TANDEM_ASSIGN(place.rank, number(names.rank, 0));
    TANDEM_ASSIGN(place.size, number(names.size, 1));
    TANDEM_ASSIGN(place.local_rank, number(names.local_rank, 0));
    TANDEM_ASSIGN(place.local_size, number(names.local_size, 1));
    TANDEM_TRY(check(place, names));
    return place;
  }

  [[nodiscard]] Result<void> check(const LaunchedRank& place, const PlaceVariables& names) const {
    const auto contradict = [&](const char* name, int value, const char* other, int other_value,
                                const char* need) {
      return failf(ErrorCode::kInvalidArgument,
                   "{}={} and {}={} contradict each other, need {}: correct one, {}", name, value, other,
                   other_value, need, kWithout);
    };
    if (place.rank >= place.size)
      return contradict(names.rank, place.rank, names.size, place.size, "rank < size");
    if (place.local_size > place.size)
      return contradict(names.local_size, place.local_size, names.size, place.size, "local size <= size");
    if (place.local_rank >= place.local_size) {
      return contradict(names.local_rank, place.local_rank, names.local_size, place.local_size,
                        "local rank < local size");
    }
    return {};
  }

 private:
  const GetVariable& get_;
  const char* launcher_;
};

using Found = Result<std::optional<LaunchedRank>>;

Found find_open_mpi(const Reader& reader) {
  if (!reader.has(kOpenMpi.rank) && !reader.has(kOpenMpi.size)) return std::nullopt;
  TANDEM_ASSIGN(LaunchedRank found, reader.place(kOpenMpi));
  found.job = reader.job_of({"PMIX_NAMESPACE"});
  if (found.job.empty()) found.job = reader.job_of({"OMPI_MCA_ess_base_jobid"});
  return std::optional(std::move(found));
}

/// Slurm sets PMI_RANK and PMI_SIZE too (srun --mpi=pmi2), without the place on the host.
Found find_mpich(const Reader& reader) {
  if (!reader.has(kMpich.rank) && !reader.has(kMpich.size)) return std::nullopt;
  const bool has_place = reader.has(kMpich.local_rank) || reader.has(kMpich.local_size);
  if (!has_place && reader.has("SLURM_STEP_ID")) return std::nullopt;
  TANDEM_ASSIGN(LaunchedRank found, reader.place(kMpich));
  found.job = reader.job_of({"PMI_JOBID"});
  return std::optional(std::move(found));
}

/// Other programs have variables of such names as well: RANK alone is none of torchrun's.
Found find_torchrun(const Reader& reader) {
  const bool has_both = reader.has(kTorchrun.rank) && reader.has(kTorchrun.size);
  if (!has_both && !reader.has("TORCHELASTIC_RUN_ID")) return std::nullopt;
  TANDEM_ASSIGN(LaunchedRank found, reader.place(kTorchrun));
  found.job =
      reader.job_of({"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"});
  return std::optional(std::move(found));
}

/// The tasks of each host from Slurm's short form: "2(x3),1" is 2, 2, 2, 1. Nothing if it is malformed.
std::optional<std::vector<int>> parse_tasks_per_node(std::string_view text) {
  std::vector<int> tasks;
  const auto take_number = [&](int& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return error == std::errc() && number >= 1 && number <= (1 << 20);
  };
  for (;;) {
    int number = 0;
    int times = 1;
    if (!take_number(number)) return std::nullopt;
    if (text.starts_with("(x")) {
      text.remove_prefix(2);
      if (!take_number(times) || !text.starts_with(")")) return std::nullopt;
      text.remove_prefix(1);
    }
    if (tasks.size() + static_cast<std::size_t>(times) > (1U << 20)) return std::nullopt;
    tasks.insert(tasks.end(), static_cast<std::size_t>(times), number);
    if (text.empty()) return tasks;
    if (text.front() != ',') return std::nullopt;
    text.remove_prefix(1);
  }
}

/// The number of tasks of a step on this host.
Result<int> slurm_local_size(const Reader& reader, const GetVariable& get, const char* size_name, int size) {
  const char* const name =
      reader.has("SLURM_STEP_TASKS_PER_NODE") ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  const auto text = get(name);
  if (!text) return reader.number(name, 1);  // the error of one that is missing
  const auto tasks = parse_tasks_per_node(*text);
  if (!tasks) {
    return failf(ErrorCode::kInvalidArgument, "{}='{}': need tasks of each host, such as 2(x3),1, {}", name,
                 *text, kWithout);
  }
  std::int64_t sum = 0;
  for (const int of_host : *tasks) sum += of_host;
  if (sum != size) {
    return failf(ErrorCode::kInvalidArgument,
                 "{}={} and {}={} contradict each other, need the same number of tasks: correct one, {}",
                 name, *text, size_name, size, kWithout);
  }
  if (tasks->size() == 1) return tasks->front();
  TANDEM_ASSIGN(const int host, reader.number("SLURM_NODEID", 0));
  if (static_cast<std::size_t>(host) >= tasks->size()) {
    return failf(ErrorCode::kInvalidArgument,
                 "SLURM_NODEID={} and {}={} contradict each other, need a host below {}: correct one, {}",
                 host, name, *text, tasks->size(), kWithout);
  }
  return (*tasks)[static_cast<std::size_t>(host)];
}

Found find_slurm(const Reader& reader, const GetVariable& get) {
  const auto step = get("SLURM_STEP_ID");
  if (!step || !reader.has("SLURM_PROCID") || reader.has("SLURM_PTY_PORT")) return std::nullopt;
  // The steps that run the script of sbatch and the shell of salloc have numbers near 2^32.
  constexpr std::uint64_t kFirstSpecial = 4'294'967'280;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(step->data(), step->data() + step->size(), number);
  if (error != std::errc() || end != step->data() + step->size()) {
    return failf(ErrorCode::kInvalidArgument, "SLURM_STEP_ID='{}': need a whole number, as Slurm sets it, {}",
                 *step, kWithout);
  }
  if (number >= kFirstSpecial) return std::nullopt;
  const char* const size_name = reader.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  LaunchedRank found;
  found.launcher = "Slurm";
  TANDEM_ASSIGN(found.rank, reader.number("SLURM_PROCID", 0));
  TANDEM_ASSIGN(found.size, reader.number(size_name, 1));
  TANDEM_ASSIGN(found.local_rank, reader.number("SLURM_LOCALID", 0));
  TANDEM_ASSIGN(found.local_size, slurm_local_size(reader, get, size_name, found.size));
  TANDEM_TRY(reader.check(found, {"SLURM_PROCID", size_name, "SLURM_LOCALID", "SLURM_TASKS_PER_NODE"}));
  found.job = reader.job_of({"SLURM_JOB_ID", "SLURM_STEP_ID"});
  return std::optional(std::move(found));
}

/// The one of two launchers that both say something. Slurm may have started the other one.
Result<LaunchedRank> choose(LaunchedRank first, const LaunchedRank& second) {
  const bool agree = first.rank == second.rank && first.size == second.size;
  if (agree || second.launcher == "Slurm") return first;
  return failf(
      ErrorCode::kInvalidArgument,
      "{} says rank {} of {}, {} says rank {} of {}: set TANDEM_LAUNCHER to openmpi, mpich or torchrun "
      "to name the one that counts, {}",
      first.launcher, first.rank, first.size, second.launcher, second.rank, second.size, kWithout);
}

}  // namespace

Result<std::optional<LaunchedRank>> launched_rank(const GetVariable& get) {
  const std::string only = get("TANDEM_LAUNCHER").value_or("");
  if (only == "none") return std::nullopt;
  // The launcher whose name for a launch tells most is first.
  struct Candidate {
    const char* name;
    std::function<Found()> find;
  };
  const std::vector<Candidate> candidates = {{"openmpi",
                                              [&] {
                                                return find_open_mpi({get, "Open MPI"});
                                              }},
                                             {"mpich",
                                              [&] {
                                                return find_mpich({get, "MPICH"});
                                              }},
                                             {"torchrun",
                                              [&] {
                                                return find_torchrun({get, "torchrun"});
                                              }},
                                             {"slurm", [&] {
                                                return find_slurm({get, "Slurm"}, get);
                                              }}};
  const bool is_known = only.empty() || std::any_of(candidates.begin(), candidates.end(),
                                                    [&](const Candidate& one) { return only == one.name; });
  if (!is_known) {
    return failf(ErrorCode::kInvalidArgument,
                 "TANDEM_LAUNCHER='{}': need none, openmpi, mpich, torchrun or slurm", only);
  }
  std::optional<LaunchedRank> chosen;
  for (const Candidate& candidate : candidates) {
    if (!only.empty() && only != candidate.name) continue;
    TANDEM_ASSIGN(auto found, candidate.find());
    if (!found) continue;
    if (!chosen) {
      chosen = std::move(found);
      continue;
    }
    TANDEM_ASSIGN(chosen, choose(*std::move(chosen), *found));
  }
  if (!chosen && !only.empty()) {
    return failf(
        ErrorCode::kInvalidArgument,
        "TANDEM_LAUNCHER='{}', but this launcher has set no variables: start the process by it, or unset "
        "TANDEM_LAUNCHER",
        only);
  }
  if (const auto job = get("TANDEM_JOB"); chosen && job) chosen->job = fmt::format("TANDEM_JOB={}", *job);
  return chosen;
}

Result<std::optional<LaunchedRank>> launched_rank() {
  return launched_rank(environment_variable);
}

}  // namespace tandem
