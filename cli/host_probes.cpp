#include "host_probes.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <tandem/base/unique_fd.hpp>

#include "base/system_refusal.hpp"

namespace tandem::cli {
namespace {

/// Of the call that has just set errno.
Support refused(const char* call) {
  return Support::no(system_refusal(call, errno).text());
}

bool send_fd(int socket, int fd) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &fd, sizeof(int));
  ssize_t count = -1;
  do {
    count = ::sendmsg(socket, &message, 0);
  } while (count < 0 && errno == EINTR);
  return count == 1;
}

UniqueFd receive_fd(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t count = -1;
  do {
    count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count != 1) return UniqueFd();
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return UniqueFd();
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
  return UniqueFd(fd);
}

}  // namespace

Support probe_sealed_memory() {
  const UniqueFd fd(::memfd_create("tandem doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return refused("memfd_create");
  const long page = ::sysconf(_SC_PAGESIZE);
  int code = EINTR;
  while (code == EINTR) code = ::posix_fallocate(fd.get(), 0, page);
  if (code != 0) {
    errno = code;
    return refused("posix_fallocate");
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return refused("fcntl(F_ADD_SEALS)");
  }
  void* memory =
      ::mmap(nullptr, static_cast<std::size_t>(page), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return refused("mmap");
  ::munmap(memory, static_cast<std::size_t>(page));
  return Support::yes();
}

Support probe_fd_passing() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return refused("socketpair");
  const UniqueFd here(ends[0]);
  const UniqueFd there(ends[1]);
  if (!send_fd(here.get(), here.get())) return refused("sendmsg(SCM_RIGHTS)");
  if (!receive_fd(there.get()).valid()) return refused("recvmsg(SCM_RIGHTS)");
  return Support::yes();
}

Support probe_futex() {
  std::uint32_t word = 0;
  const timespec now{0, 0};
  // Nobody wakes it: what works times out at once.
  if (::syscall(SYS_futex, &word, FUTEX_WAIT, 0, &now, nullptr, 0) == 0 || errno == ETIMEDOUT)
    return Support::yes();
  return refused("futex");
}

Support probe_pidfd() {
  const UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (fd.valid()) return Support::yes();
  return refused("pidfd_open, which needs Linux 5.3");
}

}  // namespace tandem::cli
