#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <future>
#include <mutex>
#include <tandem/bootstrap/launcher.hpp>
#include <tandem/bootstrap/local_store.hpp>
#include <thread>

#include "base/format.hpp"
#include "base/home_process.hpp"
#include "base/make_thread.hpp"
#include "base/try.hpp"
#include "bootstrap/failure_report.hpp"
#include "bootstrap/process_id.hpp"
#include "bootstrap/rank_ends.hpp"
#include "bootstrap/rank_process.hpp"

namespace tandem {

/// One thread starts the ranks and sees them end: the kernel ties their lives to the thread that forked them.
class Job::Impl {
 public:
  explicit Impl(const LaunchOptions& options) : options_(options) {}
  ~Impl();
  Result<void> start();
  Result<JobOutcome> wait(Deadline deadline);
  pid_t pid(int rank) const {
    return rank < 0 || rank >= options_.ranks ? -1 : children_[static_cast<std::size_t>(rank)].pid;
  }
  Store& store() const { return *store_; }
  [[nodiscard]] const HomeProcess& home() const { return home_; }

 private:
  struct Child {
    pid_t pid = -1;
    UniqueFd pidfd;  ///< invalid where the kernel has none: the thread looks every few ms then
    bool is_running = false;
    bool was_killed_here = false;
  };

  Result<void> start_all(const sigset_t& mask);
  void run();
  void wait_for_news();
  void reap(int rank);
  void kill_running();
  void end_by_grace();
  int choose_first_failed() const;
  std::string describe_running() const;

  const HomeProcess home_;  // of the thread
  const LaunchOptions options_;
  std::unique_ptr<LocalStoreServer> server_;
  std::shared_ptr<Store> store_;
  UniqueFd wake_;
  std::vector<Child> children_;  // pids are final once start() has returned; the rest is the thread's
  std::vector<int> failed_;      // in the order of their ends; the thread's

  mutable std::mutex mutex_;
  std::condition_variable ended_;
  JobOutcome outcome_;
  std::vector<bool> rank_has_ended_;
  bool has_ended_ = false;
  bool must_end_ = false;
  Deadline grace_until_ = Deadline::never();
  std::thread thread_;
};

namespace {

/// What the ranks find as argv[0]: the program as it was given, since an interpreter looks for its files
/// beside it. A link of /proc says nothing, so its target stands in for it.
std::string program_name(const std::string& program) {
  if (!program.starts_with("/proc/")) return program;
  char target[4096];
  const ssize_t length = ::readlink(program.c_str(), target, sizeof(target));
  return length > 0 ? std::string(target, static_cast<std::size_t>(length)) : program;
}

}  // namespace

Result<void> Job::Impl::start() {
  TANDEM_ASSIGN(server_, LocalStoreServer::create());
  store_ = server_->local();
  TANDEM_TRY(bootstrap::write_job_size(*store_, options_.ranks));
  wake_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_.valid()) return tl::unexpected(system_refusal("job: no eventfd", errno));
  children_.resize(static_cast<std::size_t>(options_.ranks));
  outcome_.ranks.resize(children_.size());
  rank_has_ended_.resize(children_.size());

  sigset_t mask;  // the ranks' is the caller's
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  std::promise<Result<void>> started;
  TANDEM_ASSIGN(thread_, make_thread("job", [this, mask, &started] {
                  auto result = start_all(mask);
                  const bool is_running = result.has_value();
                  if (!is_running) must_end_ = true;
                  // run() also ends and reaps those that were started before one could not be.
                  if (!is_running) run();
                  started.set_value(std::move(result));
                  if (is_running) run();
                }));
  return started.get_future().get();
}

Result<void> Job::Impl::start_all(const sigset_t& mask) {
  for (int r = 0; r < options_.ranks; ++r) {
    TANDEM_ASSIGN(const UniqueFd connection, server_->connect_pair());
    bootstrap::RankProgram program{
        options_.program, {program_name(options_.program)}, connection.get(), mask};
    program.arguments.insert(program.arguments.end(), options_.interpreter_arguments.begin(),
                             options_.interpreter_arguments.end());
    program.arguments.push_back(
        fmt::format("{}{}:{}:{}", bootstrap::kRankArgument, connection.get(), r, options_.ranks));
    program.arguments.insert(program.arguments.end(), options_.arguments.begin(), options_.arguments.end());
    Child& child = children_[static_cast<std::size_t>(r)];
    TANDEM_ASSIGN(child.pid, bootstrap::start_process(program));
    child.is_running = true;
    child.pidfd = UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
  }
  return {};
}

void Job::Impl::run() {
  const auto some_run = [&] {
    return std::any_of(children_.begin(), children_.end(),
                       [](const Child& child) { return child.is_running; });
  };
  while (some_run()) {
    wait_for_news();
    for (int r = 0; r < options_.ranks; ++r) reap(r);
    end_by_grace();
  }
  {
    const std::lock_guard lock(mutex_);
    outcome_.first_failed = choose_first_failed();
    has_ended_ = true;
  }
  ended_.notify_all();
}

