// What the system does to messages between a store and its clients: interruptions, and files that do not
// come.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/local_store_message.hpp"

namespace tandem::bootstrap {
namespace {

struct Ends {
  UniqueFd one;
  UniqueFd other;
};

Ends connected() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

std::atomic<int> num_interruptions{0};

/// Signals for the calling thread, which a handler takes and which end its system calls. They come until
/// there were several; then `and_then` runs.
class Interruptions {
 public:
  template <class F>
  explicit Interruptions(F and_then)
      : thread_([this, and_then] {
          for (const int enough = num_interruptions + 20; num_interruptions < enough;) {
            pthread_kill(caller_, SIGUSR1);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          and_then();
        }) {}
  ~Interruptions() {
    thread_.join();
    ::sigaction(SIGUSR1, &before_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  static struct sigaction handle() {
    struct sigaction action {};
    action.sa_handler = [](int) { ++num_interruptions; };  // without SA_RESTART
    struct sigaction before {};
    ::sigaction(SIGUSR1, &action, &before);
    return before;
  }
  const struct sigaction before_ = handle();
  const pthread_t caller_ = pthread_self();
  std::thread thread_;
};

TEST(Messages, AWaitForOneIsNotEndedBySignals) {
  const Ends ends = connected();
  Result<std::optional<Message>> received = std::nullopt;
  {
    const Interruptions signals([&] { EXPECT_TRUE(send_message(ends.other.get(), {}, "key", {})); });
    received = receive_message(ends.one.get());
  }
  ASSERT_TRUE(received) << received.error().to_string();
  ASSERT_TRUE(*received);
  EXPECT_EQ((*received)->key, "key");
}

TEST(Messages, ASenderWithoutRoomIsNotEndedBySignals) {
  const Ends ends = connected();
  const std::vector<std::byte> value(kMaxValueBytes);
  int num_sent = 0;  // fills the connection
  while (::send(ends.one.get(), value.data(), value.size(), MSG_DONTWAIT) > 0) ++num_sent;
  ASSERT_GT(num_sent, 0);
  const auto drain = [&] {
    std::vector<std::byte> room(value.size() + 2 * kMaxKeyBytes);
    for (int i = 0; i < num_sent; ++i) EXPECT_GT(::recv(ends.other.get(), room.data(), room.size(), 0), 0);
  };
  Result<void> sent;
  {
    const Interruptions signals(drain);
    sent = send_message(ends.one.get(), {}, "key", value);
  }
  EXPECT_TRUE(sent) << sent.error().to_string();
  const auto received = receive_message(ends.other.get());
  ASSERT_TRUE(received) << received.error().to_string();
  EXPECT_EQ((*received)->value.size(), value.size());
}

TEST(Messages, AFileThatCameIsNotInheritedByOtherPrograms) {
  const Ends ends = connected();
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(send_message(ends.one.get(), {}, "key", {}, file.get()));
  const auto received = receive_message(ends.other.get());
  ASSERT_TRUE(received && *received && (*received)->file.valid());
  EXPECT_NE(::fcntl((*received)->file.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Messages, AFileForWhichThereIsNoDescriptorIsAnErrorThatNamesTheLimit) {
  const Ends ends = connected();
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(send_message(ends.one.get(), {}, "key", {}, file.get()));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto received = receive_message(ends.other.get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(received) << "the file is missing silently";
  EXPECT_EQ(received.error().native_code(), EMFILE) << received.error().to_string();
  EXPECT_NE(received.error().text().find("ulimit -n"), std::string::npos) << received.error().text();
}

TEST(Messages, ManyFilesAreRefusedAndClosed) {
  const Ends ends = connected();
  const UniqueFd file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  constexpr std::size_t kNumFiles = 20;  // more than there is room for
  const MessageHead head;
  iovec part{const_cast<MessageHead*>(&head), sizeof(head)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kNumFiles)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const files = CMSG_FIRSTHDR(&message);
  files->cmsg_level = SOL_SOCKET;
  files->cmsg_type = SCM_RIGHTS;
  files->cmsg_len = CMSG_LEN(sizeof(int) * kNumFiles);
  std::array<int, kNumFiles> fds;
  fds.fill(file.get());
  std::memcpy(CMSG_DATA(files), fds.data(), sizeof(fds));
  ASSERT_GT(::sendmsg(ends.one.get(), &message, MSG_NOSIGNAL), 0);
  const int next_before = UniqueFd(::dup(file.get())).get();
  const auto received = receive_message(ends.other.get());
  ASSERT_FALSE(received);
  EXPECT_EQ(received.error().code(), ErrorCode::kParse) << received.error().to_string();
  EXPECT_EQ(UniqueFd(::dup(file.get())).get(), next_before) << "a file stays open";
}

}  // namespace
}  // namespace tandem::bootstrap
