// What a server that was killed has left in the temporary directory goes with the next server's start.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <tandem/bootstrap/local_store.hpp>
#include <vector>

#include "support/leak_oracle.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;

std::set<std::string> names() {
  std::set<std::string> found;
  for (const auto& entry : fs::directory_iterator(fs::temp_directory_path()))
    found.insert(entry.path().filename());
  return found;
}

/// The address of a server in a process of its own, which lives until the object ends.
class OtherServer {
 public:
  OtherServer() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    child_ = ::fork();
    if (child_ == 0) {
      auto server = LocalStoreServer::create();
      const auto address = server ? (*server)->listen(1) : tl::unexpected(server.error());
      const std::string path = address ? address->path : "none";
      if (::write(ends[1], path.data(), path.size()) < 0) ::_exit(1);
      for (;;) ::pause();
    }
    char path[256];
    const ssize_t count = ::read(ends[0], path, sizeof(path));
    path_.assign(path, count > 0 ? static_cast<std::size_t>(count) : 0);
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~OtherServer() { kill(); }
  OtherServer(const OtherServer&) = delete;
  OtherServer& operator=(const OtherServer&) = delete;

  void kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = -1;
  }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  pid_t child_ = -1;
  std::string path_;
};

TEST(LeftOver, TheNextServerRemovesTheDirectoriesOfKilledOnesOnly) {
  testing::LeakOracle oracle;
  OtherServer lives;
  std::set<std::string> expected = names();
  for (int i = 0; i < 3; ++i) {
    OtherServer killed;
    killed.kill();
    EXPECT_TRUE(fs::exists(killed.path())) << "the test proves nothing: " << killed.path();
  }
  {
    auto server = LocalStoreServer::create().value();
    const auto address = server->listen(1);
    ASSERT_TRUE(address) << address.error().to_string();
    std::set<std::string> with_own = expected;
    with_own.insert(fs::path(address->path).parent_path().filename());
    EXPECT_EQ(names(), with_own);
    EXPECT_TRUE(fs::exists(lives.path()));
  }
  EXPECT_EQ(names(), expected);
  lives.kill();
  auto last = LocalStoreServer::create().value();
  ASSERT_TRUE(last->listen(1));
  last.reset();
  EXPECT_EQ(oracle.leaks(), "");
}

TEST(LeftOver, WhatIsNotAServersStays) {
  testing::LeakOracle oracle;
  const fs::path temporary = fs::temp_directory_path();
  const fs::path with_file = temporary / "tandem-store-aaaaaa";
  fs::create_directory(with_file);
  std::ofstream(with_file / "store") << "a file, not a socket";
  const fs::path other_name = temporary / "tandem-store-aaaaaab";
  fs::create_directory(other_name);
  const fs::path target = temporary / "target";
  fs::create_directory(target);
  fs::create_directory_symlink(target, temporary / "tandem-store-cccccc");
  std::ofstream(temporary / "tandem-store-dddddd") << "a file";
  const fs::path of_another = temporary / "tandem-store-eeeeee";
  fs::create_directory(of_another);
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(of_another.c_str(), 65534, 65534), 0);
  } else {
    fs::remove(of_another);  // only root can make what belongs to another user
  }
  const std::set<std::string> before = names();
  {
    auto server = LocalStoreServer::create().value();
    ASSERT_TRUE(server->listen(1));
  }
  EXPECT_EQ(names(), before);
  EXPECT_TRUE(fs::exists(with_file / "store"));
}

/// Servers that start at once take each other's new directory for left over at most until they hold its lock.
TEST(LeftOver, ServersThatStartAtOnceDoNotRemoveEachOthersDirectory) {
  testing::LeakOracle oracle;
  constexpr int kNumProcesses = 4;
  std::vector<pid_t> children;
  for (int i = 0; i < kNumProcesses; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int round = 0; round < 100; ++round) {
        auto server = LocalStoreServer::create().value();
        const auto address = server->listen(1);
        if (!address) ::_exit(1);
        if (!open_local_store(*address, Deadline::after(std::chrono::seconds(20)))) ::_exit(2);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(oracle.leaks(), "");
}

}  // namespace
}  // namespace tandem
