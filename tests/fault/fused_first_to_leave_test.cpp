#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "fault/every_call.hpp"

// A rank whose call has ended may leave the group at once, while a slower one is still in its own. That is
// nobody's error: what the rank did before it left counts, also where it has yet to cross the link.

namespace tandem {
namespace {

using test::CallOfTest;
using test::Complaints;
using test::JobCase;
using test::RankContextOfTest;

/// One call in a group of its own, which ends as soon as the call has.
Result<void> call_and_leave(RankContextOfTest& rank, const CallOfTest& call) {
  auto group = test::subgroup_of_all(rank.group, "short");
  if (!group) return tl::unexpected(group.error());
  RankContextOfTest in_group{**group, rank.device, rank.stream};
  auto tensors = test::make_tensors_of_calls(in_group);
  if (!tensors) return tl::unexpected(tensors.error());
  if (auto done = call.enqueue(in_group, *tensors); !done) return done;
  return rank.stream.synchronize();
}

class FusedFirstToLeave : public ::testing::TestWithParam<JobCase> {
 protected:
  /// Rank 1 is slow wherever `point` is (base/fault.hpp).
  static void run(const CallOfTest& call, const std::string& point, std::chrono::microseconds link) {
    Config config = test::quick_config();
    config.link_delay = link;
    config.fault = point + ":1:*:delay:2";
    Complaints complaints;
    test::on_ranks(GetParam(), config, complaints,
                   [&](RankContextOfTest& rank) { return call_and_leave(rank, call); });
    EXPECT_EQ(complaints.text(), "");
  }
};

TEST_P(FusedFirstToLeave, leaves_the_slower_ranks_alone) {
  for (const CallOfTest& call : test::every_call()) {
    if (!GetParam().is_on_cpu() && !call.is_for_gpus) continue;
    for (const char* const point : {"put", "get", "wait", "barrier", "agree"}) {
      for (const int link_us : {0, 100}) {
        if (link_us > 0 && !GetParam().is_on_cpu()) continue;
        SCOPED_TRACE(call.name + ", slow at " + point + (link_us > 0 ? ", over a link" : ""));
        run(call, point, std::chrono::microseconds(link_us));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedFirstToLeave, ::testing::ValuesIn(test::exact_cases({2, 3})),
                         test::job_name);

}  // namespace
}  // namespace tandem
