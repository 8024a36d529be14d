#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/base/time_text.hpp>
#include <utility>
#include <vector>

#include "fused/call/choose.hpp"

namespace tandem::fused {
namespace {

constexpr CoreSpeeds kCore = {
    .flops_per_us = 40e3, .packed_per_us = 1e3, .copy_bytes_per_us = 10e3, .sum_bytes_per_us = 5e3};

Workload large(std::chrono::microseconds link) {
  return {.kind = DeviceKind::kCpu,
          .world = 4,
          .cores = 4,
          .link = link,
          .chunk_bytes = 1 << 20,
          .chunk_flops = 1e8,
          .serial_copies = 5,
          .pipelined_barriers = 3,
          .serial_barriers = 3,
          .core = kCore};
}

Prediction prediction_of(const Workload& work) {
  const auto prediction = predict(work);
  EXPECT_TRUE(prediction);
  return prediction.value_or(Prediction());
}

/// What is chosen from: a workload, whether native runs, and what was measured.
struct Case {
  Workload work;
  bool has_native = false;
  int num_hosts = 1;
};
Case with_native(const Workload& work) {
  return {.work = work, .has_native = true};
}

/// An algorithm as the lists of the ops have them.
struct Entry {
  Algorithm name;
  double Prediction::*predicted_us;

