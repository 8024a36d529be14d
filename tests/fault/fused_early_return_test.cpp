#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "conformance/fused_harness.hpp"

// A program queues calls, has one refused and returns the error: its tensors go before its stream has run
// them. It must end with that error and nothing else, and memory that is handed out meanwhile is nobody
// else's. Run under the address sanitizer too.

namespace tandem {
namespace {

using test::Complaints;
using test::JobCase;
using test::RankContextOfTest;

constexpr int kWorld = 3;
constexpr std::int64_t kSize = 48;  // of every dim

/// What a program works on; everything of the library's own memory.
struct Tensors {
  Tensor a, shard, narrow_a, b, narrow_b, whole, part, scale, symmetric;
  std::shared_ptr<symm::Handle> handle = {};
  std::unique_ptr<Event> event = {};
};

Result<Tensors> make_tensors(RankContextOfTest& rank) {
  const auto make = [&](const Dims& sizes, DType dtype) {
    return rank.device.allocate_tensor(sizes, dtype).value();
  };
  Tensors made{.a = make({kSize, kSize}, DType::kBF16),
               .shard = make({kSize / kWorld, kSize}, DType::kBF16),
               .narrow_a = make({kSize, kSize}, DType::kF8E4M3),
               .b = make({kSize, kSize}, DType::kBF16),
               .narrow_b = make({kSize, kSize}, DType::kF8E4M3),
               .whole = make({kSize, kSize}, DType::kBF16),
               .part = make({kSize / kWorld, kSize}, DType::kBF16),
               .scale = make({1}, DType::kF32),
               .symmetric = symm::empty({kSize / kWorld, kSize}, DType::kBF16, rank.device).value()};
  auto handle = symm::rendezvous(made.symmetric, rank.group);
  if (!handle) return tl::unexpected(handle.error());
  made.handle = *handle;
  made.event = rank.device.create_event().value();
  return made;
}

Result<void> without_report(const Result<OpReport>& report) {
  if (!report) return tl::unexpected(report.error());
  return {};
}

/// Calls that a program queues.
struct Call {
  std::string name;
  std::function<Result<void>(RankContextOfTest& rank, Tensors& t)> enqueue;
  bool is_for_gpus = true;
};

Result<void> gather(RankContextOfTest& rank, const Tensors& t, const TensorView& a, Algorithm algorithm,
                    const std::shared_ptr<symm::Handle>& handle = nullptr) {
  return without_report(fused_all_gather_matmul({.a = a,
                                                 .b = {&t.b.view(), 1},
                                                 .gather_size = kSize,
                                                 .out = {&t.whole.view(), 1},
                                                 .a_handle = handle,
                                                 .algorithm = algorithm},
                                                rank.group, rank.stream));
}
Result<void> scatter(RankContextOfTest& rank, const Tensors& t, Algorithm algorithm) {
  return without_report(fused_matmul_reduce_scatter(
      {.a = {&t.a.view(), 1}, .b = {&t.b.view(), 1}, .out = t.part.view(), .algorithm = algorithm},
      rank.group, rank.stream));
}

Result<void> all_reduce(RankContextOfTest& rank, const Tensors& t, Algorithm algorithm) {
  return without_report(fused_matmul_all_reduce(
      {.a = {&t.a.view(), 1}, .b = {&t.b.view(), 1}, .out = t.whole.view(), .algorithm = algorithm},
      rank.group, rank.stream));
}

Result<void> get_and_put(RankContextOfTest& rank, Tensors& t) {
  const int peer = (rank.group.rank() + 1) % kWorld;
  if (auto done = t.handle->barrier(rank.stream, 8); !done) return done;
  if (auto done = t.handle->get(rank.stream, t.part.view(), peer, 0); !done) return done;
  if (auto done = t.handle->put_signal(rank.stream, peer, 9); !done) return done;
  return t.handle->wait_signal(rank.stream, (peer + 1) % kWorld, 9);
}
Result<void> record_and_wait(RankContextOfTest& rank, Tensors& t) {
  if (auto done = rank.stream.record(*t.event); !done) return done;
  if (auto done = rank.stream.wait(*t.event); !done) return done;
  return rank.stream.copy(t.a.view(), t.whole.view());
}

const std::vector<Call>& calls() {
  static const std::vector<Call> all = {
      {"mm",
       [](RankContextOfTest& rank, Tensors& t) {
         return gemm::mm({.a = t.a.view(), .b = t.b.view(), .out = t.whole.view(), .bias = {}}, rank.stream);
       }},
      {"copy",
       [](RankContextOfTest& rank, Tensors& t) { return rank.stream.copy(t.a.view(), t.whole.view()); }},
      {"scaled_mm",
       [](RankContextOfTest& rank, Tensors& t) {
         return gemm::scaled_matmul({.a = t.narrow_a.view(), .b = t.narrow_b.view(), .out = t.whole.view()},
                                    rank.stream);
       },
       false},
      {"all_gather",
       [](RankContextOfTest& rank, Tensors& t) {
         return coll::all_gather({t.shard.view(), t.whole.view()}, rank.group, rank.stream);
       }},
      {"reduce_scatter",
       [](RankContextOfTest& rank, Tensors& t) {
         return coll::reduce_scatter({t.a.view(), t.part.view(), coll::ReduceOp::kSum, {}}, rank.group,
                                     rank.stream);
       }},
      {"all_reduce",
       [](RankContextOfTest& rank, Tensors& t) {
         return coll::all_reduce({t.a.view(), t.whole.view(), coll::ReduceOp::kSum, {}}, rank.group,
                                 rank.stream);
       }},
      {"symmetric_local",  // used as memory like any other
       [](RankContextOfTest& rank, Tensors& t) {
         t.handle.reset();
         return gather(rank, t, t.symmetric.view(), Algorithm::kSerial);
       }},
      {"get_and_put", get_and_put},
      {"event", record_and_wait},
      {"scaled_gather",
       [](RankContextOfTest& rank, Tensors& t) {
         const TensorView shard = t.narrow_a.view().narrow(0, 0, kSize / kWorld);
         return without_report(fused_all_gather_scaled_matmul({.a = shard,
                                                               .b = {&t.narrow_b.view(), 1},
                                                               .a_scale = t.scale.view(),
                                                               .b_scale = {&t.scale.view(), 1},
                                                               .gather_size = kSize,
                                                               .out = {&t.whole.view(), 1}},
                                                              rank.group, rank.stream));
       },
       false},
      {"scaled_scatter",
       [](RankContextOfTest& rank, Tensors& t) {
         const std::optional<TensorView> scale = t.scale.view();
         return without_report(fused_scaled_matmul_reduce_scatter({.a = {&t.narrow_a.view(), 1},
                                                                   .b = {&t.narrow_b.view(), 1},
                                                                   .a_scale = {&scale, 1},
                                                                   .b_scale = {&scale, 1},
                                                                   .out = t.part.view()},
                                                                  rank.group, rank.stream));
       },
       false}};
  return all;
}
std::vector<Call> every_call() {
  std::vector<Call> all = calls();
  for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative}) {
    const std::string name(to_string(algorithm));
    all.push_back(
        {"gather_" + name,
         [=](RankContextOfTest& rank, Tensors& t) { return gather(rank, t, t.shard.view(), algorithm); },
         algorithm != Algorithm::kNative});
    if (algorithm == Algorithm::kNative) continue;
    all.push_back({"gather_in_place_" + name, [=](RankContextOfTest& rank, Tensors& t) {
                     return gather(rank, t, t.symmetric.view(), algorithm, t.handle);
                   }});
    all.push_back({"scatter_" + name,
                   [=](RankContextOfTest& rank, Tensors& t) { return scatter(rank, t, algorithm); }});
    all.push_back({"fused_all_reduce_" + name,
                   [=](RankContextOfTest& rank, Tensors& t) { return all_reduce(rank, t, algorithm); }});
  }
  return all;
}

