#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <tandem/cpu/launch.hpp>
#include <tandem/timeline/timeline.hpp>
#include <tandem/trace/summary.hpp>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "device/stamps.hpp"

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::RankContextOfTest;

constexpr std::int32_t kMaxEvents = 1000;

/// The texts of a rank's events, one behind the other.
std::string steps_of(const trace::RankEvents& rank) {
  std::string text;
  for (const trace::Event& event : rank.events) {
    if (!text.empty()) text += " | ";
    text += rank.text(event.step);
  }
  return text;
}

class TimelineCalls : public ::testing::Test {
 protected:
  using Body = std::function<Result<void>(RankContextOfTest&, Timeline&)>;
  /// On ranks that note everything.
  void run(int world, const Body& body, std::int32_t max_events = kMaxEvents) {
    test::on_ranks({.ranks = {{DeviceKind::kCpu}, world}}, test::quick_config(), complaints_,
                   [&](RankContextOfTest& rank) -> Result<void> {
                     auto timeline = Timeline::create(rank.device, max_events);
                     if (!timeline) return tl::unexpected(timeline.error());
                     rank.group.set_timeline(*timeline);
                     auto done = body(rank, **timeline);
                     static_cast<void>(rank.stream.synchronize());
                     return done;
                   });
    EXPECT_EQ(complaints_.text(), "");
  }
  /// An all-gather, waited for.
  static Result<void> gather(RankContextOfTest& rank) {
    const int world = rank.group.size();
    const Guarded input(rank.device, Dims{2, 3}, DType::kF32);
    const Guarded output(rank.device, Dims{2 * world, 3}, DType::kF32);
    auto done = coll::all_gather({.input = input.view(), .output = output.view()}, rank.group, rank.stream);
    const auto waited = rank.stream.synchronize();
    return done ? waited : done;
  }
  void expect(bool is_so, const std::string& what) {
    if (!is_so) complaints_.add(what);
  }

  Complaints complaints_;
};

TEST_F(TimelineCalls, NotesThePartsOfACollective) {
  run(2, [&](RankContextOfTest& rank, Timeline& timeline) -> Result<void> {
    for (int i = 0; i < 2; ++i) {
      if (auto done = gather(rank); !done) return done;
    }
    const auto noted = timeline.take(rank.group.rank());
    if (!noted) return tl::unexpected(noted.error());
    const std::string peer = std::to_string(1 - rank.group.rank());
    const std::string once =
        "cur: agree with all ranks | cur: publish | cur: barrier 1 | cur: get from rank " + peer +
        " | cur: copy the own part | cur: barrier 0";
    expect(steps_of(*noted) == once + " | " + once, steps_of(*noted));
    expect(noted->calls.size() == 2 && noted->text(noted->calls[1].op) == "all_gather f32 [4, 3]",
           "calls: " + std::string(noted->text(noted->calls.back().op)));
    expect(noted->text(noted->calls[0].algorithm) == "copies", "another algorithm");
    expect(noted->events[2].meeting >= 0 && noted->events[2].meeting != noted->events[5].meeting,
           "barriers of two channels are one meeting");
    expect(noted->events[3].bytes == 24 && noted->events[3].peer == 1 - rank.group.rank(), "get");
    return {};
  });
}

TEST_F(TimelineCalls, NamesEveryStream) {
  run(2, [&](RankContextOfTest& rank, Timeline& timeline) -> Result<void> {
    const Guarded part(rank.device, Dims{2, 3}, DType::kF32);
    const Guarded whole(rank.device, Dims{4, 3}, DType::kF32);
    auto done = coll::low_contention_all_gather({.input = part.view(), .output = whole.view()}, rank.group,
                                                rank.stream);
    if (done)
      done = coll::low_contention_reduce_scatter({.input = whole.view(), .output = part.view()}, rank.group,
                                                 rank.stream);
    const auto waited = rank.stream.synchronize();
    if (!done || !waited) return done ? waited : done;
    const auto noted = timeline.take(rank.group.rank());
    if (!noted) return tl::unexpected(noted.error());
    expect(noted->events.size() > 6 && noted->num_dropped == 0, steps_of(*noted));
    for (const trace::Event& event : noted->events) {
      const std::string stream(noted->text(event.stream));
      expect(stream == "cur" || stream == "bk", "stream '" + stream + "'");
      expect(noted->text(event.step).starts_with(stream), std::string(noted->text(event.step)));
    }
    return {};
  });
}

