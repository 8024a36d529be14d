#include <gtest/gtest.h>

#include <string>
#include <tandem/trace/page.hpp>
#include <tandem/trace/summary.hpp>

#include "trace/intervals.hpp"
#include "trace/lanes.hpp"

namespace tandem::trace {
namespace {

constexpr std::int64_t kMs = 1'000'000;

TEST(TraceIntervals, MergeWhatTouchesAndForgetWhatIsEmpty) {
  const Intervals set({{5, 7}, {1, 3}, {3, 4}, {6, 9}, {20, 20}});
  EXPECT_EQ(set.all(), (std::vector<Interval>{{1, 4}, {5, 9}}));
  EXPECT_EQ(set.total(), 7);
}

TEST(TraceIntervals, CountWhatLiesWithin) {
  const Intervals set({{1, 4}, {5, 9}});
  EXPECT_EQ(set.within({0, 10}), 7);
  EXPECT_EQ(set.within({3, 6}), 2);
  EXPECT_EQ(set.within({4, 5}), 0);
}

TEST(TraceIntervals, AreWithoutOthers) {
  const Intervals set({{0, 10}, {20, 30}});
  EXPECT_EQ(set.without(Intervals({{2, 4}, {8, 22}, {29, 40}})).all(),
            (std::vector<Interval>{{0, 2}, {4, 8}, {22, 29}}));
  EXPECT_EQ(set.without(Intervals()).all(), set.all());
  EXPECT_EQ(set.without(set).total(), 0);
}

TEST(TraceIntervals, HaveALargestGap) {
  const Intervals set({{2, 4}, {10, 12}});
  EXPECT_EQ(set.largest_gap({3, 11}), (Interval{4, 10}));
  EXPECT_EQ(set.largest_gap({0, 5}), (Interval{0, 2}));
  EXPECT_EQ(set.largest_gap({9, 20}), (Interval{12, 20}));
  EXPECT_EQ(set.largest_gap({10, 12}).length(), 0);
  EXPECT_EQ(Intervals().largest_gap({3, 8}), (Interval{3, 8}));
}

/// Ranks whose events are written down one by one, in ms.
class Story {
 public:
  explicit Story(int world) : trace_(static_cast<std::size_t>(world)) {
    for (int rank = 0; rank < world; ++rank) {
      RankEvents& events = of(rank);
      events.rank = rank;
      events.num_calls = 1;
      events.calls.push_back({.op = events.add_text("all_gather_matmul [8,8,8] f32")});
    }
  }
  RankEvents& of(int rank) { return trace_[static_cast<std::size_t>(rank)]; }
  /// What is added from here on is of another call.
  void begin_call(const char* op, const char* algorithm) {
    for (RankEvents& rank : trace_) {
      call_ = rank.num_calls++;
      rank.calls.push_back({.number = call_, .op = rank.add_text(op), .algorithm = rank.add_text(algorithm)});
    }
  }
  void continue_call(std::int32_t call) { call_ = call; }
  Event& add(int rank, const char* step, double begin_ms, double end_ms, Category category) {
    Event& event = of(rank).events.emplace_back();
    event.begin_ns = static_cast<std::int64_t>(begin_ms * kMs);
    event.end_ns = static_cast<std::int64_t>(end_ms * kMs);
    event.call = call_;
    event.step = of(rank).add_text(step);
    event.stream = of(rank).add_text("cur");
    event.category = category;
    return event;
  }
  void meet(int rank, double begin_ms, double end_ms, int meeting) {
    Event& event = add(rank, "cur: barrier 1", begin_ms, end_ms, Category::kWait);
    event.wait_for = WaitFor::kAll;
    event.meeting = meeting;
  }
  void get(int rank, int peer, double begin_ms, double end_ms) {
    Event& event = add(rank, "bk: get", begin_ms, end_ms, Category::kCopy);
    event.peer = peer;
    event.direction = Direction::kFrom;
  }
  [[nodiscard]] const Trace& trace() const { return trace_; }