/// A program as the README has it. It returns when a call is refused, on one rank or on all.
Result<void> program(RankContextOfTest& rank, const Call& call, bool is_refused_on_all) {
  auto made = make_tensors(rank);
  if (!made) return tl::unexpected(made.error());
  Tensors tensors = *std::move(made);
  if (auto done = rank.stream.sleep(std::chrono::milliseconds(20)); !done) return done;
  // Often enough to be launched as a graph, where there are graphs.
  for (int i = 0; i < 5; ++i) {
    auto done = call.enqueue(rank, tensors);
    if (!done && done.error().code() == ErrorCode::kInvalidArgument)
      return fail(ErrorCode::kInternal, "the test's own call: " + done.error().to_string());
    if (!done) return done;
  }
  const bool is_refused = is_refused_on_all || rank.group.rank() == 1;
  const TensorView wrong = is_refused ? tensors.shard.view().narrow(1, 0, 5) : tensors.shard.view();
  return gather(rank, tensors, wrong, Algorithm::kAuto);
}

class FusedEarlyReturn : public ::testing::TestWithParam<JobCase> {
 protected:
  /// Memory that is taken while the program's calls are queued stays as it is.
  static Result<void> run(RankContextOfTest& rank, const Call& call, bool is_refused_on_all,
                          Complaints& complaints) {
    const auto ended = program(rank, call, is_refused_on_all);
    std::vector<Tensor> others;
    for (int i = 0; i < 40; ++i)
      others.push_back(rank.device.allocate_tensor({kSize, kSize >> (i % 3)}, DType::kBF16).value());
    static_cast<void>(rank.stream.synchronize());
    for (const Tensor& other : others) {
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(other.view().size_bytes()));
      if (auto copied = rank.device.copy_to_host(other.view(), bytes.data()); !copied) return copied;
      if (bytes != std::vector<std::uint8_t>(bytes.size(), 0)) complaints.add("other memory was written to");
    }
    const bool is_refused = is_refused_on_all || rank.group.rank() == 1;
    if (is_refused == (!ended && ended.error().code() == ErrorCode::kInvalidArgument)) return {};
    complaints.add(call.name + ": rank " + std::to_string(rank.group.rank()) + ": " +
                   (ended ? "ok" : ended.error().to_string()));
    return {};
  }
};

TEST_P(FusedEarlyReturn, ends_with_the_refusal_and_nothing_else) {
  for (const Call& call : every_call()) {
    if (!GetParam().is_on_cpu() && !call.is_for_gpus) continue;
    for (const bool is_refused_on_all : {true, false}) {
      SCOPED_TRACE(call.name + (is_refused_on_all ? ", refused on all ranks" : ", refused on one rank"));
      Complaints complaints;
      test::on_ranks(GetParam(), test::quick_config(), complaints,
                     [&](RankContextOfTest& rank) { return run(rank, call, is_refused_on_all, complaints); });
      EXPECT_EQ(complaints.text(), "");
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedEarlyReturn, ::testing::ValuesIn(test::exact_cases({kWorld})),
                         test::job_name);

}  // namespace
}  // namespace tandem
