#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include "bootstrap/peer_monitor.hpp"
#include "support/file_limit.hpp"
#include "support/no_threads.hpp"
#include "support/refused_calls.hpp"
#include "unit/bootstrap_child_process.hpp"

namespace tandem::bootstrap {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::ChildProcess;
using testing::in_sandbox;
using testing::refuse_calls;

/// A monitor with one watched process.
class Watched {
 public:
  explicit Watched(const ProcessId& process) : monitor_(PeerMonitor::create().value()) {
    watch_ = monitor_->watch(process, [this] { ++num_deaths_; }).value();
  }
  [[nodiscard]] const Support& sight() const { return watch_->sight(); }
  /// After several looks at /proc.
  [[nodiscard]] int deaths_soon() const {
    std::this_thread::sleep_for(milliseconds(60));
    return num_deaths_;
  }
  /// Waits for one, for 10 s.
  [[nodiscard]] int deaths() const {
    for (int i = 0; i < 2000 && num_deaths_ == 0; ++i) std::this_thread::sleep_for(milliseconds(5));
    return num_deaths_;
  }

 private:
  std::atomic<int> num_deaths_{0};
  std::shared_ptr<PeerMonitor> monitor_;
  std::unique_ptr<PeerMonitor::Watch> watch_;
};

/// What a sandbox refuses; 0: nothing.
struct Sandbox {
  int pidfd_error = 0;
  int open_error = 0;

  [[nodiscard]] bool enter() const {
    return (pidfd_error == 0 || refuse_calls(std::vector<long>{SYS_pidfd_open}, pidfd_error)) &&
           (open_error == 0 || refuse_calls(std::vector<long>{SYS_openat, SYS_open}, open_error));
  }
  [[nodiscard]] bool sees() const { return pidfd_error == 0 || open_error == 0; }
};

void PrintTo(const Sandbox& sandbox, std::ostream* out) {
  *out << "pidfd_open " << sandbox.pidfd_error << ", open " << sandbox.open_error;
}

class InSandbox : public ::testing::TestWithParam<Sandbox> {
 protected:
  /// The test fails if the sandbox cannot be made: skipped where seccomp is not allowed.
  template <class Body>
  void run(Body body) {
    bool is_allowed = true;
    in_sandbox([&] {
      is_allowed = GetParam().enter();
      if (is_allowed) body();
    });
    if (!is_allowed) GTEST_SKIP() << "this machine allows no seccomp filter";
  }
};

TEST_P(InSandbox, ALiveProcessIsNeverReported) {
  for (const auto kind : {ChildProcess::Kind::kOneThread, ChildProcess::Kind::kFirstThreadHasEnded}) {
    const ChildProcess child(kind);
    run([&] {
      const Watched watched(child.id());
      EXPECT_EQ(watched.deaths_soon(), 0);
      EXPECT_EQ(watched.sight().ok, GetParam().sees()) << watched.sight().why_not;
    });
  }
}

TEST_P(InSandbox, AReapedProcessIsReportedOnce) {
  for (const bool was_dead_before : {false, true}) {
    ChildProcess child;
    const ProcessId id = child.id();
    const auto end = [&] {
      child.kill();
      child.reap();
    };
    run([&] {
      if (was_dead_before) end();
      const Watched watched(id);
      if (!was_dead_before) end();
      EXPECT_EQ(watched.deaths(), 1);
      EXPECT_EQ(watched.deaths_soon(), 1);
    });
  }
}

TEST_P(InSandbox, AZombieIsReportedWhereItCanBeSeen) {
  const ChildProcess child;
  run([&] {
    const Watched watched(child.id());
    child.kill();
    EXPECT_EQ(GetParam().sees() ? watched.deaths() : watched.deaths_soon(), GetParam().sees() ? 1 : 0);
  });
}

TEST_P(InSandbox, AnotherProcessWithThePidIsADeathIfProcShowsIt) {
  const ChildProcess child;
  ProcessId former = child.id();
  ++former.start_time;
  run([&] {
    const Watched watched(former);
    const bool is_shown = GetParam().open_error == 0;
    EXPECT_EQ(is_shown ? watched.deaths() : watched.deaths_soon(), is_shown ? 1 : 0);
  });
}

TEST_P(InSandbox, WhereNothingShowsAProcessTheReasonsAreTold) {
  if (GetParam().sees()) return;
  const ChildProcess child;
  run([&] {
    const Watched watched(child.id());
    for (const std::string& part : {std::string("pidfd_open: ") + std::strerror(GetParam().pidfd_error),
                                    std::string("/proc"), std::string("hidepid")})
      EXPECT_NE(watched.sight().why_not.find(part), std::string::npos) << watched.sight().why_not;
  });
}

INSTANTIATE_TEST_SUITE_P(PeerMonitor, InSandbox,
                         ::testing::Values(Sandbox{}, Sandbox{ENOSYS, 0}, Sandbox{EPERM, 0},
                                           Sandbox{0, EACCES}, Sandbox{0, EMFILE}, Sandbox{ENOSYS, EACCES},
                                           Sandbox{EPERM, ENOENT}, Sandbox{ENOSYS, EMFILE}));

/// Of this process.
std::vector<int> pidfds() {
  std::vector<int> found;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (fs::read_symlink(entry.path(), gone).string().find("pidfd") != std::string::npos)
      found.push_back(std::stoi(entry.path().filename().string()));
  }
  return found;
}

// Programs close descriptors that they do not know before they go on in another role.
TEST(PeerMonitor, ThatItsPidfdIsClosedOrAnotherFileIsNoDeath) {
  for (const bool is_replaced : {false, true}) {
    for (const int open_error : {0, EACCES}) {
      ChildProcess child;
      in_sandbox([&] {
        const Watched watched(child.id());
        const std::vector<int> fds = pidfds();
        ASSERT_EQ(fds.size(), 1U);
        const int always_readable = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (is_replaced) {
          ::dup2(always_readable, fds[0]);
        } else {
          ::close(fds[0]);
        }
        ::close(always_readable);
        EXPECT_EQ(watched.deaths_soon(), 0) << is_replaced << open_error;
        child.kill();
        child.reap();
        EXPECT_EQ(watched.deaths(), 1) << is_replaced << open_error;
        if (is_replaced) ::close(fds[0]);
      });
    }
  }
}

TEST(PeerMonitor, WithoutAThreadItIsAnError) {
  const testing::NoThreads none;
  const auto monitor = PeerMonitor::create();
  ASSERT_FALSE(monitor);
  EXPECT_EQ(monitor.error().text().find("peer monitor: no thread: "), 0U) << monitor.error().text();
}

TEST(PeerMonitor, WithoutAFileDescriptorItIsAnErrorThatNamesTheLimit) {
  const auto monitor = PeerMonitor::create();
  ASSERT_TRUE(monitor);
  const ChildProcess child;
  const testing::FileLimit none(0);
  const auto second = PeerMonitor::create();
  const auto watch = (*monitor)->watch(child.id(), [] { ADD_FAILURE() << "it lives"; });
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().text().find("peer monitor: no eventfd: "), 0U) << second.error().text();
  EXPECT_NE(second.error().text().find("ulimit -n"), std::string::npos) << second.error().text();
  ASSERT_FALSE(watch);
  EXPECT_NE(watch.error().text().find("cannot be watched: "), std::string::npos) << watch.error().text();
  EXPECT_NE(watch.error().text().find("ulimit -n"), std::string::npos) << watch.error().text();
}

}  // namespace
}  // namespace tandem::bootstrap