  [[nodiscard]] Support can_run(const Case& c, const Device& /*device*/) const {
    if (name != Algorithm::kNative || c.has_native) return Support::yes();
    return Support::no("no native here");
  }
};

Result<Choice> choose_by(Algorithm asked, const Case& c, const cost::Row* measured = nullptr,
                         DeviceId device = {}) {
  static const std::unique_ptr<Device> any_device = open_device({DeviceKind::kCpu, 0}, Config{}).value();
  std::vector<Candidate> candidates;
  for (const Entry& entry : {Entry{Algorithm::kSerial, &Prediction::serial_us},
                             Entry{Algorithm::kPipelined, &Prediction::pipelined_us},
                             Entry{Algorithm::kNative, &Prediction::native_us}}) {
    candidates.push_back(candidate_of(entry, c, *any_device, predict(c.work), measured));
  }
  return choose({.who = "op",
                 .algorithm = asked,
                 .world = c.work.world,
                 .device = device,
                 .is_measured = measured != nullptr},
                std::move(candidates));
}

std::string reason_of(Algorithm asked, const Case& c, Algorithm expected) {
  const auto choice = choose_by(asked, c);
  if (!choice) return choice.error().to_string();
  EXPECT_EQ(choice->algorithm, expected) << choice->reason;
  return choice->reason;
}

TEST(FusedChoose, takes_what_was_asked_for) {
  EXPECT_EQ(reason_of(Algorithm::kSerial, {large({})}, Algorithm::kSerial), "asked for");
  EXPECT_EQ(reason_of(Algorithm::kPipelined, {large({})}, Algorithm::kPipelined), "asked for");
}

TEST(FusedChoose, puts_nothing_in_place_of_native) {
  const auto choice = choose_by(Algorithm::kNative, {large({})});
  ASSERT_FALSE(choice);
  EXPECT_EQ(choice.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(choice.error().text().find("cpu:0"), std::string::npos) << choice.error().text();
}

TEST(FusedChoose, takes_native_where_it_can_run_and_is_predicted_to_be_first) {
  const Case slow = with_native(large(std::chrono::microseconds(2'000)));
  EXPECT_EQ(reason_of(Algorithm::kNative, slow, Algorithm::kNative), "asked for");
  const Prediction us = prediction_of(slow.work);
  ASSERT_LT(us.native_us, us.pipelined_us) << "it has the same copies and no barriers";
  EXPECT_EQ(reason_of(Algorithm::kAuto, slow, Algorithm::kNative),
            "predicted " + time_text(us.native_us) + "; pipelined " + time_text(us.pipelined_us) +
                ", serial " + time_text(us.serial_us));
  Case cut_small = with_native(large({}));
  cut_small.work.world = 8;  // two streams on half a core, and eight chunks to pay for
  cut_small.work.chunk_bytes = 64;
  cut_small.work.chunk_flops = 1000;
  EXPECT_EQ(reason_of(Algorithm::kAuto, cut_small, Algorithm::kSerial).substr(0, 9), "predicted");

  cost::Row row;
  row.us = {{"serial", 100}, {"pipelined", 90}, {"native", 80}};
  EXPECT_EQ(choose_by(Algorithm::kAuto, slow, &row)->reason,
            "measured 80.0 us; pipelined 90.0 us, serial 100 us");
}

TEST(FusedChoose, overlaps_a_slow_link_and_says_both_times) {
  const std::string reason =
      reason_of(Algorithm::kAuto, {large(std::chrono::microseconds(2'000))}, Algorithm::kPipelined);
  const Prediction us = prediction_of(large(std::chrono::microseconds(2'000)));
  EXPECT_EQ(reason, "predicted " + time_text(us.pipelined_us) + "; serial " + time_text(us.serial_us));
}

TEST(FusedChoose, is_serial_where_nothing_is_gained) {
  EXPECT_NE(reason_of(Algorithm::kAuto, {large({})}, Algorithm::kSerial).find("; pipelined "),
            std::string::npos)
      << "a core a rank and a free link: only overhead is left";
  Workload one = large(std::chrono::microseconds(2'000));
  one.world = 1;
  EXPECT_NE(reason_of(Algorithm::kAuto, {one}, Algorithm::kSerial).find("one rank"), std::string::npos);
  Workload tiny = large(std::chrono::microseconds(1));
  tiny.chunk_bytes = 64;
  tiny.chunk_flops = 1000;
  EXPECT_NE(reason_of(Algorithm::kAuto, {tiny}, Algorithm::kSerial).find("; pipelined "), std::string::npos);
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
  EXPECT_EQ(choose_by(Algorithm::kAuto, {work}, nullptr, {DeviceKind::kCuda, 0})->algorithm,
            Algorithm::kPipelined);
  work.chunk_bytes = 16 * 8192 * 2;
  work.chunk_flops = 2.0 * 16 * 8192 * 3584;
  EXPECT_EQ(choose_by(Algorithm::kAuto, {work}, nullptr, {DeviceKind::kCuda, 0})->algorithm,
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
    EXPECT_EQ(choose_by(Algorithm::kAuto, {work}, nullptr, {DeviceKind::kCuda, 0})->algorithm,
              Algorithm::kPipelined)
        << us;
  }
}

TEST(FusedChoose, native_pays_for_a_simulated_link_on_gpus) {
  Workload work{
      .kind = DeviceKind::kCuda, .world = 4, .link = {}, .chunk_bytes = 1 << 20, .chunk_flops = 1e9};
  work.native_us = 50;
  EXPECT_EQ(prediction_of(work).native_us, 50);
  work.link = std::chrono::microseconds(1000);
  EXPECT_GT(prediction_of(work).native_us, 3000);
}

TEST(FusedChoose, trusts_what_was_measured_more_than_the_model) {
  const Workload slow_link = large(std::chrono::microseconds(2'000));
  cost::Row row;
  row.us = {{"serial", 100}, {"pipelined", 101}};
  auto choice = choose_by(Algorithm::kAuto, {slow_link}, &row);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->algorithm, Algorithm::kSerial);
  EXPECT_EQ(choice->reason, "measured 100 us; pipelined 101 us; within 2 % serial is kept");

  row.us = {{"serial", 100}, {"pipelined", 97}};
  choice = choose_by(Algorithm::kAuto, {large({})}, &row);
  EXPECT_EQ(choice->algorithm, Algorithm::kPipelined);
  EXPECT_EQ(choice->reason, "measured 97.0 us; serial 100 us");

  row.us = {{"serial", 100}, {"pipelined", 99}};
  choice = choose_by(Algorithm::kAuto, {slow_link}, &row);
  EXPECT_EQ(choice->algorithm, Algorithm::kSerial);
  EXPECT_EQ(choice->reason, "measured 100 us; pipelined 99.0 us; within 2 % serial is kept");

  row.us = {{"serial", 100}, {"pipelined", 100}};
  EXPECT_EQ(choose_by(Algorithm::kAuto, {slow_link}, &row)->algorithm, Algorithm::kSerial)
      << "nothing gained";
  row.us = {{"serial", 100}};
  EXPECT_EQ(choose_by(Algorithm::kAuto, {slow_link}, &row)->reason, "measured 100 us");
  row.us = {{"serial", 100}, {"native", 1}};
  EXPECT_EQ(choose_by(Algorithm::kAuto, {slow_link}, &row)->algorithm, Algorithm::kSerial)
      << "what was fastest once does not exist here";
  EXPECT_EQ(choose_by(Algorithm::kPipelined, {slow_link}, &row)->reason, "asked for");
}

TEST(FusedChoose, lists_every_candidate_with_what_is_known_of_it) {
  const Workload work = large(std::chrono::microseconds(100));
  cost::Row row;
  row.us = {{"serial", 7}};
  const auto choice = choose_by(Algorithm::kAuto, {work}, &row);
  ASSERT_TRUE(choice);
  ASSERT_EQ(choice->candidates.size(), 3U);
  const Prediction us = prediction_of(work);
  EXPECT_EQ(choice->candidates[0].algorithm, Algorithm::kSerial);
  EXPECT_EQ(choice->candidates[0].predicted_us, us.serial_us);
  EXPECT_EQ(choice->candidates[0].measured_us, 7);
  EXPECT_EQ(choice->candidates[1].algorithm, Algorithm::kPipelined);
  EXPECT_EQ(choice->candidates[1].predicted_us, us.pipelined_us);
  EXPECT_FALSE(choice->candidates[1].measured_us);
  EXPECT_EQ(choice->candidates[2].algorithm, Algorithm::kNative);
  EXPECT_NE(choice->candidates[2].why_not, "");
  EXPECT_EQ(choose_by(Algorithm::kAuto, with_native(work), &row)->candidates[2].predicted_us, us.native_us);
}

TEST(FusedChoose, predicts_more_for_more_of_everything_and_for_slower_cores) {
  struct Change {
    const char* name;
    void (*make)(Workload&);
  };
  constexpr Change kChanges[] = {{"link", [](Workload& w) { w.link *= 10; }},
                                 {"bytes", [](Workload& w) { w.chunk_bytes *= 10; }},
                                 {"flops", [](Workload& w) { w.chunk_flops *= 10; }},
                                 {"b", [](Workload& w) { w.b_elements = w.chunk_b_elements = 1e6; }},
                                 {"copies", [](Workload& w) { w.serial_copies *= 2; }},
                                 {"sums", [](Workload& w) { w.sums = true; }},
                                 {"fewer cores", [](Workload& w) { w.cores = 2; }},
                                 {"slower products", [](Workload& w) { w.core->flops_per_us /= 2; }},
                                 {"slower copies", [](Workload& w) { w.core->copy_bytes_per_us /= 2; }}};
  const Prediction base = prediction_of(large(std::chrono::microseconds(100)));
  for (const Change& change : kChanges) {
    Workload more = large(std::chrono::microseconds(100));
    change.make(more);
    const Prediction us = prediction_of(more);
    EXPECT_GT(us.serial_us, base.serial_us) << change.name;
    EXPECT_GE(us.pipelined_us, base.pipelined_us) << change.name << ": equal while the link is hidden";
    EXPECT_GE(us.native_us, base.native_us) << change.name;
  }
}

/// 4 ranks on 2 cores, so each has half of one.
Workload on_half_cores() {
  return {.world = 4,
          .cores = 2,
          .link = std::chrono::microseconds(7),
          .chunk_bytes = 20'000,
          .chunk_flops = 4e6,
          .b_elements = 5e3,
          .chunk_b_elements = 5e3,
          .core = kCore};
}

// By hand.
TEST(FusedChoose, predicts_serial_by_what_a_rank_does) {
  Workload work = on_half_cores();
  work.serial_copies = 5;
  work.serial_barriers = 2;
  // Products 4 * 100, packing 5, copies 5 * 2, twice; links 3 * 7; barriers 2 * 20, twice.
  EXPECT_DOUBLE_EQ(prediction_of(work).serial_us, 2 * (400 + 5 + 10) + 21 + 80);
  work.sums = true;  // 4 * 4
  EXPECT_DOUBLE_EQ(prediction_of(work).serial_us, 2 * (400 + 5 + 10 + 16) + 21 + 80);
  work.cores = 16;
  EXPECT_DOUBLE_EQ(prediction_of(work).serial_us, 400 + 5 + 10 + 16 + 21 + 40) << "a stream has one core";
}

// The same. One product packs b once, and ranks meet once.
TEST(FusedChoose, predicts_what_is_read_where_it_is_held) {
  Workload work = on_half_cores();
  work.held_parts = 2;
  EXPECT_DOUBLE_EQ(prediction_of(work).native_us, 2 * (400 + 5 + 2) + 40) << "the own shard is copied";
  work.link = std::chrono::microseconds(1000);
  EXPECT_DOUBLE_EQ(prediction_of(work).native_us, 2 * 2 + 3000 + 2 * (100 + 1.25) / 2 + 40)
      << "half of the last shard is multiplied behind the link";
  work.held_parts = 0;
  work.tells = true;
  work.sums = true;
  EXPECT_DOUBLE_EQ(prediction_of(work).native_us, 2 * (100 + 1.25) + 3000 + 2 * 16 + 40)
      << "the first part is made before the link begins";
  work.link = {};
  EXPECT_DOUBLE_EQ(prediction_of(work).native_us, 2 * (400 + 5 + 16) + 40);
  EXPECT_NE(prediction_of(work).pipelined_us, prediction_of(work).native_us);
  work.pipelined_tells = true;
  EXPECT_EQ(prediction_of(work).pipelined_us, prediction_of(work).native_us);
}

TEST(FusedChoose, predicts_nothing_for_cores_that_nobody_knows) {
  Workload work = large({});
  work.core.reset();
  EXPECT_FALSE(predict(work));
  const auto choice = choose_by(Algorithm::kPipelined, {work});
  ASSERT_TRUE(choice);
  for (const Candidate& candidate : choice->candidates) EXPECT_FALSE(candidate.predicted_us);
}

// A reader sees why one of two that look alike was taken.
TEST(FusedChoose, says_what_is_taken_of_equals) {
  Workload work = large({});
  work.chunk_flops = 1e9;  // all three within a percent
  EXPECT_NE(
      reason_of(Algorithm::kAuto, with_native(work), Algorithm::kSerial).find("; within 2 % serial is kept"),
      std::string::npos);
  cost::Row row;
  row.us = {{"serial", 100}, {"pipelined", 80}, {"native", 80}};
  EXPECT_EQ(choose_by(Algorithm::kAuto, with_native(work), &row)->reason,
            "measured 80.0 us; native 80.0 us, serial 100 us; of equals pipelined comes first");
  Workload gpu{.kind = DeviceKind::kCuda, .world = 2, .link = {}, .chunk_bytes = 0};
  gpu.product_us = gpu.native_us = 50;
  gpu.chunk_product_us = 25;
  gpu.collective_us = 0;
  EXPECT_EQ(choose_by(Algorithm::kAuto, with_native(gpu), nullptr, {DeviceKind::kCuda, 0})->reason,
            "predicted 50.0 us; native 50.0 us, pipelined 54.0 us; of equals serial comes first");
}

}  // namespace
}  // namespace tandem::fused
