#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "device/recorder.hpp"

// Which calls are recorded and launched as graphs, with a recorder that says so and records nothing. What
// real graphs do is in conformance/fused_replays_test.cpp.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::RankContextOfTest;

/// What a recorder was asked for, and what it answers.
struct Record {
  bool is_usable = true;
  std::optional<Error> refusal = {};  ///< of recordings
  Result<void> launched = {};         ///< of graphs
  int num_recorded = 0;
  int num_launched = 0;
};

class CountedGraph final : public Graph {
 public:
  explicit CountedGraph(Record& record) : record_(record) {}
  Result<void> launch(Stream& /*stream*/) override {
    ++record_.num_launched;
    return record_.launched;
  }

 private:
  Record& record_;
};

class CountingRecorder final : public Recorder {
 public:
  explicit CountingRecorder(Record& record) : record_(record) {}
  bool is_usable() const override { return record_.is_usable; }
  Result<std::unique_ptr<Graph>> record(const Streams& /*on*/,
                                        FunctionRef<Result<void>()> /*steps*/) override {
    ++record_.num_recorded;
    if (record_.refusal) return tl::unexpected(*record_.refusal);
    return std::make_unique<CountedGraph>(record_);
  }

 private:
  Record& record_;
};

/// The tensors of a small gather.
class Gather {
 public:
  explicit Gather(RankContextOfTest& rank)
      : rank_(rank),
        a_(rank.device, Dims{4, 6}, DType::kF32),
        b_(rank.device, Dims{6, 5}, DType::kF32),
        out_(rank.device, Dims{4, 5}, DType::kF32) {}

  Result<OpReport> call(Algorithm algorithm, trace::EnqueueTrace* trace = nullptr) {
    const std::vector<TensorView> bs = {b_.view()};
    const std::vector<TensorView> outs = {out_.view()};
    return fused_all_gather_matmul({.a = a_.view(),
                                    .b = bs,
                                    .gather_dim = 0,
                                    .gather_size = 4,
                                    .out = outs,
                                    .algorithm = algorithm,
                                    .trace = trace},
                                   rank_.group, rank_.stream);
  }
  /// Whether each of so many calls was launched as a graph: "..gg". Waits for them.
  std::string calls(int num_calls, Algorithm algorithm = Algorithm::kPipelined,
                    trace::EnqueueTrace* trace = nullptr) {
    std::string launched;
    Result<void> done;
    for (int i = 0; i < num_calls && done; ++i) {
      const auto report = call(algorithm, trace);
      if (report) {
        launched += report->as_graph ? 'g' : '.';
      } else {
        done = tl::unexpected(report.error());
      }
    }
    const auto waited = rank_.stream.synchronize();  // the tensors may go
    if (done) done = waited;
    return done ? launched : launched + ": " + done.error().to_string();
  }

 private:
  RankContextOfTest& rank_;
  Guarded a_, b_, out_;
};

class FusedRepeatedCalls : public ::testing::Test {
 protected:
  /// One rank, whose device has the recorder.
  void run(const Config& config, const std::function<void(RankContextOfTest&)>& body) {
    Complaints complaints;
    test::on_ranks({.ranks = {{DeviceKind::kCpu}, 1}}, config, complaints,
                   [&](RankContextOfTest& rank) -> Result<void> {
                     rank.device.attach<Recorder>(std::make_shared<CountingRecorder>(record_));
                     body(rank);
                     return rank.stream.synchronize();
                   });
    EXPECT_EQ(complaints.text(), "");
  }
  Record record_;
};

TEST_F(FusedRepeatedCalls, AreGraphsBehindTheThird) {
  for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
    record_ = Record();
    run(test::quick_config(), [&](RankContextOfTest& rank) {
      Gather gather(rank);
      EXPECT_EQ(gather.calls(6, algorithm), "...ggg");
      Gather other(rank);
      EXPECT_EQ(other.calls(5, algorithm), "...gg");
      EXPECT_EQ(gather.calls(2, algorithm), "gg");
    });
    EXPECT_EQ(record_.num_recorded, 2);
    EXPECT_EQ(record_.num_launched, 7);
  }
}

// All of one problem and plan: where tensors are, and how b lies.
TEST_F(FusedRepeatedCalls, AnythingThatDiffersIsAnotherCall) {
  run(test::quick_config(), [&](RankContextOfTest& rank) {
    const Guarded a(rank.device, Dims{4, 6}, DType::kF32), other_a(rank.device, Dims{4, 6}, DType::kF32);
    const Guarded b(rank.device, Dims{6, 5}, DType::kF32), other_b(rank.device, Dims{5, 6}, DType::kF32);
    const Guarded out(rank.device, Dims{4, 5}, DType::kF32), other_out(rank.device, Dims{4, 5}, DType::kF32);
    const auto call = [&](const TensorView& of_a, const TensorView& of_b, const TensorView& of_out) {
      const auto report = fused_all_gather_matmul({.a = of_a,
                                                   .b = {&of_b, 1},
                                                   .gather_size = 4,
                                                   .out = {&of_out, 1},
                                                   .algorithm = Algorithm::kPipelined},
                                                  rank.group, rank.stream);
      EXPECT_TRUE(report) << report.error().to_string();
      return report && report->as_graph ? 'g' : '.';
    };
    const TensorView by_rows = TensorView::contiguous(other_b.view().data, {6, 5}, DType::kF32);
    const TensorView by_columns = other_b.view().movedim(0, 1);
    std::string launched;
    for (int i = 0; i < 4; ++i) {
      launched += call(a.view(), b.view(), out.view());
      launched += call(other_a.view(), b.view(), out.view());
      launched += call(a.view(), by_rows, out.view());
      launched += call(a.view(), by_columns, out.view());
      launched += call(a.view(), b.view(), other_out.view());
    }
    EXPECT_EQ(launched, "...............ggggg");
    EXPECT_TRUE(rank.stream.synchronize());
  });
  EXPECT_EQ(record_.num_recorded, 5);
}

