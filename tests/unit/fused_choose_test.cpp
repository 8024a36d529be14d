#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "fused/choose.hpp"

namespace tandem::fused {
namespace {

Workload large(std::chrono::microseconds link) {
  return {.kind = DeviceKind::kCpu,
          .world = 4,
          .cores = 4,
          .link = link,
          .chunk_bytes = 1 << 20,
          .chunk_flops = 1e8,
          .pipelined_barriers = 3,
          .serial_barriers = 3};
}

std::string reason_of(Algorithm asked, const Workload& work, Algorithm expected) {
  const auto choice = choose("op", asked, work, nullptr, {});
  if (!choice) return choice.error().to_string();
  EXPECT_EQ(choice->algorithm, expected) << choice->reason;
  return choice->reason;
}

TEST(FusedChoose, takes_what_was_asked_for) {
  EXPECT_EQ(reason_of(Algorithm::kSerial, large({}), Algorithm::kSerial), "asked for");
  EXPECT_EQ(reason_of(Algorithm::kPipelined, large({}), Algorithm::kPipelined), "asked for");
}

TEST(FusedChoose, puts_nothing_in_place_of_native) {
  const auto choice = choose("op", Algorithm::kNative, large({}), nullptr, {});
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(choice.error().text().find("cpu:0"), std::string::npos) << choice.error().text();
}

Workload with_native(Workload work) {
  work.native = Support::yes();
  return work;
}

TEST(FusedChoose, takes_native_where_it_can_run_and_is_predicted_to_be_first) {
  const Workload slow = with_native(large(std::chrono::microseconds(2'000)));
  EXPECT_EQ(reason_of(Algorithm::kNative, slow, Algorithm::kNative), "asked for");
  const Prediction us = predict(slow);
  ASSERT_LT(us.native_us, us.pipelined_us) << "it has the same copies and no barriers";
  EXPECT_NE(
      reason_of(Algorithm::kAuto, slow, Algorithm::kNative).find(std::to_string(std::lround(us.native_us))),
      std::string::npos);
  Workload cut_small = with_native(large({}));
  cut_small.world = 8;  // two streams on half a core, and eight chunks to pay for
  cut_small.chunk_bytes = 64;
  cut_small.chunk_flops = 1000;
  EXPECT_EQ(reason_of(Algorithm::kAuto, cut_small, Algorithm::kSerial).substr(0, 9), "predicted");

  tune::Row row;
  row.us = {{"serial", 100}, {"pipelined", 90}, {"native", 80}};
  EXPECT_EQ(choose("op", Algorithm::kAuto, slow, &row, {})->reason, "measured 80 us against 90 us pipelined");
}

TEST(FusedChoose, overlaps_a_slow_link_and_says_both_times) {
  const std::string reason =
      reason_of(Algorithm::kAuto, large(std::chrono::microseconds(2'000)), Algorithm::kPipelined);
  const Prediction us = predict(large(std::chrono::microseconds(2'000)));
  EXPECT_NE(reason.find(std::to_string(std::lround(us.serial_us))), std::string::npos) << reason;
  EXPECT_NE(reason.find(std::to_string(std::lround(us.pipelined_us))), std::string::npos) << reason;
}

TEST(FusedChoose, is_serial_where_nothing_is_gained) {
  EXPECT_NE(reason_of(Algorithm::kAuto, large({}), Algorithm::kSerial).find("against"), std::string::npos)
      << "a core a rank and a free link: only overhead is left";
  Workload one = large(std::chrono::microseconds(2'000));
  one.world = 1;
  EXPECT_NE(reason_of(Algorithm::kAuto, one, Algorithm::kSerial).find("one rank"), std::string::npos);
  Workload tiny = large(std::chrono::microseconds(1));
  tiny.chunk_bytes = 64;
  tiny.chunk_flops = 1000;
  EXPECT_NE(reason_of(Algorithm::kAuto, tiny, Algorithm::kSerial).find("against"), std::string::npos);
}

// One rank's rows of a Llama MLP on four GPUs: the copies cost half of what the products do.
TEST(FusedChoose, overlaps_large_chunks_on_gpus_and_not_small_ones) {
  Workload work{.kind = DeviceKind::kCuda,
                .world = 4,
                .cores = 4,
                .link = {},
                .chunk_bytes = 1024 * 8192 * 2,
                .chunk_flops = 2.0 * 1024 * 8192 * 3584,
                .pipelined_barriers = 3,
                .serial_barriers = 3};
  EXPECT_EQ(choose("op", Algorithm::kAuto, work, nullptr, {DeviceKind::kCuda, 0})->algorithm,
            Algorithm::kPipelined);
  work.chunk_bytes = 16 * 8192 * 2;
  work.chunk_flops = 2.0 * 16 * 8192 * 3584;
  EXPECT_EQ(choose("op", Algorithm::kAuto, work, nullptr, {DeviceKind::kCuda, 0})->algorithm,
            Algorithm::kSerial);
}

TEST(FusedChoose, overlaps_a_slow_link_on_gpus) {
  Workload work{
      .kind = DeviceKind::kCuda, .world = 2, .link = {}, .chunk_bytes = 1 << 24, .pipelined_barriers = 2};
  work.product_us = 200;
  work.chunk_product_us = 100;
  work.collective_us = 70;
  for (const int us : {0, 100, 2000, 20000}) {
    work.link = std::chrono::microseconds(us);
    EXPECT_EQ(choose("op", Algorithm::kAuto, work, nullptr, {DeviceKind::kCuda, 0})->algorithm,
              Algorithm::kPipelined)
        << us;
  }
}

TEST(FusedChoose, native_pays_for_a_simulated_link_on_gpus) {
  Workload work{
      .kind = DeviceKind::kCuda, .world = 4, .link = {}, .chunk_bytes = 1 << 20, .chunk_flops = 1e9};
  work.native_us = 50;
  EXPECT_EQ(predict(work).native_us, 50);
  work.link = std::chrono::microseconds(1000);
  EXPECT_GT(predict(work).native_us, 3000);
}

TEST(FusedChoose, trusts_what_was_measured_more_than_the_model) {
  const Workload slow_link = large(std::chrono::microseconds(2'000));
  tune::Row row;
  row.us = {{"serial", 100}, {"pipelined", 101}};
  auto choice = choose("op", Algorithm::kAuto, slow_link, &row, {});
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->algorithm, Algorithm::kSerial);
  EXPECT_EQ(choice->reason, "measured 100 us against 101 us pipelined");

  row.us = {{"serial", 100}, {"pipelined", 97}};
  choice = choose("op", Algorithm::kAuto, large({}), &row, {});
  EXPECT_EQ(choice->algorithm, Algorithm::kPipelined);
  EXPECT_EQ(choice->reason, "measured 97 us against 100 us serial");

  row.us = {{"serial", 100}, {"pipelined", 99}};
  choice = choose("op", Algorithm::kAuto, slow_link, &row, {});
  EXPECT_EQ(choice->algorithm, Algorithm::kSerial);
  EXPECT_EQ(choice->reason, "measured 100 us against 99 us pipelined, 2 % are noise");

  row.us = {{"serial", 100}, {"pipelined", 100}};
  EXPECT_EQ(choose("op", Algorithm::kAuto, slow_link, &row, {})->algorithm, Algorithm::kSerial)
      << "nothing gained";
  row.us = {{"serial", 100}};
  EXPECT_EQ(choose("op", Algorithm::kAuto, slow_link, &row, {})->reason, "measured 100 us");
  row.us = {{"serial", 100}, {"native", 1}};
  EXPECT_EQ(choose("op", Algorithm::kAuto, slow_link, &row, {})->algorithm, Algorithm::kSerial)
      << "what was fastest once does not exist here";
  EXPECT_EQ(choose("op", Algorithm::kPipelined, slow_link, &row, {})->reason, "asked for");
}

TEST(FusedChoose, lists_every_candidate_with_what_is_known_of_it) {
  const Workload work = large(std::chrono::microseconds(100));
  tune::Row row;
  row.us = {{"serial", 7}};
  const auto choice = choose("op", Algorithm::kAuto, work, &row, {});
  ASSERT_TRUE(choice);
  ASSERT_EQ(choice->candidates.size(), 3U);
  const Prediction us = predict(work);
  EXPECT_EQ(choice->candidates[0].algorithm, Algorithm::kSerial);
  EXPECT_EQ(choice->candidates[0].predicted_us, us.serial_us);
  EXPECT_EQ(choice->candidates[0].measured_us, 7);
  EXPECT_EQ(choice->candidates[1].algorithm, Algorithm::kPipelined);
  EXPECT_EQ(choice->candidates[1].predicted_us, us.pipelined_us);
  EXPECT_FALSE(choice->candidates[1].measured_us);
  EXPECT_EQ(choice->candidates[2].algorithm, Algorithm::kNative);
  EXPECT_NE(choice->candidates[2].why_not, "");
  EXPECT_EQ(choose("op", Algorithm::kAuto, with_native(work), &row, {})->candidates[2].predicted_us,
            us.native_us);
}

TEST(FusedChoose, predicts_more_for_more_of_everything) {
  const Prediction base = predict(large(std::chrono::microseconds(100)));
  for (int change = 0; change < 3; ++change) {
    Workload more = large(std::chrono::microseconds(100));
    if (change == 0) more.link *= 10;
    if (change == 1) more.chunk_bytes *= 10;
    if (change == 2) more.chunk_flops *= 10;
    EXPECT_GT(predict(more).serial_us, base.serial_us) << change;
    EXPECT_GE(predict(more).pipelined_us, base.pipelined_us) << change << ": equal while the link is hidden";
    EXPECT_GE(predict(more).native_us, base.native_us) << change;
  }
}

}  // namespace
}  // namespace tandem::fused
