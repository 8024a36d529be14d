#include "block.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <utility>
#include <vector>

thread_local uint3 threadIdx;
thread_local uint3 blockIdx;
thread_local dim3 blockDim;
thread_local dim3 gridDim;

namespace tandem::simulated {
namespace {

namespace context = boost::context;

constexpr int kWarpSize = 32;

/// Stacks of fibers, kept for the next ones of this host thread, which lives as long as the process. The last
/// word of each tells whether a thread of a kernel came that far; pages between, untouched, take no memory.
class StackPool {
 public:
  context::stack_context allocate() {
    if (free_.empty()) add_stacks();
    const auto stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void give_back(const context::stack_context& stack) {
    if (last_word(stack) != kUntouched) {
      std::fputs("simulated GPU: a thread of a kernel has overrun its stack\n", stderr);
      std::abort();
    }
    free_.push_back(stack);
  }

 private:
  static constexpr std::size_t kStackBytes = 64 << 10;
  static constexpr std::size_t kStacksAtOnce = 64;
  static constexpr std::uint64_t kUntouched = 0x57ac4e9d57ac4e9d;

  static std::uint64_t& last_word(const context::stack_context& stack) {
    return *reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(stack.sp) - stack.size);
  }

  void add_stacks() {
    void* const stacks = ::mmap(nullptr, kStacksAtOnce * kStackBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) throw std::bad_alloc();
    for (std::size_t i = 1; i <= kStacksAtOnce; ++i) {
      context::stack_context stack;
      stack.size = kStackBytes;
      stack.sp = static_cast<std::byte*>(stacks) + i * kStackBytes;  // they grow downwards
      last_word(stack) = kUntouched;
      free_.push_back(stack);
    }
  }

  std::vector<context::stack_context> free_;
};

StackPool& stack_pool() {
  thread_local StackPool pool;
  return pool;
}

struct PooledStack {
  context::stack_context allocate() { return stack_pool().allocate(); }
  void deallocate(context::stack_context& stack) { stack_pool().give_back(stack); }
};

/// Threads that wait until all of them that are alive have come.
class MeetingPoint {
 public:
  void expect(int count) { alive_ = count; }
  /// Which meeting the caller has come to: it has taken place once `num_met()` is more.
  int come() {
    const int number = num_met_;
    ++here_;
    close_if_complete();
    return number;
  }
  void leave() {
    --alive_;
    close_if_complete();
  }
  int num_met() const { return num_met_; }

 private:
  void close_if_complete() {
    if (here_ == 0 || here_ < alive_) return;
    here_ = 0;
    ++num_met_;
  }
  int alive_ = 0;
  int here_ = 0;
  int num_met_ = 0;
};

struct Warp {
  MeetingPoint meeting;
  std::array<std::array<std::uint64_t, kWarpSize>, 2> brought{};
};

class Block {
 public:
  Block(const Launch& launch, uint3 index)
      : launch_(launch),
        index_(index),
        num_threads_(static_cast<int>(count_of(launch.block))),
        warps_(static_cast<std::size_t>((num_threads_ + kWarpSize - 1) / kWarpSize)) {
    meeting_.expect(num_threads_);
    for (int first = 0; first < num_threads_; first += kWarpSize)
      warp_of(first).meeting.expect(std::min(kWarpSize, num_threads_ - first));
  }

  void run();
  void pause() { switch_away(); }
  bool sync(bool value);
  std::array<std::uint64_t, 32> exchange(std::uint64_t value);

 private:
  /// Runs one thread after the other, as long as none of them waits.
  struct Fiber {
    context::fiber resume;
    uint3 index{};
    int thread = 0;
    const MeetingPoint* awaits = nullptr;
    int meeting = 0;
    bool has_ended = false;
  };

  Warp& warp_of(int thread) { return warps_[static_cast<std::size_t>(thread / kWarpSize)]; }
  void start_fiber();
  void run_threads(Fiber& fiber);
  void resume(Fiber& fiber);
  void switch_away();
  void meet(MeetingPoint& point);

