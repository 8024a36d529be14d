// A library for LD_PRELOAD that lets one system call of a program fail.
//
//   TANDEM_TEST_SYSCALL=name:n:action        the n-th use (from 1) of the wrapper `name` fails; `action` is
//                                            an errno's name, or `short` for half of the bytes
//   TANDEM_TEST_SYSCALL=name@site:n:action   the same of the n-th use at one call site, given in hexadecimal
//   TANDEM_TEST_SYSCALL_COUNTS=file          a file of sizeof(Counts) bytes, zero at first. All processes of
//                                            the program count their uses there together. It tells too who
//                                            met the fault.
//   TANDEM_TEST_SYSCALL_DEPTH=k              a call site is told by its k innermost return addresses in the
//                                            program itself, libraries left out; all if it is not set
//
// Calls that libc makes within itself do not come by here.
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr std::string_view kCalls[] = {
    "open",           "openat",    "socket",     "socketpair", "accept4",         "bind",      "listen",
    "connect",        "read",      "write",      "recvmsg",    "sendmsg",         "pread",     "pwrite",
    "mmap",           "fcntl",     "fsync",      "ftruncate",  "posix_fallocate", "fallocate", "memfd_create",
    "eventfd",        "getrandom", "pidfd_open", "fork",       "flock",           "rename",    "renameat",
    "pthread_create", "mkdtemp",   "poll",       "pipe2",      "linkat",          "fchmod",    "close",
    "execv",          "waitpid",
};
constexpr std::size_t kNumCalls = std::size(kCalls);
constexpr std::size_t kMaxFrames = 24;

struct Site {
  std::atomic<std::uint64_t> hash;  ///< of the call and `frames`; 0 if the slot is free
  std::atomic<std::uint64_t> uses;
  std::uint64_t call;                ///< index in kCalls
  std::uint64_t frames[kMaxFrames];  ///< return addresses, from the start of the program's file
};
constexpr std::size_t kNumSites = 2048;

struct Counts {
  std::atomic<std::uint64_t> uses[64];
  std::atomic<std::uint64_t> victim;       ///< the process that met the fault; 0 if none did
  std::atomic<std::uint64_t> victim_site;  ///< index in sites
  Site sites[kNumSites];
};
static_assert(kNumCalls <= 64);

struct Action {
  std::string_view name;
  int code;  ///< -1: short
};
constexpr Action kActions[] = {{"EINTR", EINTR},   {"EAGAIN", EAGAIN}, {"EMFILE", EMFILE}, {"ENFILE", ENFILE},
                               {"ENOMEM", ENOMEM}, {"ENOSPC", ENOSPC}, {"EIO", EIO},       {"EPERM", EPERM},
                               {"ENOSYS", ENOSYS}, {"ENOLCK", ENOLCK}, {"short", -1}};

Counts own_counts;
Counts* counts = &own_counts;
std::size_t chosen = kNumCalls;
std::uint64_t chosen_site = 0;  ///< 0: any
std::uint64_t chosen_use = 0;
std::size_t depth = kMaxFrames;
int chosen_code = 0;
bool is_ready = false;