TEST_F(TimelineCalls, NamesTheRankThatStalls) {
  constexpr std::chrono::milliseconds kStall{300};
  run(4, [&](RankContextOfTest& rank, Timeline& timeline) -> Result<void> {
    if (auto done = gather(rank); !done) return done;
    if (auto noted = timeline.gather(rank.group); !noted) return tl::unexpected(noted.error());
    if (rank.group.rank() == 2) {
      if (auto done = rank.stream.sleep(kStall); !done) return done;
    }
    if (auto done = gather(rank); !done) return done;
    const auto trace = timeline.gather(rank.group);
    if (!trace) return tl::unexpected(trace.error());
    const trace::Summary summary = trace::summarize(*trace);
    if (summary.losses.empty()) {
      complaints_.add("no loss");
      return {};
    }
    const trace::Loss& loss = summary.losses[0];
    expect(loss.waited_for == 2, loss.because);
    expect(loss.what == "agree with all ranks", loss.what);
    expect(loss.us > 250e3, std::to_string(loss.us));
    expect(loss.because.starts_with("rank 2 came "), loss.because);
    expect(loss.because.find("nothing ran there from ") != std::string::npos, loss.because);
    expect(summary.slowest_rank == 2, "slowest rank " + std::to_string(summary.slowest_rank));
    return {};
  });
}

TEST_F(TimelineCalls, TellWhatFoundNoRoom) {
  run(
      1,
      [&](RankContextOfTest& rank, Timeline& timeline) -> Result<void> {
        for (int i = 0; i < 3; ++i) {
          if (auto done = gather(rank); !done) return done;
        }
        const auto full = timeline.take(0);
        if (!full) return tl::unexpected(full.error());
        expect(full->events.size() == 7, std::to_string(full->events.size()) + " events");
        expect(full->num_dropped == 8, std::to_string(full->num_dropped) + " dropped");
        expect(full->num_calls == 3, "calls");
        if (auto done = gather(rank); !done) return done;
        const auto next = timeline.take(0);
        if (!next) return tl::unexpected(next.error());
        expect(next->events.size() == 5 && next->num_dropped == 0 && next->calls.at(0).number == 0,
               steps_of(*next));
        return {};
      },
      7);
}

TEST_F(TimelineCalls, CountsWhatWasSkippedBehindAFault) {
  test::on_ranks({.ranks = {{DeviceKind::kCpu}, 1}}, test::quick_config(), complaints_,
                 [&](RankContextOfTest& rank) -> Result<void> {
                   auto timeline = Timeline::create(rank.device, kMaxEvents);
                   if (!timeline) return tl::unexpected(timeline.error());
                   rank.group.set_timeline(*timeline);
                   auto broken = cpu::launch(rank.stream, cpu::Task([]() -> Result<void> {
                                               return fail(ErrorCode::kNumeric, "planted");
                                             }));
                   expect(broken.has_value(), "launch");
                   static_cast<void>(gather(rank));
                   const auto noted = (*timeline)->take(0);
                   if (!noted) return tl::unexpected(noted.error());
                   expect(noted->events.empty() && noted->num_dropped > 0, steps_of(*noted));
                   return {};
                 });
  // A skipped call poisons its group.
  EXPECT_NE(complaints_.text().find("skipped"), complaints_.text().size());
}

TEST_F(TimelineCalls, NotesNothingOnceItIsTakenAway) {
  run(1, [&](RankContextOfTest& rank, Timeline& timeline) -> Result<void> {
    rank.group.set_timeline(nullptr);
    if (auto done = gather(rank); !done) return done;
    const auto noted = timeline.take(0);
    if (!noted) return tl::unexpected(noted.error());
    expect(noted->events.empty() && noted->num_calls == 0, steps_of(*noted));
    return {};
  });
}

TEST_F(TimelineCalls, RefusesWhatItCannotDo) {
  run(1, [&](RankContextOfTest& rank, Timeline&) -> Result<void> {
    for (const std::int32_t number : {-1, 0, Timeline::kMostEvents + 1}) {
      const auto refused = Timeline::create(rank.device, number);
      expect(!refused && refused.error().code() == ErrorCode::kInvalidArgument, std::to_string(number));
    }
    rank.device.attach<StampService>(nullptr);
    const auto refused = Timeline::create(rank.device);
    expect(!refused && refused.error().code() == ErrorCode::kUnsupported &&
               refused.error().text() == "timeline: streams of cpu:0 cannot take times",
           "without stamps");
    return {};
  });
}

TEST_F(TimelineCalls, SavesWholeFilesOrSaysWhyNot) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "timeline_saved" / "here";
  std::filesystem::remove_all(folder.parent_path());
  const trace::Trace trace(2);
  const auto saved = save(trace, trace::summarize(trace), origin_here("a test"), folder);
  ASSERT_TRUE(saved) << saved.error().to_string();
  EXPECT_TRUE(std::filesystem::exists(folder / "trace.json"));
  EXPECT_TRUE(std::filesystem::exists(folder / "trace.html"));
  const auto into_a_file = save(trace, trace::summarize(trace), origin_here("a test"), folder / "trace.json");
  ASSERT_FALSE(into_a_file);
  EXPECT_NE(into_a_file.error().text().find("trace.json"), std::string::npos) << into_a_file.error().text();
  std::filesystem::create_directories(folder / "taken" / "trace.json");
  const auto taken = save(trace, trace::summarize(trace), origin_here("a test"), folder / "taken");
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code(), ErrorCode::kInvalidArgument);
  std::filesystem::remove_all(folder.parent_path());
}

}  // namespace
}  // namespace tandem