  const Launch& launch_;
  uint3 index_;
  int num_threads_;
  int next_thread_ = 0;
  MeetingPoint meeting_;
  std::array<bool, 3> all_true_ = {true, true, true};  // of a meeting, the one before and the next
  std::vector<Warp> warps_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  context::fiber scheduler_;
};

thread_local Block* this_block = nullptr;

void Block::run() {
  this_block = this;
  blockIdx = index_;
  blockDim = launch_.block;
  gridDim = launch_.grid;
  int idle_rounds = 0;
  while (next_thread_ < num_threads_ || !fibers_.empty()) {
    const int before = next_thread_;
    const int met_before = meeting_.num_met();
    if (next_thread_ < num_threads_) start_fiber();
    for (const auto& fiber : fibers_) {
      if (fiber->awaits != nullptr && fiber->awaits->num_met() <= fiber->meeting) continue;
      fiber->awaits = nullptr;
      resume(*fiber);
    }
    const auto ended = std::erase_if(fibers_, [](const auto& fiber) { return fiber->has_ended; });
    // What is left polls: what it polls for comes from another host thread.
    if (ended > 0 || next_thread_ != before || meeting_.num_met() != met_before) {
      idle_rounds = 0;
    } else if (++idle_rounds < 64) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
  this_block = nullptr;
}

void Block::start_fiber() {
  auto fiber = std::make_unique<Fiber>();
  Fiber& started = *fiber;
  started.resume = context::fiber(std::allocator_arg, PooledStack{}, [this, &started](context::fiber&& from) {
    scheduler_ = std::move(from);
    run_threads(started);
    started.has_ended = true;
    return std::move(scheduler_);
  });
  fibers_.push_back(std::move(fiber));
}

void Block::run_threads(Fiber& fiber) {
  while (next_thread_ < num_threads_) {
    const int thread = next_thread_++;
    fiber.thread = thread;
    fiber.index = place_in(launch_.block, static_cast<unsigned>(thread));
    threadIdx = fiber.index;
    launch_.body();
    meeting_.leave();
    warp_of(thread).meeting.leave();
  }
}

void Block::resume(Fiber& fiber) {
  running_ = &fiber;
  threadIdx = fiber.index;
  fiber.resume = std::move(fiber.resume).resume();
}

void Block::switch_away() {
  scheduler_ = std::move(scheduler_).resume();
}

void Block::meet(MeetingPoint& point) {
  Fiber& fiber = *running_;
  fiber.meeting = point.come();
  if (point.num_met() > fiber.meeting) return;
  fiber.awaits = &point;
  switch_away();
}

bool Block::sync(bool value) {
  // Who has come here has read what the meeting before the last one said, and so has everybody else.
  const auto number = static_cast<std::size_t>(meeting_.num_met());
  const std::size_t slot = number % all_true_.size();
  all_true_[(number + 1) % all_true_.size()] = true;
  if (!value) all_true_[slot] = false;
  meet(meeting_);
  return all_true_[slot];
}

std::array<std::uint64_t, 32> Block::exchange(std::uint64_t value) {
  const int thread = running_->thread;
  Warp& warp = warp_of(thread);
  const auto parity = static_cast<std::size_t>(warp.meeting.num_met() % 2);
  warp.brought[parity][static_cast<std::size_t>(thread % kWarpSize)] = value;
  meet(warp.meeting);
  return warp.brought[parity];
}

}  // namespace

void run_block(const Launch& launch, uint3 index) {
  Block(launch, index).run();
}

void pause() {
  this_block->pause();
}

bool sync_block(bool value) {
  return this_block->sync(value);
}

std::array<std::uint64_t, 32> exchange_in_warp(std::uint64_t value) {
  return this_block->exchange(value);
}

}  // namespace tandem::simulated