 private:
  Trace trace_;
  std::int32_t call_ = 0;
};

TEST(TraceSummary, SharesOutTheTimeOfARank) {
  Story story(1);
  story.add(0, "cur: product", 0, 4, Category::kProduct);
  story.get(0, 1, 1, 3);
  story.get(0, 2, 2, 6);  // half of it beside the product
  story.add(0, "cur: wait", 5, 9, Category::kWait).wait_for = WaitFor::kPeer;  // 3 ms of it alone
  story.add(0, "cur: sum", 9, 10, Category::kSum);
  const RankSummary rank = summarize(story.trace()).ranks.at(0);
  EXPECT_DOUBLE_EQ(rank.product_us, 4000);
  EXPECT_DOUBLE_EQ(rank.communication_us, 5000);
  EXPECT_DOUBLE_EQ(rank.hidden_us, 3000);
  EXPECT_DOUBLE_EQ(*rank.hidden_share(), 0.6);
  EXPECT_DOUBLE_EQ(rank.waiting_us, 3000);
  EXPECT_DOUBLE_EQ(rank.busy_us, 7000);
}

TEST(TraceSummary, TellsTheLevelsOfHostsApart) {
  Story story(1);
  story.add(0, "cur: product", 0, 4, Category::kProduct);
  story.get(0, 1, 1, 3);
  Event& crossing = story.add(0, "net: await", 2, 10, Category::kCopy);
  crossing.peer = 2;
  crossing.direction = Direction::kFrom;
  crossing.is_between_hosts = true;
  const RankSummary rank = summarize(story.trace()).ranks.at(0);
  EXPECT_DOUBLE_EQ(rank.communication_us, 9000);
  EXPECT_DOUBLE_EQ(rank.between_hosts_us, 8000);
  EXPECT_DOUBLE_EQ(rank.between_hosts_hidden_us, 2000);
  EXPECT_DOUBLE_EQ(*rank.between_hosts_hidden_share(), 0.25);
  EXPECT_FALSE(TimeSums().between_hosts_hidden_share());
}

TEST(TraceSummary, DoesNotCountAProductThatWaitsForAChunk) {
  Story story(2);
  story.add(0, "cur: product", 0, 10, Category::kProduct);
  Event& wait = story.add(0, "cur: the product waits for chunk 1", 2, 5, Category::kWait);
  wait.wait_for = WaitFor::kPeer;
  wait.peer = 1;
  wait.within = 0;
  story.add(1, "cur: product", 0, 5, Category::kProduct);
  const Summary summary = summarize(story.trace());
  EXPECT_DOUBLE_EQ(summary.ranks[0].product_us, 7000);
  EXPECT_DOUBLE_EQ(summary.ranks[0].waiting_us, 3000);
  ASSERT_EQ(summary.losses.size(), 1U);
  EXPECT_EQ(summary.losses[0].waited_for, 1);
  EXPECT_EQ(summary.losses[0].because, "rank 1 had it 3.00 ms later: 'cur: product' took 5.00 ms there");
}

TEST(TraceSummary, ACollectiveIsAWaitUntilTheLastRankBeginsIt) {
  Story story(2);
  for (const int rank : {0, 1}) {
    story.add(rank, "cur: product", 0, 1, Category::kProduct);
    story.add(rank, "cur: all_gather by mailboxes", rank == 0 ? 1 : 6, 7, Category::kCopy).meeting = 4;
  }
  const Summary summary = summarize(story.trace());
  EXPECT_DOUBLE_EQ(summary.ranks[0].communication_us, 1000);
  EXPECT_DOUBLE_EQ(summary.ranks[0].waiting_us, 5000);
  EXPECT_DOUBLE_EQ(summary.ranks[0].busy_us, 2000);
  EXPECT_DOUBLE_EQ(summary.ranks[1].waiting_us, 0);
  ASSERT_EQ(summary.losses.size(), 1U);
  EXPECT_EQ(summary.losses[0].rank, 0);
  EXPECT_EQ(summary.losses[0].what, "all_gather by mailboxes");
  EXPECT_EQ(summary.losses[0].waited_for, 1);
  EXPECT_EQ(summary.losses[0].because, "rank 1 came 5.00 ms late: nothing ran there from 1.000 to 6.000 ms");
  EXPECT_EQ(summary.slowest_rank, 1);
}

TEST(TraceSummary, NamesTheRankThatCameLateAndItsGap) {
  Story story(3);
  for (const int rank : {0, 1, 2}) story.add(rank, "cur: product", 0, 1, Category::kProduct);
  story.meet(0, 1, 6.1, 7);
  story.meet(1, 6, 6.01, 7);
  story.meet(2, 1.5, 6.1, 7);
  const Summary summary = summarize(story.trace());
  ASSERT_EQ(summary.losses.size(), 3U);
  EXPECT_EQ(summary.losses[0].rank, 0);
  EXPECT_EQ(summary.losses[0].what, "barrier 1");
  EXPECT_DOUBLE_EQ(summary.losses[0].us, 5100);
  EXPECT_EQ(summary.losses[0].waited_for, 1);
  EXPECT_EQ(summary.losses[0].because, "rank 1 came 5.00 ms late: nothing ran there from 1.000 to 6.000 ms");
  EXPECT_EQ(summary.losses[1].rank, 2);
  EXPECT_EQ(summary.losses[1].waited_for, 1);
  EXPECT_EQ(summary.slowest_rank, 1);
  EXPECT_EQ(summarize(story.trace(), 1).losses.size(), 1U);
}

TEST(TraceSummary, NamesTheStepThatMadeARankLate) {
  Story story(2);
  story.meet(0, 1, 6, 7);
  story.add(1, "cur: a long product", 0.5, 5.9, Category::kProduct);
  story.meet(1, 5.9, 6, 7);
  EXPECT_EQ(summarize(story.trace()).losses[0].because,
            "rank 1 came 4.90 ms late: 'cur: a long product' took 5.40 ms there");
}

TEST(TraceSummary, FollowsAWaitToItsOwnCause) {
  Story story(3);
  story.meet(0, 1, 6, 8);
  Event& wait = story.add(1, "cur: await the word of rank 2", 1, 5.9, Category::kWait);
  wait.wait_for = WaitFor::kPeer;
  wait.peer = 2;
  story.meet(1, 5.9, 6, 8);
  story.add(2, "cur: a long product", 0, 5.8, Category::kProduct);
  story.meet(2, 5.8, 6, 8);
  const Loss loss = summarize(story.trace()).losses.at(0);
  EXPECT_EQ(loss.rank, 0);
  EXPECT_EQ(loss.waited_for, 2);
  EXPECT_NE(loss.because.find("rank 1 came 4.90 ms late: 'cur: await the word of rank 2'"), std::string::npos)
      << loss.because;
  EXPECT_NE(loss.because.find("'cur: a long product' took 5.80 ms there"), std::string::npos) << loss.because;
}

TEST(TraceSummary, NamesTheFirstToLeaveWhereAllHadCome) {
  Story story(2);
  story.meet(0, 1, 6.2, 7);
  story.meet(1, 1.1, 6.1, 7);
  const Loss loss = summarize(story.trace()).losses.at(0);
  EXPECT_EQ(loss.waited_for, 1);
  EXPECT_EQ(loss.because,
            "all ranks had come after 100 us; then 5.10 ms passed, and rank 1 was the first to leave");
}

TEST(TraceSummary, GivesAWaitForAnOwnStreamToTheStreamThatWaits) {
  Story story(2);
  story.meet(0, 0, 4, 7);
  story.add(0, "cur > bk", 0, 5, Category::kWait).wait_for = WaitFor::kOwn;
  story.meet(1, 3.9, 4, 7);
  const Summary summary = summarize(story.trace());
  ASSERT_GE(summary.losses.size(), 2U);
  EXPECT_EQ(summary.losses[0].what, "barrier 1");
  EXPECT_DOUBLE_EQ(summary.losses[1].us, 1000);
  EXPECT_EQ(summary.losses[1].waited_for, 1);
  EXPECT_EQ(
      summary.losses[1].because,
      "rank 0 waited for a stream of its own: 'cur: barrier 1' took 4.00 ms there; rank 1 came 3.90 ms late: "
      "nothing ran there from 0.000 to 3.900 ms");
}

TEST(TraceSummary, OfNothingIsNothing) {
  const Summary summary = summarize({});
  EXPECT_TRUE(summary.ranks.empty());
  EXPECT_EQ(summary.slowest_rank, -1);
  EXPECT_FALSE(summarize(Story(2).trace()).ranks.at(1).hidden_share());
}

constexpr const char* kGather = "all_gather_matmul [8,8,8] f32";

TEST(TraceOps, KeepAlgorithmsApart) {
  Story story(2);
  story.begin_call(kGather, "pipelined");
  story.add(0, "cur: product", 0, 4, Category::kProduct);
  story.get(0, 1, 1, 3);
  story.add(1, "cur: product", 2, 5, Category::kProduct);
  story.get(1, 0, 4, 6);  // half of it beside the product
  story.begin_call(kGather, "serial");
  story.get(0, 1, 10, 12);
  story.add(0, "cur: product", 12, 16, Category::kProduct);
  story.meet(1, 11, 14, 7);
  story.begin_call(kGather, "pipelined");
  story.add(0, "cur: sum", 21, 40, Category::kSum);
  story.add(1, "cur: sum", 20, 38, Category::kSum);
  story.begin_call("all_gather_matmul [16,8,8] f32", "pipelined");
  story.add(0, "cur: product", 40, 41, Category::kProduct);
  story.begin_call(kGather, "pipelined");
  story.add(0, "cur: product", 50, 60, Category::kProduct);
  const Summary summary = summarize(story.trace());
  ASSERT_EQ(summary.ops.size(), 3U);
  const OpSummary& pipelined = summary.ops[0];
  EXPECT_EQ(pipelined.op, kGather);
  EXPECT_EQ(pipelined.algorithm, "pipelined");
  EXPECT_EQ(pipelined.num_calls, 3);
  EXPECT_DOUBLE_EQ(pipelined.median_us, 10'000);
  EXPECT_DOUBLE_EQ(pipelined.mean_us, 12'000);  // of 6, 20 and 10 ms
  EXPECT_DOUBLE_EQ(pipelined.product_us, 17'000);
  EXPECT_DOUBLE_EQ(pipelined.communication_us, 4000);
  EXPECT_DOUBLE_EQ(pipelined.hidden_us, 3000);
  EXPECT_DOUBLE_EQ(pipelined.hidden_share().value(), 0.75);
  EXPECT_DOUBLE_EQ(pipelined.waiting_us, 0);
  EXPECT_DOUBLE_EQ(pipelined.busy_us, 55'000);
  const OpSummary& serial = summary.ops[1];
  EXPECT_EQ(serial.algorithm, "serial");
  EXPECT_EQ(serial.num_calls, 1);
  EXPECT_DOUBLE_EQ(serial.median_us, 6000);
  EXPECT_DOUBLE_EQ(serial.hidden_share().value(), 0);
  EXPECT_DOUBLE_EQ(serial.waiting_us, 3000);
  EXPECT_EQ(summary.ops[2].op, "all_gather_matmul [16,8,8] f32");
  EXPECT_DOUBLE_EQ(summary.ops[2].busy_us, 1000);
}

TEST(TraceOps, CountAMomentOfOverlappingCallsOnce) {
  Story story(1);
  story.begin_call(kGather, "pipelined");
  story.begin_call(kGather, "pipelined");
  story.begin_call("mm [8,8,8] f32", "native");
  story.continue_call(1);
  story.add(0, "cur: product", 0, 4, Category::kProduct);
  story.get(0, 1, 2, 5);
  story.continue_call(2);
  story.add(0, "bk: product", 2, 6, Category::kProduct);
  story.get(0, 1, 4, 8);
  story.continue_call(3);
  story.add(0, "s2: wait", 3, 7, Category::kWait).wait_for = WaitFor::kPeer;  // beside the other op
  const Summary summary = summarize(story.trace());
  ASSERT_EQ(summary.ops.size(), 2U);
  EXPECT_EQ(summary.ops[0].num_calls, 2);
  EXPECT_DOUBLE_EQ(summary.ops[0].median_us, 5500);  // of 5 and 6 ms
  EXPECT_DOUBLE_EQ(summary.ops[0].product_us, 6000);
  EXPECT_DOUBLE_EQ(summary.ops[0].communication_us, 6000);
  EXPECT_DOUBLE_EQ(summary.ops[0].hidden_us, 4000);
  EXPECT_DOUBLE_EQ(summary.ops[1].waiting_us, 4000);
  EXPECT_DOUBLE_EQ(summary.ranks[0].waiting_us, 0);
}

TEST(TraceOps, WithoutCommunicationHaveNoHiddenShare) {
  Story story(2);
  story.begin_call("mm [8,8,8] f32", "native");
  story.add(0, "cur: product", 0, 4, Category::kProduct);
  story.begin_call("barrier", "");
  for (const int rank : {0, 1})  // all of it a wait, until the last rank begins
    story.add(rank, "cur: all_gather by mailboxes", rank == 0 ? 4 : 6, 6, Category::kCopy).meeting = 4;
  const Summary summary = summarize(story.trace());
  ASSERT_EQ(summary.ops.size(), 2U);
  EXPECT_DOUBLE_EQ(summary.ops[0].product_us, 4000);
  EXPECT_FALSE(summary.ops[0].hidden_share());
  EXPECT_FALSE(summary.ops[1].hidden_share());
  EXPECT_DOUBLE_EQ(summary.ops[1].waiting_us, 2000);
  EXPECT_DOUBLE_EQ(summary.ops[1].busy_us, 0);
  EXPECT_NE(to_json(story.trace(), summary, {}).find("\"hidden_share\": null"), std::string::npos);
}

TEST(TraceOps, OfNothingAreNone) {
  EXPECT_TRUE(summarize({}).ops.empty());
  Story story(2);
  story.begin_call(kGather, "serial");  // its events found no room
  const Summary summary = summarize(story.trace());
  EXPECT_TRUE(summary.ops.empty());
  EXPECT_NE(to_json(story.trace(), summary, {}).find("\"ops\": []"), std::string::npos);
}

TEST(TraceLanes, NeverOverlapThemselves) {
  Story story(1);
  story.add(0, "cur: barrier", 0, 4, Category::kWait);
  story.add(0, "bk: barrier", 1, 3, Category::kWait);
  story.add(0, "cur: barrier", 4, 5, Category::kWait);
  story.get(0, 2, 0, 2);
  story.get(0, 1, 0, 1);
  story.add(0, "cur: product", 0, 9, Category::kProduct);
  const LaneList lanes = lanes_of(story.of(0));
  EXPECT_EQ(lanes.names,
            (std::vector<std::string>{"product", "from rank 1", "from rank 2", "waits", "waits 2"}));
  EXPECT_EQ(lanes.of_event, (std::vector<int>{3, 4, 3, 2, 1, 0}));
}

TEST(TraceEvents, SurviveTheirWayAsBytes) {
  Story story(1);
  story.get(0, 1, 2, 3);
  story.of(0).num_dropped = 7;
  story.of(0).clock = "CLOCK_MONOTONIC";
  const std::vector<std::byte> bytes = story.of(0).to_bytes();
  const auto read = RankEvents::from_bytes(bytes);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->num_dropped, 7);
  EXPECT_EQ(read->clock, "CLOCK_MONOTONIC");
  ASSERT_EQ(read->events.size(), 1U);
  EXPECT_EQ(read->text(read->events[0].step), "bk: get");
  EXPECT_EQ(read->to_bytes(), bytes);
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, bytes.size() - 1}) {
    const auto cut = RankEvents::from_bytes(std::span(bytes).first(size));
    ASSERT_FALSE(cut) << size;
    EXPECT_EQ(cut.error().code(), ErrorCode::kParse);
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back({});
  EXPECT_FALSE(RankEvents::from_bytes(longer));
}

TEST(TraceEvents, AreAppendedWithNumbersOfTheirOwn) {
  Story first(1);
  first.add(0, "cur: one", 0, 1, Category::kProduct);
  Story second(1);
  second.add(0, "cur: two", 2, 9, Category::kProduct);
  second.add(0, "cur: wait", 3, 4, Category::kWait).within = 0;
  first.of(0).append(second.of(0));
  const RankEvents& all = first.of(0);
  ASSERT_EQ(all.events.size(), 3U);
  EXPECT_EQ(all.num_calls, 2);
  EXPECT_EQ(all.calls.at(1).number, 1);
  EXPECT_EQ(all.events[1].call, 1);
  EXPECT_EQ(all.text(all.events[1].step), "cur: two");
  EXPECT_EQ(all.events[2].within, 1);
}

TEST(TracePage, HasAllOfManyEvents) {
  constexpr int kEvents = 100'000;
  Story story(2);
  for (int i = 0; i < kEvents / 2; ++i) {
    const double at_ms = i;
    for (const int rank : {0, 1}) story.add(rank, "cur: product", at_ms, at_ms + 0.5, Category::kProduct);
  }
  const Summary summary = summarize(story.trace());
  EXPECT_DOUBLE_EQ(summary.ranks[1].product_us, kEvents / 4 * 1000.0);
  const std::string json = to_json(story.trace(), summary, {});
  std::size_t num_events = 0;
  for (std::size_t at = json.find("\"ph\":\"X\""); at != std::string::npos;
       at = json.find("\"ph\":\"X\"", at + 1))
    ++num_events;
  EXPECT_EQ(num_events, static_cast<std::size_t>(kEvents));
}

TEST(TracePage, CannotBeEndedByAText) {
  Story story(1);
  story.add(0, "cur: </script><script>alert(1)", 0, 1, Category::kProduct);
  const std::string json = to_json(story.trace(), summarize(story.trace()), {.command = "a </script> b"});
  const std::string page = to_html(json);
  EXPECT_EQ(page.find("TANDEM_TRACE_JSON"), std::string::npos);
  EXPECT_EQ(page.find("</script><script>alert"), std::string::npos);
  EXPECT_NE(page.find("\\u003c/script>\\u003cscript>alert(1)"), std::string::npos);
}

}  // namespace
}  // namespace tandem::trace
