#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "unit/program_runs.hpp"

namespace tandem {
namespace {

using test::record_gather;
using test::record_scatter;
using test::Recorded;

// The reference, built the other way round: a list of texts from the rules, not a walk over streams.
class Reference {
 public:
  Reference& on(bool side, const std::string& step) {
    text_ += fmt::format("{}{}:{}", text_.empty() ? "" : " ", side ? "bk" : "cur", step);
    return *this;
  }
  Reference& raw(const std::string& step) {
    text_ += fmt::format("{}{}", text_.empty() ? "" : " ", step);
    return *this;
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string reference_gather(int world, int rank, bool keep_own, bool in_place) {
  Reference all;
  if (!in_place) all.on(false, "mv");
  all.on(false, "B1").raw("cur>bk").on(false, fmt::format("use{}(own)", rank));
  bool side = true;
  for (int q = rank + 1; q < rank + world; ++q, side = !side) {
    const int source = q >= world ? q - world : q;
    all.on(side, fmt::format("get{}", source)).on(side, fmt::format("use{}", source));
  }
  if (keep_own) all.on(side, fmt::format("own->out{}", rank));
  return all.raw("bk>cur").on(false, "B0").text();
}

std::string reference_scatter(int world, int rank) {
  const auto wrapped = [&](int q) { return ((q % world) + world) % world; };
  Reference all;
  all.raw("cur>bk");
  for (int s = 1; s < world; ++s) {
    const bool side = (s & 1) != 0;
    const std::string slot = side ? "P0" : "P1";
    const std::string barrier = side ? "B1" : "B0";
    if (s == 2) all.on(false, "nap");
    all.on(side, fmt::format("make{}->{}", wrapped(rank + s), slot)).on(side, barrier);
    all.on(side, fmt::format("get{}.{}", wrapped(rank - s), slot));
    if (s + 2 < world) all.on(side, barrier);
  }
  if (world == 2) all.on(false, "nap");
  return all.on(false, fmt::format("make{}->out", rank)).raw("bk>cur").on(false, "B0").text();
}

/// The streams cannot tell the own copy's target: "cur:own" for "cur:own->out1".
std::string as_calls(std::string trace) {
  for (auto at = trace.find("own->out"); at != std::string::npos; at = trace.find("own->out", at + 1)) {
    trace.erase(at + 3, trace.find(' ', at) - at - 3);
  }
  return trace;
}

TEST(ProgramTrace, gather_equals_the_published_traces) {
  const std::map<std::pair<int, int>, std::string> published = {
      {{1, 0}, "cur:mv cur:B1 cur>bk cur:use0(own) bk:own->out0 bk>cur cur:B0"},
      {{2, 0}, "cur:mv cur:B1 cur>bk cur:use0(own) bk:get1 bk:use1 cur:own->out0 bk>cur cur:B0"},
      {{2, 1}, "cur:mv cur:B1 cur>bk cur:use1(own) bk:get0 bk:use0 cur:own->out1 bk>cur cur:B0"},
      {{3, 1},
       "cur:mv cur:B1 cur>bk cur:use1(own) bk:get2 bk:use2 cur:get0 cur:use0 bk:own->out1 "
       "bk>cur "
       "cur:B0"},
      {{4, 1},
       "cur:mv cur:B1 cur>bk cur:use1(own) bk:get2 bk:use2 cur:get3 cur:use3 bk:get0 bk:use0 "
       "cur:own->out1 bk>cur cur:B0"},
  };
  for (const auto& [of, text] : published) {
    const Recorded recorded = record_gather(of.first, of.second);
    ASSERT_TRUE(recorded.result) << recorded.result.error().to_string();
    EXPECT_EQ(recorded.trace.to_string(), text) << "rank " << of.second << " of " << of.first;
  }
}

TEST(ProgramTrace, scatter_equals_the_published_traces) {
  const std::map<std::pair<int, int>, std::string> published = {
      {{1, 0}, "cur>bk cur:make0->out bk>cur cur:B0"},
      {{2, 0}, "cur>bk bk:make1->P0 bk:B1 bk:get1.P0 cur:nap cur:make0->out bk>cur cur:B0"},
      {{2, 1}, "cur>bk bk:make0->P0 bk:B1 bk:get0.P0 cur:nap cur:make1->out bk>cur cur:B0"},
      {{3, 1},
       "cur>bk bk:make2->P0 bk:B1 bk:get0.P0 cur:nap cur:make0->P1 cur:B0 cur:get2.P1 "
       "cur:make1->out bk>cur cur:B0"},
      {{4, 1},
       "cur>bk bk:make2->P0 bk:B1 bk:get0.P0 bk:B1 cur:nap cur:make3->P1 cur:B0 cur:get3.P1 "
       "bk:make0->P0 bk:B1 bk:get2.P0 cur:make1->out bk>cur cur:B0"},
  };
  for (const auto& [of, text] : published) {
    const Recorded recorded = record_scatter(of.first, of.second);
    ASSERT_TRUE(recorded.result) << recorded.result.error().to_string();
    EXPECT_EQ(recorded.trace.to_string(), text) << "rank " << of.second << " of " << of.first;
  }
}

TEST(ProgramTrace, a_gather_that_breaks_off_still_joins_the_side_lane) {
  const Recorded recorded = record_gather(4, 0, true, false, 1);
  ASSERT_FALSE(recorded.result);
  EXPECT_EQ(recorded.result.error().text(), "enough");
  EXPECT_EQ(recorded.calls, "cur:mv cur:B1 cur>bk cur:use0(own) bk:get1 bk>cur");
}

TEST(ProgramTrace, a_scatter_that_breaks_off_still_joins_the_side_lane) {
  const Recorded recorded = record_scatter(4, 0, 2);
  ASSERT_FALSE(recorded.result);
  EXPECT_EQ(recorded.result.error().text(), "enough");
  EXPECT_EQ(recorded.calls, "cur>bk bk:make1->P0 bk:B1 bk:get3.P0 bk:B1 cur:nap bk>cur");
}

TEST(ProgramTrace, gather_follows_the_rules_on_every_rank_and_traces_what_it_enqueues) {
  for (int world = 1; world <= 8; ++world) {
    for (int rank = 0; rank < world; ++rank) {
      for (const bool keep_own : {true, false}) {
        for (const bool in_place : {false, true}) {
          const Recorded recorded = record_gather(world, rank, keep_own, in_place);
          const std::string expected = reference_gather(world, rank, keep_own, in_place);
          ASSERT_TRUE(recorded.result) << recorded.result.error().to_string();
          EXPECT_EQ(recorded.trace.to_string(), expected) << "rank " << rank << " of " << world;
          EXPECT_EQ(recorded.calls, as_calls(expected)) << "rank " << rank << " of " << world;
        }
      }
    }
  }
}

TEST(ProgramTrace, scatter_follows_the_rules_on_every_rank_and_traces_what_it_enqueues) {
  for (int world = 1; world <= 8; ++world) {
    for (int rank = 0; rank < world; ++rank) {
      const Recorded recorded = record_scatter(world, rank);
      const std::string expected = reference_scatter(world, rank);
      ASSERT_TRUE(recorded.result) << recorded.result.error().to_string();
      EXPECT_EQ(recorded.trace.to_string(), expected) << "rank " << rank << " of " << world;
      EXPECT_EQ(recorded.calls, expected + " cur:sum") << "rank " << rank << " of " << world;
    }
  }
}

TEST(ProgramTrace, barriers_are_equal_on_all_ranks_and_no_two_ranks_read_one_source_in_a_step) {
  for (int world = 1; world <= 8; ++world) {
    for (const bool gather : {true, false}) {
      std::vector<std::vector<int>> sources;   // by step
      std::vector<std::vector<int>> barriers;  // by rank: how many on channel 0 and 1
      for (int rank = 0; rank < world; ++rank) {
        const Recorded recorded = gather ? record_gather(world, rank) : record_scatter(world, rank);
        std::vector<int> count(2);
        std::size_t step = 0;
        for (const trace::Step& s : recorded.trace.steps()) {
          if (s.kind == trace::StepKind::kBarrier) ++count[static_cast<std::size_t>(s.channel)];
          if (s.kind != trace::StepKind::kGet) continue;
          if (sources.size() <= step) sources.emplace_back();
          sources[step++].push_back(s.peer);
        }
        barriers.push_back(count);
      }
      const std::vector<int> need = gather ? std::vector<int>{1, 1}
                                           : std::vector<int>{1 + std::max(0, 2 * ((world - 1) / 2) - 1),
                                                              std::max(0, 2 * (world / 2) - 1)};
      EXPECT_EQ(barriers, std::vector<std::vector<int>>(static_cast<std::size_t>(world), need)) << world;
      for (std::vector<int>& of_step : sources) {
        std::sort(of_step.begin(), of_step.end());
        EXPECT_EQ(std::unique(of_step.begin(), of_step.end()) - of_step.begin(), world) << "W = " << world;
      }
    }
  }
}

}  // namespace
}  // namespace tandem
