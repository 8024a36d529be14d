#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <tandem/device/device.hpp>
#include <thread>

#include "base/usable_cores.hpp"
#include "device/cpu/cpu_device.hpp"
#include "device/cpu/processor.hpp"
#include "device/cpu/word_wait.hpp"

namespace tandem::cpu {
namespace {

TEST(Processor, UsableCoresFollowTheAffinity) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(Processor, DescriptionNamesProcessorCoresAndInstructionSet) {
  Config config;
  const std::string own = make_device(0, config).value()->description();
  EXPECT_NE(own.find(processor_name() + ", " + std::to_string(usable_cores()) + " core"), std::string::npos)
      << own;
  EXPECT_TRUE(own.ends_with(", " + std::string(best_isa()))) << own;
  config.isa = "scalar";
  const std::string forced = make_device(0, config).value()->description();
  EXPECT_TRUE(forced.ends_with(", scalar")) << forced;
}

TEST(Processor, WrittenWordWakesWhoSleepsOnIt) {
  const auto device = make_device(0, Config{}).value();
  const auto stream = device->create_stream().value();
  alignas(4) std::uint32_t word = 0;
  const auto seen = [&] { return std::atomic_ref(word).load(); };
  std::atomic<int> outcome{-1};
  std::thread sleeper([&] {
    // A lost wake-up shows as a sleep that only ends by the timeout.
    const timespec timeout{10, 0};
    long result = 0;
    while (seen() == 0 && result == 0) {
      result = syscall(SYS_futex, &word, FUTEX_WAIT, 0, &timeout, nullptr, 0);
      if (result != 0 && (errno == EAGAIN || errno == EINTR)) result = 0;
    }
    outcome = result == 0 ? 1 : 0;
  });
  EXPECT_TRUE(stream->sleep(std::chrono::milliseconds(30)).has_value());
  const TensorView words = TensorView::contiguous(&word, {1}, DType::kU32);
  EXPECT_TRUE(stream->stream_write_value32(words, 0, 5).has_value());
  sleeper.join();
  EXPECT_EQ(outcome, 1) << "nobody woke the sleeper";
  EXPECT_EQ(seen(), 5U);
}

TEST(Processor, AWordThatNobodyCanSleepOnIsAnError) {
  // A read-only page that is no file's and never was written: nobody can ever write there, and the system
  // refuses to sleep on it. Without the error this would poll until the deadline.
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const page = mmap(nullptr, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const auto* word = static_cast<const std::uint32_t*>(page);
  const auto seen = await_word(word, 1, Deadline::after(std::chrono::seconds(20)));
  ASSERT_FALSE(seen);
  EXPECT_EQ(seen.error().code(), ErrorCode::kDriver);
  EXPECT_EQ(seen.error().native_code(), EFAULT);
  EXPECT_NE(seen.error().text().find("cannot sleep on the word at 0x"), std::string::npos)
      << seen.error().text();
  const auto none = await_word(word, 0, Deadline::never());
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, 0U) << "reached without a sleep";
  munmap(page, page_bytes);
}

}  // namespace
}  // namespace tandem::cpu