template <class F>
F real(const char* name, F) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}
#define REAL(name)                                  \
  (*[] {                                            \
    static const auto found = real(#name, &::name); \
    return found;                                   \
  }())

void choose(std::string_view text) {
  const auto first = text.find(':');
  const auto second = text.find(':', first + 1);
  if (second == std::string_view::npos) std::abort();
  const std::string_view place = text.substr(0, first);
  const std::string_view name = place.substr(0, place.find('@'));
  if (name != place) chosen_site = std::strtoull(place.data() + name.size() + 1, nullptr, 16);
  chosen =
      static_cast<std::size_t>(std::find(std::begin(kCalls), std::end(kCalls), name) - std::begin(kCalls));
  chosen_use = std::strtoull(text.data() + first + 1, nullptr, 10);
  const auto* const action = std::find_if(std::begin(kActions), std::end(kActions), [&](const Action& known) {
    return known.name == text.substr(second + 1);
  });
  if (chosen == kNumCalls || action == std::end(kActions)) std::abort();
  chosen_code = action->code;
}

__attribute__((constructor)) void prepare() {
  if (const char* const path = std::getenv("TANDEM_TEST_SYSCALL_COUNTS")) {
    const int fd = REAL(open)(path, O_RDWR | O_CLOEXEC);
    void* const shared = REAL(mmap)(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || shared == MAP_FAILED) std::abort();
    ::close(fd);
    counts = static_cast<Counts*>(shared);
  }
  if (const char* const text = std::getenv("TANDEM_TEST_SYSCALL")) choose(text);
  if (const char* const text = std::getenv("TANDEM_TEST_SYSCALL_DEPTH"))
    depth = std::strtoull(text, nullptr, 10);
  void* frame = nullptr;
  (void)::backtrace(&frame, 1);  // loads what it needs before a call is counted
  is_ready = true;
}

/// The site's slot of the call that is made now. Aborts if there are more sites than slots.
Site& site_of(std::size_t call) {
  void* addresses[kMaxFrames];
  std::uint64_t frames[kMaxFrames] = {};
  std::size_t num_own = 0;
  const int num_frames = ::backtrace(addresses, kMaxFrames);
  std::uint64_t hash = 14695981039346656037U + call;
  for (int i = 0; i < num_frames && num_own < depth; ++i) {
    Dl_info info{};
    if (::dladdr(addresses[i], &info) == 0 || std::strstr(info.dli_fname, ".so") != nullptr) continue;
    const std::uint64_t frame =
        reinterpret_cast<std::uint64_t>(addresses[i]) - reinterpret_cast<std::uint64_t>(info.dli_fbase);
    hash = (hash ^ frame) * 1099511628211U;
    frames[num_own++] = frame;
    hash ^= hash >> 29U;
  }
  hash |= 1U;
  for (std::size_t i = 0; i < kNumSites; ++i) {
    Site& site = counts->sites[(hash + i) % kNumSites];
    std::uint64_t found = 0;
    if (site.hash.compare_exchange_strong(found, hash)) {
      site.call = call;
      std::copy(std::begin(frames), std::end(frames), site.frames);
      found = hash;
    }
    if (found == hash) return site;
  }
  std::abort();
}

constexpr std::size_t index_of(std::string_view name) {
  for (std::size_t i = 0; i < kNumCalls; ++i)
    if (kCalls[i] == name) return i;
  return kNumCalls;
}

/// Counts a use. The errno to fail with, -1 to be short, 0 to go on.
int fault_of(std::size_t call) {
  if (!is_ready) return 0;
  const int before = errno;
  Site& site = site_of(call);
  const std::uint64_t use = ++counts->uses[call];
  const std::uint64_t use_of_site = ++site.uses;
  errno = before;
  if (call != chosen || (chosen_site != 0 && site.hash != chosen_site)) return 0;
  if ((chosen_site != 0 ? use_of_site : use) != chosen_use) return 0;
  counts->victim_site = static_cast<std::uint64_t>(&site - counts->sites);
  counts->victim = static_cast<std::uint64_t>(::getpid());
  return chosen_code;
}

std::size_t shortened(std::size_t num_bytes, int fault) {
  return fault == -1 && num_bytes > 1 ? num_bytes / 2 : num_bytes;
}

}  // namespace

