// Who else may find the socket of a LocalStoreServer, and what they get.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>
#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <tandem/bootstrap/local_store.hpp>
#include <thread>

#include "support/leak_oracle.hpp"
#include "support/no_threads.hpp"

namespace tandem {
namespace {

using std::chrono::milliseconds;

Deadline soon() {
  return Deadline::after(milliseconds(5'000));
}

int connect_raw(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return socket;
  ::close(socket);
  return -1;
}

/// The head of the protocol's messages (see local_store_message.hpp), for those who speak it wrongly.
struct Head {
  std::uint32_t magic = 0x746d5331;
  std::uint16_t type = 1;
  std::uint16_t key_bytes = 0;
  std::uint32_t value_bytes = 0;
  std::int32_t status = -1;
  std::uint64_t id = 1;
  std::int64_t number = 1;
};

std::string greeting(const std::string& token) {
  const Head head{.key_bytes = static_cast<std::uint16_t>(token.size())};
  return std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + token;
}

/// Whether the other end closes the connection; what it says before does not count.
bool is_closed_by_the_server(int socket) {
  const timeval patience{30, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  char buffer[512];
  ssize_t count = 1;
  while (count > 0) count = ::recv(socket, buffer, sizeof(buffer), 0);
  return count == 0 || errno == ECONNRESET;
}

/// Sends one packet and waits until the server has closed the connection.
void send_and_expect_close(const std::string& path, const void* packet, std::size_t num_bytes) {
  const UniqueFd socket(connect_raw(path));
  ASSERT_TRUE(socket.valid());
  ASSERT_EQ(::send(socket.get(), packet, num_bytes, MSG_NOSIGNAL), static_cast<ssize_t>(num_bytes));
  EXPECT_TRUE(is_closed_by_the_server(socket.get())) << "errno " << errno;
}

void wait_for_refusals(const LocalStoreServer& server, std::int64_t expected) {
  for (int i = 0; i < 250 && server.num_refused() < expected; ++i)
    std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(server.num_refused(), expected);
}

void wait_until_refused(const LocalStoreServer& server, std::int64_t at_least) {
  for (int i = 0; i < 1'000 && server.num_refused() < at_least; ++i)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_GE(server.num_refused(), at_least);
}

class Strangers : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = LocalStoreServer::create();
    ASSERT_TRUE(server);
    server_ = *std::move(server);
    auto address = server_->listen(2);
    ASSERT_TRUE(address) << address.error().to_string();
    address_ = *address;
  }
  /// After all that: two good clients join and work, and the directory goes.
  void TearDown() override {
    if (!have_joined_) join_two();
    server_.reset();
    EXPECT_EQ(oracle_.leaks(), "");
  }
  void join_two() {
    have_joined_ = true;
    const auto one = open_local_store(address_, soon());
    ASSERT_TRUE(one) << one.error().to_string();
    EXPECT_TRUE(std::filesystem::exists(address_.path)) << "one of two clients is there";
    const auto two = open_local_store(address_, soon());
    ASSERT_TRUE(two) << two.error().to_string();
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(address_.path).parent_path()));
    ASSERT_TRUE((*one)->set("key", std::as_bytes(std::span("value", 5))));
    EXPECT_TRUE((*two)->get("key", soon()));
  }
  testing::LeakOracle oracle_;
  std::unique_ptr<LocalStoreServer> server_;
  LocalStoreAddress address_;
  bool have_joined_ = false;
};

TEST_F(Strangers, TheDirectoryIsPrivate) {
  struct stat status {};
  ASSERT_EQ(::stat(std::filesystem::path(address_.path).parent_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700U);
  EXPECT_EQ(address_.token.size(), 64U);
}

TEST_F(Strangers, AWrongTokenIsRefused) {
  LocalStoreAddress wrong = address_;
  wrong.token.back() = wrong.token.back() == '0' ? '1' : '0';
  const auto client = open_local_store(wrong, soon());
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code(), ErrorCode::kInvalidArgument) << client.error().to_string();
  wrong.token = "";
  EXPECT_FALSE(open_local_store(wrong, soon()));
  wait_for_refusals(*server_, 2);
}

TEST_F(Strangers, AnotherVersionIsRefused) {
  std::string packet(sizeof(Head), '\0');
  const Head head{.key_bytes = static_cast<std::uint16_t>(address_.token.size()), .number = 2};
  std::memcpy(packet.data(), &head, sizeof(head));
  packet += address_.token;
  send_and_expect_close(address_.path, packet.data(), packet.size());
  wait_for_refusals(*server_, 1);
}

TEST_F(Strangers, GarbageAndHalfMessagesAreRefused) {
  std::string garbage(3000, '\x5a');
  send_and_expect_close(address_.path, garbage.data(), garbage.size());
  const Head head{.key_bytes = 64};
  send_and_expect_close(address_.path, &head, sizeof(head));      // the token is missing
  send_and_expect_close(address_.path, &head, sizeof(head) - 5);  // not even a head
  const Head get{.type = 3};
  send_and_expect_close(address_.path, &get, sizeof(get));  // no greeting
  std::string huge(200'000, 'x');
  send_and_expect_close(address_.path, huge.data(), huge.size());
  wait_for_refusals(*server_, 5);
}

TEST_F(Strangers, ConnectAndCloseIsCounted) {
  for (int i = 0; i < 300; ++i) {
    const UniqueFd socket(connect_raw(address_.path));
    ASSERT_TRUE(socket.valid()) << i;
  }
  wait_for_refusals(*server_, 300);
}

TEST_F(Strangers, ThoseWhoSayNothingDoNotKeepOthersOut) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 64; ++i) silent.emplace_back(connect_raw(address_.path));
  for (int i = 0; i < 10; ++i) silent.emplace_back(connect_raw(address_.path));  // beyond what it keeps
  wait_for_refusals(*server_, 10);
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE(is_closed_by_the_server(silent[static_cast<std::size_t>(i)].get())) << "the longest silent";
  join_two();  // while the others stay
}

TEST_F(Strangers, ThoseWhoKeepComingDoNotKeepOthersOut) {
  std::atomic<bool> is_over{false};
  std::thread flood([&] {
    std::deque<UniqueFd> silent;
    while (!is_over) {
      silent.emplace_back(connect_raw(address_.path));
      if (silent.size() > 200) silent.pop_front();
    }
  });
  wait_until_refused(*server_, 100);
  join_two();
  is_over = true;
  flood.join();
}

TEST_F(Strangers, OneWhoNeverGreetsIsClosed) {
  const UniqueFd silent(connect_raw(address_.path));
  ASSERT_TRUE(silent.valid());
  EXPECT_TRUE(is_closed_by_the_server(silent.get())) << "errno " << errno;
  wait_for_refusals(*server_, 1);
}

TEST_F(Strangers, FilesOfStrangersAreClosed) {
  const UniqueFd socket(connect_raw(address_.path));
  ASSERT_TRUE(socket.valid());
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Head head{.type = 6};  // a file before the greeting
  iovec part{const_cast<Head*>(&head), sizeof(head)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 3)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const files = CMSG_FIRSTHDR(&message);
  files->cmsg_level = SOL_SOCKET;
  files->cmsg_type = SCM_RIGHTS;
  files->cmsg_len = CMSG_LEN(sizeof(int) * 3);
  const int fds[3] = {file.get(), file.get(), file.get()};
  std::memcpy(CMSG_DATA(files), fds, sizeof(fds));
  ASSERT_GT(::sendmsg(socket.get(), &message, MSG_NOSIGNAL), 0);
  wait_for_refusals(*server_, 1);
}

TEST_F(Strangers, AnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  // Even where the directory lets everybody in.
  const auto directory = std::filesystem::path(address_.path).parent_path();
  for (auto path = directory; path != std::filesystem::temp_directory_path().parent_path();
       path = path.parent_path()) {
    ASSERT_EQ(::chmod(path.c_str(), 0755), 0);
  }
  ASSERT_EQ(::chmod(address_.path.c_str(), 0777), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(65534) != 0) ::_exit(10);
    const int socket = connect_raw(address_.path);
    if (socket < 0) ::_exit(11);
    const std::string hello = greeting(address_.token);  // the right one
    const ssize_t sent = ::send(socket, hello.data(), hello.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EPIPE) ::_exit(12);  // EPIPE: closed already
    char buffer[16];
    const ssize_t count = ::recv(socket, buffer, sizeof(buffer), 0);
    if (count > 0 || (count < 0 && errno != ECONNRESET)) ::_exit(13);  // closed without a word
    // Nor does a client give the token to a server of another user.
    const auto client = open_local_store(address_, soon());
    const bool is_told = !client && client.error().code() == ErrorCode::kInvalidArgument &&
                         client.error().text().find(
                             "is of user 0, this process of user 65534: run both as "
                             "one user") != std::string::npos;
    ::_exit(is_told ? 0 : 14);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  wait_for_refusals(*server_, 2);
}

/// A server that closes its first `num_closed` connections without a word, and answers the next greeting.
class RudeServer {
 public:
  explicit RudeServer(int num_closed) : path_(std::filesystem::temp_directory_path() / "rude") {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(socket_.get(), 8), 0);
    thread_ = std::thread([this, num_closed] {
      for (int i = 0; num_closed < 0 || i <= num_closed; ++i) {
        const UniqueFd client(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!client.valid()) return;
        if (i == num_closed) answer(client.get());
      }
    });
  }
  ~RudeServer() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
    ::unlink(path_.c_str());
  }
  RudeServer(const RudeServer&) = delete;
  RudeServer& operator=(const RudeServer&) = delete;
  [[nodiscard]] LocalStoreAddress address() const { return {path_, "token"}; }

 private:
  static void answer(int client) {
    char hello[512];
    EXPECT_GT(::recv(client, hello, sizeof(hello), 0), 0);
    const Head welcome{.type = 8};
    EXPECT_GT(::send(client, &welcome, sizeof(welcome), MSG_NOSIGNAL), 0);
  }
  const std::string path_;
  const UniqueFd socket_{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  std::thread thread_;
};

