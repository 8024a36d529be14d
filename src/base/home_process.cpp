#include "base/home_process.hpp"

#include <pthread.h>
#include <unistd.h>

#include <new>

#include "base/format.hpp"

namespace tandem {
namespace {

struct Kept {
  const void* object = nullptr;
  Kept* next = nullptr;
};

std::atomic<Kept*> all_kept{nullptr};

}  // namespace

constinit std::atomic<int> HomeProcess::current{0};

// Takes no lock: another thread of the parent may have held any.
const int HomeProcess::registered =
    ::pthread_atfork(nullptr, nullptr, [] { current.fetch_add(1, std::memory_order_relaxed); });

HomeProcess::HomeProcess() : generation_(current.load(std::memory_order_relaxed)), pid_(::getpid()) {}

Error HomeProcess::refusal(std::string_view what) const {
  return Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} was made in process {} and is used in process {}, which came from it by fork(): "
                  "make a new one after the fork, or start processes without fork(), as tandem's "
                  "launchers do",
                  what, pid_, ::getpid()));
}

void note_kept(const void* object) noexcept {
  auto* kept = new (std::nothrow) Kept;
  if (kept == nullptr) return;
  kept->object = object;
  kept->next = all_kept.load(std::memory_order_relaxed);
  while (!all_kept.compare_exchange_weak(kept->next, kept, std::memory_order_relaxed)) {
  }
}

}  // namespace tandem