// A plan that is forgotten leaves its address to another.
TEST_F(FusedRepeatedCalls, NoneIsLaunchedAsTheGraphOfAForgottenPlan) {
  Config config = test::quick_config();
  config.max_plans = 1;
  run(config, [&](RankContextOfTest& rank) {
    Gather gather(rank);
    EXPECT_EQ(gather.calls(4, Algorithm::kSerial), "...g");
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(gather.calls(1, Algorithm::kPipelined), ".");
      EXPECT_EQ(gather.calls(1, Algorithm::kSerial), ".");
      EXPECT_EQ(gather.calls(1, Algorithm::kAuto), ".");
    }
    EXPECT_EQ(gather.calls(4, Algorithm::kSerial), "...g");
  });
}

TEST_F(FusedRepeatedCalls, AlgorithmsHaveGraphsOfTheirOwn) {
  run(test::quick_config(), [&](RankContextOfTest& rank) {
    Gather gather(rank);
    EXPECT_EQ(gather.calls(4, Algorithm::kSerial), "...g");
    EXPECT_EQ(gather.calls(4, Algorithm::kPipelined), "...g");
    EXPECT_EQ(gather.calls(8, Algorithm::kNative), "........");
  });
}

TEST_F(FusedRepeatedCalls, AreNoneWhereStepsCount) {
  run(test::quick_config(), [&](RankContextOfTest& rank) {
    Gather gather(rank);
    trace::EnqueueTrace trace;
    EXPECT_EQ(gather.calls(5, Algorithm::kPipelined, &trace), ".....");
    EXPECT_EQ(gather.calls(4), "...g") << "traced calls are none that came before";
    EXPECT_EQ(gather.calls(1, Algorithm::kPipelined, &trace), ".");
    record_.is_usable = false;
    EXPECT_EQ(gather.calls(2), "..");
    record_.is_usable = true;
    EXPECT_EQ(gather.calls(1), "g");
  });
  Config never = test::quick_config();
  never.record_after = 0;
  Config delayed = test::quick_config();
  delayed.link_delay = std::chrono::microseconds(1);
  Config faulty = test::quick_config();
  faulty.fault = "put:7:1:delay:1";
  for (const Config& config : {never, delayed, faulty}) {
    record_ = Record();
    run(config, [&](RankContextOfTest& rank) { EXPECT_EQ(Gather(rank).calls(6), "......"); });
    EXPECT_EQ(record_.num_recorded, 0);
  }
}

TEST_F(FusedRepeatedCalls, ThatCannotBeRecordedGoOnStepByStep) {
  record_.refusal = Error(ErrorCode::kOutOfMemory, "no memory");
  run(test::quick_config(), [&](RankContextOfTest& rank) {
    Gather first(rank);
    EXPECT_EQ(first.calls(8), "........");
    Gather second(rank);
    EXPECT_EQ(second.calls(8), "........");
    record_.refusal.reset();
    EXPECT_EQ(first.calls(2), "..") << "it is not tried again";
    Gather third(rank);
    EXPECT_EQ(third.calls(5), "...gg") << "others are";
  });
  EXPECT_EQ(record_.num_recorded, 3);
}

TEST_F(FusedRepeatedCalls, OfAKindThatCannotBeRecordedAreTriedOnce) {
  record_.refusal = Error(ErrorCode::kUnsupported, "not this kind");
  run(test::quick_config(), [&](RankContextOfTest& rank) {
    EXPECT_EQ(Gather(rank).calls(8), "........");
    EXPECT_EQ(Gather(rank).calls(8), "........");
  });
  EXPECT_EQ(record_.num_recorded, 1);
}

TEST_F(FusedRepeatedCalls, AGraphThatCannotBeLaunchedIsTheGroupsError) {
  Complaints complaints;
  test::on_ranks({.ranks = {{DeviceKind::kCpu}, 1}}, test::quick_config(), complaints,
                 [&](RankContextOfTest& rank) -> Result<void> {
                   rank.device.attach<Recorder>(std::make_shared<CountingRecorder>(record_));
                   record_.launched = tl::unexpected(Error(ErrorCode::kDriver, "launch: refused"));
                   Gather gather(rank);
                   const std::string text = gather.calls(5);
                   EXPECT_EQ(text.substr(0, 5), "...: ") << text;
                   EXPECT_NE(text.find("launch: refused"), std::string::npos) << text;
                   EXPECT_FALSE(rank.group.status());
                   return {};
                 });
}

}  // namespace
}  // namespace tandem