TEST(LocalStore, AClientThatIsClosedBeforeItIsAnsweredTriesAgain) {
  testing::LeakOracle oracle;
  const RudeServer server(3);
  const auto client = open_local_store(server.address(), soon());
  EXPECT_TRUE(client) << client.error().to_string();
}

TEST(LocalStore, AClientThatIsClosedAgainAndAgainSaysSoAtItsDeadline) {
  testing::LeakOracle oracle;
  const RudeServer server(-1);
  const auto client = open_local_store(server.address(), Deadline::after(milliseconds(100)));
  ASSERT_FALSE(client);
  EXPECT_EQ(client.error().code(), ErrorCode::kTimeout) << client.error().to_string();
  EXPECT_NE(client.error().text().find("before it answered the greeting"), std::string::npos)
      << client.error().text();
}

TEST(LocalStore, AServerWithoutAThreadIsAnError) {
  testing::LeakOracle oracle;
  {
    const testing::NoThreads none;
    const auto server = LocalStoreServer::create();
    ASSERT_FALSE(server);
    EXPECT_EQ(server.error().native_code(), EAGAIN);
    EXPECT_EQ(server.error().text().find("the server of a store: no thread: "), 0U) << server.error().text();
  }
  EXPECT_TRUE(LocalStoreServer::create());
  EXPECT_EQ(oracle.leaks(), "");
}