// NOLINTBEGIN: the names and types are those of libc
#pragma GCC diagnostic ignored "-Wshadow"  // flock is also the name of a struct
#define FAIL_IF_CHOSEN(name, failure)          \
  static_assert(index_of(#name) < kNumCalls);  \
  const int fault = fault_of(index_of(#name)); \
  if (fault > 0) {                             \
    errno = fault;                             \
    return failure;                            \
  }

extern "C" {

static mode_t mode_of(int flags, va_list rest) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
}

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  FAIL_IF_CHOSEN(open, -1)
  return REAL(open)(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  FAIL_IF_CHOSEN(openat, -1)
  return REAL(openat)(folder, path, flags, mode);
}
int socket(int domain, int type, int protocol) noexcept {
  FAIL_IF_CHOSEN(socket, -1)
  return REAL(socket)(domain, type, protocol);
}
int socketpair(int domain, int type, int protocol, int ends[2]) noexcept {
  FAIL_IF_CHOSEN(socketpair, -1)
  return REAL(socketpair)(domain, type, protocol, ends);
}
int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  FAIL_IF_CHOSEN(accept4, -1)
  return REAL(accept4)(fd, address, length, flags);
}
int bind(int fd, const sockaddr* address, socklen_t length) noexcept {
  FAIL_IF_CHOSEN(bind, -1)
  return REAL(bind)(fd, address, length);
}
int listen(int fd, int backlog) noexcept {
  FAIL_IF_CHOSEN(listen, -1)
  return REAL(listen)(fd, backlog);
}
int connect(int fd, const sockaddr* address, socklen_t length) {
  FAIL_IF_CHOSEN(connect, -1)
  return REAL(connect)(fd, address, length);
}
ssize_t read(int fd, void* bytes, size_t count) {
  FAIL_IF_CHOSEN(read, -1)
  return REAL(read)(fd, bytes, shortened(count, fault));
}
ssize_t write(int fd, const void* bytes, size_t count) {
  FAIL_IF_CHOSEN(write, -1)
  return REAL(write)(fd, bytes, shortened(count, fault));
}
ssize_t pread(int fd, void* bytes, size_t count, off_t at) {
  FAIL_IF_CHOSEN(pread, -1)
  return REAL(pread)(fd, bytes, shortened(count, fault), at);
}
ssize_t pwrite(int fd, const void* bytes, size_t count, off_t at) {
  FAIL_IF_CHOSEN(pwrite, -1)
  return REAL(pwrite)(fd, bytes, shortened(count, fault), at);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  FAIL_IF_CHOSEN(recvmsg, -1)
  return REAL(recvmsg)(fd, message, flags);
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  FAIL_IF_CHOSEN(sendmsg, -1)
  return REAL(sendmsg)(fd, message, flags);
}
void* mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) noexcept {
  FAIL_IF_CHOSEN(mmap, MAP_FAILED)
  return REAL(mmap)(address, length, protection, flags, fd, offset);
}
int fcntl(int fd, int command, ...) {
  va_list rest;
  va_start(rest, command);
  const long argument = va_arg(rest, long);
  va_end(rest);
  FAIL_IF_CHOSEN(fcntl, -1)
  return REAL(fcntl)(fd, command, argument);
}
int fsync(int fd) {
  FAIL_IF_CHOSEN(fsync, -1)
  return REAL(fsync)(fd);
}
int ftruncate(int fd, off_t length) noexcept {
  FAIL_IF_CHOSEN(ftruncate, -1)
  return REAL(ftruncate)(fd, length);
}
int posix_fallocate(int fd, off_t offset, off_t length) {
  const int fault = fault_of(index_of("posix_fallocate"));
  return fault > 0 ? fault : REAL(posix_fallocate)(fd, offset, length);  // errno stays
}
int fallocate(int fd, int mode, off_t offset, off_t length) {
  FAIL_IF_CHOSEN(fallocate, -1)
  return REAL(fallocate)(fd, mode, offset, length);
}
int memfd_create(const char* name, unsigned flags) noexcept {
  FAIL_IF_CHOSEN(memfd_create, -1)
  return REAL(memfd_create)(name, flags);
}
int eventfd(unsigned value, int flags) noexcept {
  using Function = int (*)(unsigned, int);
  static const auto found = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "eventfd"));
  FAIL_IF_CHOSEN(eventfd, -1)
  return found(value, flags);
}
ssize_t getrandom(void* bytes, size_t count, unsigned flags) {
  FAIL_IF_CHOSEN(getrandom, -1)
  return REAL(getrandom)(bytes, count, flags);
}
pid_t fork() noexcept {
  FAIL_IF_CHOSEN(fork, -1)
  return REAL(fork)();
}
int flock(int fd, int operation) noexcept {
  using Function = int (*)(int, int);
  static const auto found = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "flock"));
  FAIL_IF_CHOSEN(flock, -1)
  return found(fd, operation);
}
int rename(const char* from, const char* to) noexcept {
  using Function = int (*)(const char*, const char*);
  static const auto found = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "rename"));
  FAIL_IF_CHOSEN(rename, -1)
  return found(from, to);
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  using Function = int (*)(int, const char*, int, const char*);
  static const auto found = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "renameat"));
  FAIL_IF_CHOSEN(renameat, -1)
  return found(from_folder, from, to_folder, to);
}
char* mkdtemp(char* pattern) noexcept {
  FAIL_IF_CHOSEN(mkdtemp, nullptr)
  return REAL(mkdtemp)(pattern);
}
int pipe2(int ends[2], int flags) noexcept {
  FAIL_IF_CHOSEN(pipe2, -1)
  return REAL(pipe2)(ends, flags);
}
int poll(pollfd* entries, nfds_t count, int timeout_ms) {
  FAIL_IF_CHOSEN(poll, -1)
  return REAL(poll)(entries, count, timeout_ms);
}
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  using Function = int (*)(int, const char*, int, const char*, int);
  static const auto found = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "linkat"));
  FAIL_IF_CHOSEN(linkat, -1)
  return found(from_folder, from, to_folder, to, flags);
}
int fchmod(int fd, mode_t mode) noexcept {
  using Function = int (*)(int, mode_t);
  static const auto found = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "fchmod"));
  FAIL_IF_CHOSEN(fchmod, -1)
  return found(fd, mode);
}
int close(int fd) {
  const int closed = REAL(close)(fd);  // the file is closed even if the kernel says that something failed
  FAIL_IF_CHOSEN(close, -1)
  return closed;
}
int execv(const char* path, char* const arguments[]) noexcept {
  using Function = int (*)(const char*, char* const*);
  static const auto found = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "execv"));
  FAIL_IF_CHOSEN(execv, -1)
  return found(path, arguments);
}
pid_t waitpid(pid_t process, int* status, int options) {
  FAIL_IF_CHOSEN(waitpid, -1)
  return REAL(waitpid)(process, status, options);
}
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) noexcept {
  const int fault = fault_of(index_of("pthread_create"));
  return fault > 0 ? fault : REAL(pthread_create)(thread, attributes, body, argument);  // errno stays
}
long syscall(long number, ...) noexcept {
  using Function = long (*)(long, ...);
  // No static that is made at first use: where two threads come first, its guard waits by this function.
  static std::atomic<Function> known{nullptr};
  Function found = known.load(std::memory_order_acquire);
  if (found == nullptr) {
    found = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "syscall"));
    known.store(found, std::memory_order_release);
  }
  va_list rest;
  va_start(rest, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(rest, long);
  va_end(rest);
  if (number == SYS_pidfd_open) {
    FAIL_IF_CHOSEN(pidfd_open, -1)
  }
  return found(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

}  // extern "C"
// NOLINTEND
