#include "rank_job.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>

#include "backend/for_tools.hpp"
#include "base/threads_together.hpp"
#include "failure.hpp"
#include "job_results.hpp"
#include "launch.hpp"
#include "loopback_store.hpp"
#include "stopped_ranks.hpp"

namespace tandem::cli {
namespace {

constexpr const char* kSizeKey = "size";

/// A value of a store may not be larger.
constexpr std::size_t kPartBytes = std::size_t{32} << 10;

std::string result_key(int rank) {
  return fmt::format("result/{}", rank);
}

std::string part_key(const std::string& key, std::size_t part) {
  return fmt::format("{}/{}", key, part);
}

Store::Bytes to_bytes(const nlohmann::json& value) {
  const std::string text = value.dump();
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

nlohmann::json from_bytes(const Store::Bytes& bytes) {
  const auto* text = reinterpret_cast<const char*>(bytes.data());
  return nlohmann::json::parse(text, text + bytes.size());
}

Deadline soon() {
  return Deadline::after(std::chrono::seconds(10));
}

}  // namespace

namespace {

Result<JobOutcome> wait_for(Job& job, int num_processes) {
  std::vector<pid_t> processes;
  for (int rank = 0; rank < num_processes; ++rank) processes.push_back(job.pid(rank));
  const StoppedRanks look(std::move(processes));
  return job.wait(Deadline::never());
}

/// Throws what ended a job badly.
void check_outcome(const JobOutcome& ended, const Interrupts& interrupts) {
  const auto status = ended.status();
  if (status) return;
  if (ended.first_failed >= 0) {
    // A terminal's and a shell's signals reach the ranks too, perhaps first.
    const int signal = ended.ranks[static_cast<std::size_t>(ended.first_failed)].signal;
    if (signal == SIGTERM || signal == SIGHUP) interrupts.check_soon();
    // Nobody reads what they print: that ends this process too, in the same way.
    if (signal == SIGPIPE) ::raise(SIGPIPE);
  }
  const Error& error = status.error();
  throw Failure(exit_code_of(error),
                Error(error.code(), fmt::format("rank {}: {}", ended.first_failed, error.to_string())));
}

}  // namespace

void prepare_job(Store& store, const JobRequest& request) {
  send_placement(store, request.placement);
  Tracing::ask(store, request.tracing != nullptr);
  send_to_ranks(store, kSizeKey, request.ranks);
  if (request.results != nullptr) request.results->publish(store);
  if (request.prepare) request.prepare(store);
}

bool has_result(Store& store, int rank) {
  return store.get(result_key(rank), Deadline::after(std::chrono::nanoseconds(0))).has_value();
}

std::vector<nlohmann::json> collect_results(Store& store, const JobRequest& request) {
  std::vector<nlohmann::json> results;
  results.reserve(static_cast<std::size_t>(request.ranks));
  for (int rank = 0; rank < request.ranks; ++rank) {
    // All have ended: what is not there will not come.
    if (!has_result(store, rank)) {
      throw Failure(kFailed,
                    Error(ErrorCode::kPeerLost,
                          fmt::format("rank {} ended with exit code 0, but without a result", rank)));
    }
    results.push_back(from_bytes(get_large(store, result_key(rank))));
  }
  if (request.tracing != nullptr) request.tracing->collect(store);
  if (request.results != nullptr) request.results->collect(store);
  return results;
}

std::vector<nlohmann::json> run_job(const JobRequest& request, const JobMeans& means) {
  if (means.launch != nullptr) return means.launch->run(request);
  Interrupts& interrupts = means.interrupts;
  const Interrupts::Orderly orderly(interrupts);
  LaunchOptions options;
  options.ranks = request.placement.loopback ? 1 : request.ranks;
  options.arguments = request.arguments;
  const auto job = take(Job::start(options));
  interrupts.on_signal([&] {
    for (int rank = 0; rank < options.ranks; ++rank) ::kill(job->pid(rank), SIGKILL);
  });
  prepare_job(job->store(), request);
  const auto outcome = wait_for(*job, options.ranks);
  interrupts.on_signal(nullptr);  // their numbers may be other processes' from here on
  interrupts.check();
  check_outcome(take(outcome), interrupts);
  std::vector<nlohmann::json> results = collect_results(job->store(), request);
  interrupts.check();
  return results;
}

void set_large(Store& store, const std::string& key, std::span<const std::byte> bytes) {
  const std::size_t num_parts = (bytes.size() + kPartBytes - 1) / kPartBytes;
  for (std::size_t part = 0; part < num_parts; ++part) {
    const auto begin = bytes.subspan(part * kPartBytes);
    take(store.set(part_key(key, part), begin.first(std::min(kPartBytes, begin.size()))));
  }
  send_to_ranks(store, key, num_parts);
}

Store::Bytes get_large(Store& store, const std::string& key) {
  const std::size_t num_parts = from_store(store, key);
  Store::Bytes whole;
  for (std::size_t part = 0; part < num_parts; ++part) {
    const Store::Bytes bytes = take(store.get(part_key(key, part), soon()));
    whole.insert(whole.end(), bytes.begin(), bytes.end());
  }
  return whole;
}

void publish_result(const RankContext& context, const nlohmann::json& result) {
  set_large(*context.store, result_key(context.rank), to_bytes(result));
}

void send_to_ranks(Store& store, const std::string& key, const nlohmann::json& value) {
  take(store.set(key, to_bytes(value)));
}

nlohmann::json from_store(Store& store, const std::string& key, Deadline deadline) {
  return from_bytes(take(store.get(key, deadline)));
}

nlohmann::json from_store(Store& store, const std::string& key) {
  return from_store(store, key, soon());
}

nlohmann::json receive(const RankContext& context, const std::string& key) {
  return from_store(*context.store, key);
}

std::optional<Failure> work_and_publish(const RankContext& context,
                                        const std::function<nlohmann::json(const RankContext&)>& work) {
  try {
    publish_result(context, work(context));
    return std::nullopt;
  } catch (const Failure& failure) {
    return failure;
  } catch (const std::bad_alloc& lack) {
    return out_of_memory(lack);
  } catch (const std::exception& error) {
    return Failure(kFailed, Error(ErrorCode::kInternal, error.what()));
  }
}

namespace {

/// `process` is the one that the launcher knows: a failure is reported as its own.
int work_as_rank(const RankContext& process, const RankContext& context,
                 const std::function<nlohmann::json(const RankContext&)>& work,
                 std::atomic<bool>& is_reported) {
  const auto failure = work_and_publish(context, work);
  if (!failure) return kOk;
  if (!is_reported.exchange(true)) report_failure(process, failure->error());
  return failure->exit_code();
}

}  // namespace

int work_as_ranks(const RankContext& process, const std::function<nlohmann::json(const RankContext&)>& work) {
  std::atomic<bool> is_reported{false};
  if (!receive_placement(process).loopback) return work_as_rank(process, process, work, is_reported);
  const int size = receive(process, kSizeKey);
  prepare_shared_gpu();
  const auto store = std::make_shared<LoopbackStore>(make_in_process_store(), process.store);
  std::vector<int> exit_codes(static_cast<std::size_t>(size), kOk);
  ThreadsTogether threads;
  for (int rank = 0; rank < size; ++rank) {
    const auto made = threads.add(fmt::format("rank {} of {}", rank, size), [&, rank] {
      exit_codes[static_cast<std::size_t>(rank)] =
          work_as_rank(process, {rank, size, store, rank}, work, is_reported);
    });
    if (made) continue;
    report_failure(process, made.error());
    return kFailed;
  }
  threads.run();
  return *std::max_element(exit_codes.begin(), exit_codes.end());
}

}  // namespace tandem::cli