TEST(LocalStore, ATemporaryDirectoryWithALongPathIsAClearError) {
  testing::LeakOracle oracle;
  const std::string former = std::filesystem::temp_directory_path();
  const std::string longer = former + "/" + std::string(100, 'd');
  std::filesystem::create_directory(longer);
  ::setenv("TMPDIR", longer.c_str(), 1);
  const auto server = LocalStoreServer::create();
  ASSERT_TRUE(server);
  const auto address = (*server)->listen(1);
  ::setenv("TMPDIR", former.c_str(), 1);
  ASSERT_FALSE(address);
  EXPECT_EQ(address.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(address.error().text().find("set TMPDIR to a shorter one"), std::string::npos)
      << address.error().text();
}

TEST(LocalStore, AServerThatIsGoneIsALostPeer) {
  auto server = LocalStoreServer::create();
  ASSERT_TRUE(server);
  auto end = (*server)->connect_pair();
  ASSERT_TRUE(end);
  const auto client = open_local_store(*std::move(end));
  ASSERT_TRUE(client);
  std::thread ender([&] {
    std::this_thread::sleep_for(milliseconds(50));
    server->reset();
  });
  const auto got = (*client)->get("never", soon());
  ender.join();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), ErrorCode::kPeerLost) << got.error().to_string();
  const auto again = (*client)->set("key", {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), ErrorCode::kPeerLost) << again.error().to_string();
}

TEST(LocalStore, ABlockedGetDoesNotHoldUpAnotherThreadsSet) {
  auto server = LocalStoreServer::create();
  ASSERT_TRUE(server);
  auto end = (*server)->connect_pair();
  ASSERT_TRUE(end);
  const auto client = open_local_store(*std::move(end));
  ASSERT_TRUE(client);
  std::thread getter([&] { EXPECT_TRUE((*client)->get("key", soon())); });
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_TRUE((*client)->set("key", {}));  // held up, it would come after the getter's time
  getter.join();
}

}  // namespace
}  // namespace tandem
