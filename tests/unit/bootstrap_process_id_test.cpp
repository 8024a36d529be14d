#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "base/format.hpp"
#include "bootstrap/process_id.hpp"
#include "support/io_folder.hpp"
#include "support/refused_calls.hpp"
#include "unit/bootstrap_child_process.hpp"

namespace tandem::bootstrap {
namespace {

namespace fs = std::filesystem;
using testing::ChildProcess;
using testing::in_sandbox;
using testing::refuse_calls;

/// Fields 4 to 22 of /proc/<pid>/stat, with these in the places 20 and 22.
std::string stat_line(const std::string& name, char state, int num_threads, std::uint64_t start_time) {
  return fmt::format("42 ({}) {} 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {} 0 {} 123 456\n", name, state,
                     num_threads, start_time);
}

TEST(ProcessStat, IsReadBehindTheLastParenthesisOfTheName) {
  for (const char* name : {"sh", "a) Z 1", "((", "two words", ""}) {
    const auto stat = parse_process_stat(stat_line(name, 'S', 3, 987));
    ASSERT_TRUE(stat) << name;
    EXPECT_EQ(stat->state, 'S');
    EXPECT_EQ(stat->num_threads, 3);
    EXPECT_EQ(stat->start_time, 987U);
  }
}

TEST(ProcessStat, AMalformedLineIsNoStat) {
  const std::string whole = stat_line("sh", 'S', 1, 987);
  for (const std::string& line : {std::string(), std::string("42"), whole.substr(0, whole.find("987")),
                                  std::string("42 (sh) S 1 2 x")}) {
    EXPECT_FALSE(parse_process_stat(line)) << line;
  }
}

TEST(ProcessStat, AZombieLivesAsLongAsItHasThreads) {
  EXPECT_TRUE(parse_process_stat(stat_line("sh", 'Z', 1, 1))->is_dead());
  EXPECT_FALSE(parse_process_stat(stat_line("sh", 'Z', 2, 1))->is_dead());
  EXPECT_TRUE(parse_process_stat(stat_line("sh", 'X', 0, 1))->is_dead());
  EXPECT_FALSE(parse_process_stat(stat_line("sh", 'T', 1, 1))->is_dead());
  EXPECT_TRUE(parse_process_stat(stat_line("sh", 'T', 1, 1))->is_stopped());
}

TEST(ProcessId, PidsCompareInOneKnownNamespaceOnly) {
  ProcessId here = ProcessId::self();
  ASSERT_NE(here.pid_namespace, 0U);
  EXPECT_GT(here.start_time, 0U);
  ProcessId there = here;
  EXPECT_TRUE(here.shares_pids_with(there));
  ++there.pid_namespace;
  EXPECT_FALSE(here.shares_pids_with(there));
  here.pid_namespace = there.pid_namespace = 0;
  EXPECT_FALSE(here.shares_pids_with(there)) << "unknown is not equal";
}

/// The files of a /proc that a test writes.
class FakeProc {
 public:
  FakeProc() { write_self(fmt::format("Name:\tx\nPid:\t{0}\nPPid:\t1\nNSpid:\t{0}\n", ::getpid())); }
  void write_self(const std::string& status) { write("self/status", status); }
  void write_stat(pid_t pid, const std::string& line) { write(fmt::format("{}/stat", pid), line); }
  [[nodiscard]] std::string path() const { return (folder_ / "proc").string(); }

 private:
  void write(const std::string& name, const std::string& text) {
    const fs::path file = fs::path(path()) / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  tests::Folder folder_;
};

TEST(LookAt, BelievesTheProcOfItsOwnNamespace) {
  const ChildProcess child;
  const ProcessId id = child.id();
  FakeProc proc;
  proc.write_stat(id.pid, stat_line("rank", 'S', 1, id.start_time));
  EXPECT_EQ(look_at(id, proc.path()), Life::kAlive);
  proc.write_stat(id.pid, stat_line("rank", 'S', 1, id.start_time + 1));
  EXPECT_EQ(look_at(id, proc.path()), Life::kGone) << "the pid is another process's";
  EXPECT_FALSE(stat_of(id, proc.path()));
  proc.write_stat(id.pid, stat_line("rank", 'Z', 1, id.start_time));
  EXPECT_EQ(look_at(id, proc.path()), Life::kGone);
}

TEST(LookAt, StartTimesOfOtherClocksProveNothing) {
  const ChildProcess child;
  ProcessId id = child.id();
  FakeProc proc;
  proc.write_stat(id.pid, stat_line("rank", 'S', 1, id.start_time + 1));
  ++id.time_namespace;
  EXPECT_EQ(look_at(id, proc.path()), Life::kAlive);
  id = child.id();
  id.start_time = 0;
  EXPECT_EQ(look_at(id, proc.path()), Life::kAlive) << "the rank could not read its own";
}

TEST(LookAt, AForeignOrUnreadableProcProvesNothing) {
  const ChildProcess child;
  const ProcessId id = child.id();
  FakeProc proc;
  EXPECT_EQ(look_at(id, proc.path()), Life::kUnknown) << "hidden";
  EXPECT_EQ(look_at(id, "/nowhere/proc"), Life::kUnknown) << "none";
  proc.write_stat(id.pid, stat_line("another", 'Z', 1, 1));
  proc.write_self(fmt::format("Pid:\t{}\nNSpid:\t{}\t{}\n", ::getpid(), ::getpid(), ::getpid()));
  EXPECT_EQ(look_at(id, proc.path()), Life::kUnknown) << "an outer namespace's";
  proc.write_self(fmt::format("Pid:\t{0}\nNSpid:\t{0}\n", ::getpid() + 1));
  EXPECT_EQ(look_at(id, proc.path()), Life::kUnknown) << "another namespace's";
  proc.write_self("");
  EXPECT_EQ(look_at(id, proc.path()), Life::kUnknown) << "empty";
  proc.write_self(fmt::format("Pid:\t{}\n", ::getpid()));
  EXPECT_EQ(look_at(id, proc.path()), Life::kGone) << "a kernel that lists no namespaces";
}

TEST(LookAt, NoFileCanBeOpened) {
  const ChildProcess child;
  const ProcessId id = child.id();
  for (const int error : {EACCES, EPERM, EMFILE, ENFILE, ENOENT, EIO}) {
    in_sandbox([&] {
      if (!refuse_calls(std::vector<long>{SYS_openat, SYS_open}, error)) return;
      EXPECT_EQ(look_at(id), Life::kUnknown) << error;
    });
  }
}

TEST(LookAt, AReapedProcessIsGoneAlsoWhereProcIsHidden) {
  ChildProcess child;
  const ProcessId id = child.id();
  EXPECT_EQ(look_at(id), Life::kAlive);
  child.kill();
  EXPECT_EQ(look_at(id), Life::kGone) << "a zombie";
  EXPECT_EQ(look_at(id, "/nowhere/proc"), Life::kUnknown) << "a zombie that cannot be seen";
  child.reap();
  EXPECT_EQ(look_at(id), Life::kGone);
  EXPECT_EQ(look_at(id, "/nowhere/proc"), Life::kGone);
}

TEST(LookAt, NumbersThatNoProcessHasAreUnknown) {
  EXPECT_EQ(look_at({.pid = 0}), Life::kUnknown);
  EXPECT_EQ(look_at({.pid = -1}), Life::kUnknown);
}

}  // namespace
}  // namespace tandem::bootstrap
