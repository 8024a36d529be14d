#include "host_probes.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <tandem/base/unique_fd.hpp>

namespace tandem::cli {
namespace {

Support refused(const char* call, const char* remedy) {
  return Support::no(fmt::format("{}: {}; {}", call, std::strerror(errno), remedy));
}

constexpr const char* kAllowSyscall = "allow this system call in the container's seccomp profile";

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
  return ::sendmsg(socket, &message, 0) == 1;
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
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) return UniqueFd();
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_RIGHTS) return UniqueFd();
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
  return UniqueFd(fd);
}

}  // namespace

Support probe_sealed_memory() {
  const UniqueFd fd(::memfd_create("tandem doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return refused("memfd_create", kAllowSyscall);
  const long page = ::sysconf(_SC_PAGESIZE);
  if (const int code = ::posix_fallocate(fd.get(), 0, page); code != 0) {
    errno = code;
    return refused("posix_fallocate", "raise the memory limit");
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return refused("fcntl(F_ADD_SEALS)", kAllowSyscall);
  }
  void* memory =
      ::mmap(nullptr, static_cast<std::size_t>(page), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return refused("mmap", "raise the address space limit (ulimit -v)");
  ::munmap(memory, static_cast<std::size_t>(page));
  return Support::yes();
}

Support probe_fd_passing() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return refused("socketpair", kAllowSyscall);
  const UniqueFd here(ends[0]);
  const UniqueFd there(ends[1]);
  if (!send_fd(here.get(), here.get()))
    return refused("sendmsg(SCM_RIGHTS)", "allow passing open files between processes");
  if (!receive_fd(there.get()).valid())
    return refused("recvmsg(SCM_RIGHTS)", "raise the open file limit (ulimit -n)");
  return Support::yes();
}

Support probe_futex() {
  std::uint32_t word = 0;
  const timespec now{0, 0};
  // Nobody wakes it: what works times out at once.
  if (::syscall(SYS_futex, &word, FUTEX_WAIT, 0, &now, nullptr, 0) == 0 || errno == ETIMEDOUT)
    return Support::yes();
  return refused("futex", kAllowSyscall);
}

Support probe_pidfd() {
  const UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  return fd.valid() ? Support::yes()
                    : refused("pidfd_open", "needs Linux 5.3, and a seccomp profile that allows it");
}

}  // namespace tandem::cli
