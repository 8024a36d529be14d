// One slot, two threads, plain data: the orders of put and take are all that makes it legal. Run with
// `correct` the thread sanitizer must be silent; with `put` or `take` that order is relaxed and it must
// report a data race.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <thread>

#include "symm/cpu/slot.hpp"

namespace {

using tandem::symm::cpu::Slot;
using tandem::symm::cpu::try_put;
using tandem::symm::cpu::try_take;

constexpr int kRounds = 1000;

template <std::memory_order kPut, std::memory_order kTake>
int run() {
  Slot there{0};
  Slot back{0};
  std::int64_t data = 0;  // only the signals order the accesses to it
  std::int64_t sum = 0;
  std::thread receiver([&] {
    for (int i = 0; i < kRounds; ++i) {
      while (!try_take<kTake>(there)) std::this_thread::yield();
      sum += data;
      while (!try_put<kPut>(back)) std::this_thread::yield();
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    data = i;
    while (!try_put<kPut>(there)) std::this_thread::yield();
    while (!try_take<kTake>(back)) std::this_thread::yield();
  }
  receiver.join();
  std::printf("sum %lld\n", static_cast<long long>(sum));
  return sum == std::int64_t{kRounds} * (kRounds - 1) / 2 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view which = argc > 1 ? argv[1] : "correct";
  if (which == "put") return run<std::memory_order_relaxed, std::memory_order_acquire>();
  if (which == "take") return run<std::memory_order_release, std::memory_order_relaxed>();
  return run<std::memory_order_release, std::memory_order_acquire>();
}
