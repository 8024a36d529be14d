#include "rank_job.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "backend/for_tools.hpp"
#include "failure.hpp"
#include "loopback_store.hpp"

namespace tandem::cli {
namespace {

// Sent to the own process to end the signal thread; never sent by a user.
constexpr int kStopSignal = SIGUSR2;

sigset_t awaited_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, kStopSignal}) sigaddset(&set, signal);
  return set;
}

constexpr const char* kSizeKey = "size";

/// A result of any size is a number of parts, each no larger than a value of a store may be.
constexpr std::size_t kPartBytes = std::size_t{32} << 10;

std::string result_key(int rank) {
  return fmt::format("result/{}", rank);
}

std::string part_key(int rank, std::size_t part) {
  return fmt::format("result/{}/{}", rank, part);
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

nlohmann::json result_of(Store& store, int rank) {
  const std::size_t num_parts = from_bytes(take(store.get(result_key(rank), soon())));
  Store::Bytes whole;
  for (std::size_t part = 0; part < num_parts; ++part) {
    const Store::Bytes bytes = take(store.get(part_key(rank, part), soon()));
    whole.insert(whole.end(), bytes.begin(), bytes.end());
  }
  return from_bytes(whole);
}

}  // namespace

class Interrupts::Impl {
 public:
  Impl() : set_(awaited_signals()) {
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    thread_ = std::thread([this] { wait_for_signals(); });
  }
  ~Impl() {
    stopping_ = true;
    pthread_kill(thread_.native_handle(), kStopSignal);
    thread_.join();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  void on_signal(std::function<void()> end) {
    const std::lock_guard lock(mutex_);
    end_ = std::move(end);
    if (end_ && signal_ != 0) end_();
  }
  [[nodiscard]] int signal() const { return signal_; }

 private:
  void wait_for_signals() {
    for (;;) {
      int signal = 0;
      sigwait(&set_, &signal);
      if (signal == kStopSignal && stopping_) return;
      if (signal == kStopSignal) continue;
      const std::lock_guard lock(mutex_);
      signal_ = signal;
      if (end_) end_();
    }
  }

  sigset_t set_;
  sigset_t before_{};
  std::mutex mutex_;
  std::function<void()> end_;
  std::atomic<int> signal_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

Interrupts::Interrupts() : impl_(std::make_unique<Impl>()) {}
Interrupts::~Interrupts() = default;

void Interrupts::on_signal(std::function<void()> end) {
  impl_->on_signal(std::move(end));
}

void Interrupts::end_process() {
  on_signal([this] {
    try {
      check();
    } catch (const Failure& failure) {
      fmt::print(stderr, "tandem: {}\n", failure.error().text());
      std::_Exit(failure.exit_code());
    }
  });
}

void Interrupts::check() const {
  const int signal = impl_->signal();
  if (signal == 0) return;
  throw Failure(
      kInterrupted + signal,
      Error(ErrorCode::kPeerLost, fmt::format("interrupted by signal {}; nothing was written", signal)));
}

std::vector<nlohmann::json> run_job(const JobRequest& request, Interrupts& interrupts) {
  interrupts.check();
  LaunchOptions options;
  options.ranks = request.placement.loopback ? 1 : request.ranks;
  options.arguments = request.arguments;
  const auto job = take(Job::start(options));
  interrupts.on_signal([&] {
    for (int rank = 0; rank < options.ranks; ++rank) ::kill(job->pid(rank), SIGKILL);
  });
  struct TakeBack {
    Interrupts& interrupts;
    ~TakeBack() { interrupts.on_signal(nullptr); }
  } take_back{interrupts};

  send_placement(job->store(), request.placement);
  send_to_ranks(job->store(), kSizeKey, request.ranks);
  if (request.prepare) request.prepare(job->store());
  const auto outcome = job->wait(Deadline::never());
  interrupts.check();
  const JobOutcome ended = take(outcome);
  if (const auto status = ended.status(); !status) {
    const Error& error = status.error();
    throw Failure(exit_code_of(error),
                  Error(error.code(), fmt::format("rank {}: {}", ended.first_failed, error.to_string())));
  }
  std::vector<nlohmann::json> results;
  results.reserve(static_cast<std::size_t>(request.ranks));
  for (int rank = 0; rank < request.ranks; ++rank) {
    results.push_back(result_of(job->store(), rank));
  }
  return results;
}

void publish_result(const RankContext& context, const nlohmann::json& result) {
  const Store::Bytes whole = to_bytes(result);
  const std::size_t num_parts = (whole.size() + kPartBytes - 1) / kPartBytes;
  for (std::size_t part = 0; part < num_parts; ++part) {
    const auto bytes = std::span(whole)
                           .subspan(part * kPartBytes)
                           .first(std::min(kPartBytes, whole.size() - part * kPartBytes));
    take(context.store->set(part_key(context.rank, part), bytes));
  }
  take(context.store->set(result_key(context.rank), to_bytes(num_parts)));
}

void send_to_ranks(Store& store, const std::string& key, const nlohmann::json& value) {
  take(store.set(key, to_bytes(value)));
}

nlohmann::json receive(const RankContext& context, const std::string& key) {
  return from_bytes(take(context.store->get(key, soon())));
}

namespace {

/// `process` is the one that the launcher knows: a failure is reported as its own.
int work_as_rank(const RankContext& process, const RankContext& context,
                 const std::function<nlohmann::json(const RankContext&)>& work,
                 std::atomic<bool>& is_reported) {
  const auto fail_with = [&](const Error& error, int exit_code) {
    if (!is_reported.exchange(true)) report_failure(process, error);
    return exit_code;
  };
  try {
    publish_result(context, work(context));
    return kOk;
  } catch (const Failure& failure) {
    return fail_with(failure.error(), failure.exit_code());
  } catch (const std::exception& error) {
    return fail_with(Error(ErrorCode::kInternal, error.what()), kFailed);
  }
}

}  // namespace

int work_as_ranks(const RankContext& process, const std::function<nlohmann::json(const RankContext&)>& work) {
  std::atomic<bool> is_reported{false};
  if (!receive_placement(process).loopback) return work_as_rank(process, process, work, is_reported);
  const int size = receive(process, kSizeKey);
  prepare_shared_gpu();
  const auto store = std::make_shared<LoopbackStore>(make_in_process_store(), process.store);
  std::vector<int> exit_codes(static_cast<std::size_t>(size), kOk);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      exit_codes[static_cast<std::size_t>(rank)] =
          work_as_rank(process, {rank, size, store}, work, is_reported);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(exit_codes.begin(), exit_codes.end());
}

}  // namespace tandem::cli
