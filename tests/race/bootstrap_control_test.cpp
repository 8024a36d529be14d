// The waiting and agreement protocols under the thread sanitizer: ranks as threads, two waiting threads a
// rank.
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <random>
#include <tandem/bootstrap/thread_ranks.hpp>
#include <thread>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "bootstrap/control.hpp"

namespace tandem {
namespace {

using bootstrap::Control;
using bootstrap::control_of;
using bootstrap::Fingerprint;
using bootstrap::WaitInfo;

constexpr int kRounds = 150;

/// Words that go 0 -> 1 -> 0 -> ..., each with a plain number beside it that the word must publish.
struct Mailbox {
  std::atomic<std::uint32_t> word{0};
  int letter = 0;
};

/// Now and then a pause, so that sleepers and ringers meet in every order.
void dawdle(std::minstd_rand& random) {
  const auto draw = random() % 16;
  if (draw == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  if (draw == 1) std::this_thread::yield();
}

/// Sends a numbered letter to the next rank and takes one from the previous, `kRounds` times.
Result<void> pass_letters(Control& control, std::vector<Mailbox>& boxes, unsigned seed) {
  std::minstd_rand random(seed);
  const int next = (control.rank() + 1) % control.size();
  const int previous = (control.rank() + control.size() - 1) % control.size();
  Mailbox& to = boxes[static_cast<std::size_t>(next)];
  Mailbox& from = boxes[static_cast<std::size_t>(control.rank())];
  const auto deadline = Deadline::after(std::chrono::seconds(60));
  for (int round = 0; round < kRounds; ++round) {
    dawdle(random);
    const WaitInfo put{.what = "put_signal", .peer = next, .word = &to.word};
    TANDEM_TRY(control.wait(put, deadline, [&] { return to.word.load(std::memory_order_acquire) == 0; }));
    to.letter = round;
    to.word.store(1, std::memory_order_release);
    control.ring(next);
    dawdle(random);
    const WaitInfo take{.what = "wait_signal", .peer = previous, .expected = 1, .word = &from.word};
    TANDEM_TRY(control.wait(take, deadline, [&] { return from.word.load(std::memory_order_acquire) == 1; }));
    if (from.letter != round) {
      return failf(ErrorCode::kInternal, "rank {}: letter {}, need {}", control.rank(), from.letter, round);
    }
    from.word.store(0, std::memory_order_release);
    control.ring(previous);
  }
  return {};
}

TEST(ControlRace, TwoWaitingThreadsOfEachRankLoseNoSignal) {
  for (const int size : {2, 3, 4, 8}) {
    std::vector<Mailbox> first(static_cast<std::size_t>(size));
    std::vector<Mailbox> second(static_cast<std::size_t>(size));
    Config config;
    config.spin = std::chrono::microseconds(0);  // always sleep: that is what is under test
    const auto result = run_thread_ranks(size, config, [&](Group& group) -> Result<void> {
      Control& control = control_of(group);
      const auto seed = static_cast<unsigned>(group.rank() * 2 + 1);
      Result<void> other;
      std::thread thread([&] { other = pass_letters(control, second, seed + 1); });
      const auto mine = pass_letters(control, first, seed);
      thread.join();
      TANDEM_TRY(mine);
      return other;
    });
    EXPECT_TRUE(result) << "size " << size << ": " << result.error().to_string();
  }
}

TEST(ControlRace, SlotsOfCallsAreNeverReadTorn) {
  for (const int size : {2, 3, 4, 8}) {
    const auto result = run_thread_ranks(size, {}, [](Group& group) -> Result<void> {
      Control& control = control_of(group);
      std::minstd_rand random(static_cast<unsigned>(group.rank()) + 1);
      for (int call = 0; call < kRounds; ++call) {
        dawdle(random);
        const auto sequence = control.next_sequence();
        // Now and then everybody refuses, which runs ahead without waiting for the others' agreement.
        if (call % 10 >= 7) {
          control.refuse(sequence,
                         Error(ErrorCode::kInvalidArgument, fmt::format("call {} is refused", call)));
          continue;
        }
        const std::string text = fmt::format("{} {}", call, std::string(static_cast<std::size_t>(call), 'x'));
        TANDEM_TRY(control.agree(sequence, Fingerprint::of(text), Deadline::after(std::chrono::seconds(60))));
      }
      return {};
    });
    EXPECT_TRUE(result) << "size " << size << ": " << result.error().to_string();
  }
}

TEST(ControlRace, ExchangesAndAgreementsMayInterleave) {
  const auto result = run_thread_ranks(4, {}, [](Group& group) -> Result<void> {
    Control& control = control_of(group);
    const auto deadline = Deadline::after(std::chrono::seconds(60));
    Result<void> stream;
    std::thread thread([&] {
      for (int i = 0; i < kRounds && stream; ++i) {
        stream = control.agree(control.next_sequence(), Fingerprint::of("op"), deadline);
      }
    });
    Result<void> host;
    for (int i = 0; i < kRounds && host; ++i) {
      const auto all = group.all_gather(std::as_bytes(std::span(&i, 1)), "rounds");
      if (!all) host = tl::unexpected(all.error());
    }
    thread.join();
    TANDEM_TRY(host);
    return stream;
  });
  EXPECT_TRUE(result) << result.error().to_string();
}

TEST(ControlRace, AnnouncedCallsAreComparedByAnyThread) {
  for (const int size : {2, 4}) {
    const auto result = run_thread_ranks(size, {}, [](Group& group) -> Result<void> {
      Control& control = control_of(group);
      const auto deadline = Deadline::after(std::chrono::seconds(60));
      std::atomic<bool> is_done{false};
      Result<void> watched;
      std::thread watcher([&] {  // as a host thread that synchronizes a stream
        while (!is_done && watched) watched = control.compare_announced();
      });
      std::minstd_rand random(static_cast<unsigned>(group.rank()) + 1);
      const auto announce_all = [&]() -> Result<void> {
        for (int call = 0; call < 2 * kRounds; ++call) {
          dawdle(random);
          const auto sequence = control.next_sequence();
          const std::string text = fmt::format("call {}", call);
          TANDEM_TRY(call % 16 == 9 ? control.agree(sequence, Fingerprint::of(text), deadline)
                                    : control.announce(sequence, Fingerprint::of(text), deadline));
        }
        return control.wait_agreed(2 * kRounds, deadline);
      };
      const auto announced = announce_all();
      is_done = true;
      watcher.join();
      TANDEM_TRY(announced);
      return watched;
    });
    EXPECT_TRUE(result) << "size " << size << ": " << result.error().to_string();
  }
}

TEST(ControlRace, OneOfManyErrorsIsEverybodys) {
  for (int i = 0; i < 20; ++i) {
    std::vector<std::string> texts(4);
    std::barrier all_have_groups(4);  // poison also ends what another rank still does to make its group
    const auto result = run_thread_ranks(4, {}, [&](Group& group) -> Result<void> {
      all_have_groups.arrive_and_wait();
      group.poison(Error(ErrorCode::kNumeric, fmt::format("cause {}", group.rank())), group.rank());
      texts[static_cast<std::size_t>(group.rank())] = group.status().error().text();
      return {};
    });
    EXPECT_TRUE(result);
    for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  }
}

}  // namespace
}  // namespace tandem