void Job::Impl::wait_for_news() {
  std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}};
  constexpr int kLookMs = 5;
  int timeout_ms = -1;
  for (const Child& child : children_) {
    if (!child.is_running) continue;
    if (child.pidfd.valid()) {
      polled.push_back({child.pidfd.get(), POLLIN, 0});
    } else {
      timeout_ms = kLookMs;
    }
  }
  {
    const std::lock_guard lock(mutex_);
    if (must_end_) timeout_ms = kLookMs;
    if (grace_until_.at() != Deadline::never().at()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(grace_until_.remaining()).count();
      const int left_ms = static_cast<int>(std::min<std::int64_t>(left, 60'000));
      timeout_ms = timeout_ms < 0 ? left_ms : std::min(timeout_ms, left_ms);
    }
  }
  ::poll(polled.data(), polled.size(), timeout_ms);  // EINTR and all else: look
  eventfd_t count = 0;
  ::eventfd_read(wake_.get(), &count);
}

void Job::Impl::reap(int rank) {
  Child& child = children_[static_cast<std::size_t>(rank)];
  if (!child.is_running) return;
  int status = 0;
  const pid_t got = ::waitpid(child.pid, &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return;
  child.is_running = false;
  child.pidfd.reset();
  RankOutcome outcome;
  outcome.rank = rank;
  if (got < 0) {
    outcome.exit_code = 255;
    outcome.error = Error(ErrorCode::kDriver,
                          fmt::format("rank {} ended, but its exit code is lost (errno {}): does this "
                                      "program ignore SIGCHLD?",
                                      rank, errno));
  } else if (WIFSIGNALED(status)) {
    outcome.signal = WTERMSIG(status);
  } else {
    outcome.exit_code = WEXITSTATUS(status);
  }
  if (auto reported = bootstrap::read_failure(*store_, rank)) outcome.error = std::move(reported);
  outcome.has_joined = bootstrap::has_joined(*store_, rank);
  // It fails only when the store has no memory left: the others then wait until their deadline.
  static_cast<void>(bootstrap::write_end(*store_, rank, {outcome.exit_code, outcome.signal}));
  const std::lock_guard lock(mutex_);
  rank_has_ended_[static_cast<std::size_t>(rank)] = true;
  if (outcome.signal != 0 || outcome.exit_code != 0 || !outcome.has_joined) {
    failed_.push_back(rank);
    if (failed_.size() == 1) grace_until_ = Deadline::after(options_.grace);
  }
  outcome_.ranks[static_cast<std::size_t>(rank)] = std::move(outcome);
}

void Job::Impl::end_by_grace() {
  bool is_over = false;
  {
    const std::lock_guard lock(mutex_);
    is_over = must_end_ || grace_until_.expired();
  }
  if (is_over) kill_running();
}

void Job::Impl::kill_running() {
  for (Child& child : children_) {
    if (!child.is_running) continue;
    ::kill(child.pid, SIGKILL);  // not reaped yet, so the number is still its own
    child.was_killed_here = true;
  }
}

/// The first to end is the first to fail, unless it only suffered from another that took longer to end.
int Job::Impl::choose_first_failed() const {
  for (const int rank : failed_) {
    const RankOutcome& outcome = outcome_.ranks[static_cast<std::size_t>(rank)];
    const bool is_victim = outcome.error && outcome.error->code() == ErrorCode::kPeerLost;
    if (!is_victim && !children_[static_cast<std::size_t>(rank)].was_killed_here) return rank;
  }
  return failed_.empty() ? -1 : failed_.front();
}

std::string Job::Impl::describe_running() const {
  std::string text;
  for (int r = 0; r < options_.ranks; ++r) {
    if (rank_has_ended_[static_cast<std::size_t>(r)]) continue;
    const auto stat = bootstrap::stat_of({.pid = pid(r)});
    text += fmt::format("{}rank {} (pid {}{})", text.empty() ? "" : ", ", r, pid(r),
                        stat && stat->is_stopped() ? ", stopped" : "");
  }
  return text;
}

Result<JobOutcome> Job::Impl::wait(Deadline deadline) {
  TANDEM_TRY(home_.check("the job"));
  std::unique_lock lock(mutex_);
  const auto has_ended = [&] { return has_ended_; };
  if (ended_.wait_until(lock, deadline.at(), has_ended)) return outcome_;
  const std::string running = describe_running();
  must_end_ = true;
  ::eventfd_write(wake_.get(), 1);
  ended_.wait(lock, has_ended);
  return failf(ErrorCode::kTimeout, "job: still running at the deadline, now killed: {}", running);
}

Job::Impl::~Impl() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    must_end_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

// ---- the public face ----

Job::Job(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Job::~Job() {
  if (!impl_->home().is_here()) keep_forever(std::move(impl_));  // the parent has the ranks
}

Result<std::unique_ptr<Job>> Job::start(const LaunchOptions& options) {
  constexpr int kMostRanks = 4096;
  if (options.ranks < 1 || options.ranks > kMostRanks) {
    return failf(ErrorCode::kInvalidArgument, "job: {} ranks, need 1 to {}", options.ranks, kMostRanks);
  }
  auto impl = std::make_unique<Impl>(options);
  TANDEM_TRY(impl->start());
  return std::unique_ptr<Job>(new Job(std::move(impl)));
}

Result<JobOutcome> Job::wait(Deadline deadline) {
  return impl_->wait(deadline);
}
pid_t Job::pid(int rank) const {
  return impl_->pid(rank);
}
Store& Job::store() const {
  return impl_->store();
}

Result<void> JobOutcome::status() const {
  if (first_failed < 0) return {};
  const RankOutcome& failed = ranks[static_cast<std::size_t>(first_failed)];
  if (failed.error) return tl::unexpected(*failed.error);
  const std::string end = bootstrap::describe({failed.exit_code, failed.signal});
  if (!failed.has_joined) {
    return failf(ErrorCode::kPeerLost, "rank {} {} before it joined the job (by join_job())", failed.rank,
                 end);
  }
  return failf(ErrorCode::kPeerLost, "rank {} {}{}", failed.rank, end,
               failed.signal != 0 ? "" : " and did not say why");
}

}  // namespace tandem
