#include "fault/every_call.hpp"

#include <optional>

namespace tandem::test {
namespace {

Result<void> without_report(const Result<OpReport>& report) {
  if (!report) return tl::unexpected(report.error());
  return {};
}

}  // namespace

Result<TensorsOfCalls> make_tensors_of_calls(RankContextOfTest& rank) {
  const auto make = [&](const Dims& sizes, DType dtype) {
    return rank.device.allocate_tensor(sizes, dtype).value();
  };
  TensorsOfCalls made{
      .a = make({kSizeOfCalls, kSizeOfCalls}, DType::kBF16),
      .shard = make({kSizeOfCalls / rank.group.size(), kSizeOfCalls}, DType::kBF16),
      .narrow_a = make({kSizeOfCalls, kSizeOfCalls}, DType::kF8E4M3),
      .b = make({kSizeOfCalls, kSizeOfCalls}, DType::kBF16),
      .narrow_b = make({kSizeOfCalls, kSizeOfCalls}, DType::kF8E4M3),
      .whole = make({kSizeOfCalls, kSizeOfCalls}, DType::kBF16),
      .part = make({kSizeOfCalls / rank.group.size(), kSizeOfCalls}, DType::kBF16),
      .scale = make({1}, DType::kF32),
      .symmetric =
          symm::empty({kSizeOfCalls / rank.group.size(), kSizeOfCalls}, DType::kBF16, rank.device).value()};
  auto handle = symm::rendezvous(made.symmetric, rank.group);
  if (!handle) return tl::unexpected(handle.error());
  made.handle = *handle;
  made.event = rank.device.create_event().value();
  return made;
}

Result<void> gather_of_calls(RankContextOfTest& rank, const TensorsOfCalls& t, const TensorView& a,
                             Algorithm algorithm, const std::shared_ptr<symm::Handle>& handle) {
  return without_report(fused_all_gather_matmul({.a = a,
                                                 .b = {&t.b.view(), 1},
                                                 .gather_size = kSizeOfCalls,
                                                 .out = {&t.whole.view(), 1},
                                                 .a_handle = handle,
                                                 .algorithm = algorithm},
                                                rank.group, rank.stream));
}

namespace {

Result<void> scatter(RankContextOfTest& rank, const TensorsOfCalls& t, Algorithm algorithm) {
  return without_report(fused_matmul_reduce_scatter(
      {.a = {&t.a.view(), 1}, .b = {&t.b.view(), 1}, .out = t.part.view(), .algorithm = algorithm},
      rank.group, rank.stream));
}

Result<void> all_reduce(RankContextOfTest& rank, const TensorsOfCalls& t, Algorithm algorithm) {
  return without_report(fused_matmul_all_reduce(
      {.a = {&t.a.view(), 1}, .b = {&t.b.view(), 1}, .out = t.whole.view(), .algorithm = algorithm},
      rank.group, rank.stream));
}

Result<void> get_and_put(RankContextOfTest& rank, TensorsOfCalls& t) {
  const int world = rank.group.size();
  const int peer = (rank.group.rank() + 1) % world;
  if (auto done = t.handle->barrier(rank.stream, 8); !done) return done;
  if (auto done = t.handle->get(rank.stream, t.part.view(), peer, 0); !done) return done;
  if (auto done = t.handle->put_signal(rank.stream, peer, 9); !done) return done;
  return t.handle->wait_signal(rank.stream, (rank.group.rank() + world - 1) % world, 9);
}
Result<void> record_and_wait(RankContextOfTest& rank, TensorsOfCalls& t) {
  if (auto done = rank.stream.record(*t.event); !done) return done;
  if (auto done = rank.stream.wait(*t.event); !done) return done;
  return rank.stream.copy(t.a.view(), t.whole.view());
}

const std::vector<CallOfTest>& calls() {
  static const std::vector<CallOfTest> all = {
      {"mm",
       [](RankContextOfTest& rank, TensorsOfCalls& t) {
         return gemm::mm({.a = t.a.view(), .b = t.b.view(), .out = t.whole.view(), .bias = {}}, rank.stream);
       }},
      {"copy", [](RankContextOfTest& rank,
                  TensorsOfCalls& t) { return rank.stream.copy(t.a.view(), t.whole.view()); }},
      {"scaled_mm",
       [](RankContextOfTest& rank, TensorsOfCalls& t) {
         return gemm::scaled_matmul({.a = t.narrow_a.view(), .b = t.narrow_b.view(), .out = t.whole.view()},
                                    rank.stream);
       },
       false},
      {"all_gather",
       [](RankContextOfTest& rank, TensorsOfCalls& t) {
         return coll::all_gather({t.shard.view(), t.whole.view()}, rank.group, rank.stream);
       }},
      {"reduce_scatter",
       [](RankContextOfTest& rank, TensorsOfCalls& t) {
         return coll::reduce_scatter({t.a.view(), t.part.view(), coll::ReduceOp::kSum, {}}, rank.group,
                                     rank.stream);
       }},
      {"all_reduce",
       [](RankContextOfTest& rank, TensorsOfCalls& t) {
         return coll::all_reduce({t.a.view(), t.whole.view(), coll::ReduceOp::kSum, {}}, rank.group,
                                 rank.stream);
       }},
      {"symmetric_local",  // used as memory like any other
       [](RankContextOfTest& rank, TensorsOfCalls& t) {
         t.handle.reset();
         return gather_of_calls(rank, t, t.symmetric.view(), Algorithm::kSerial);
       }},
      {"get_and_put", get_and_put},
      {"event", record_and_wait},
      {"scaled_gather",
       [](RankContextOfTest& rank, TensorsOfCalls& t) {
         const TensorView shard = t.narrow_a.view().narrow(0, 0, kSizeOfCalls / rank.group.size());
         return without_report(fused_all_gather_scaled_matmul({.a = shard,
                                                               .b = {&t.narrow_b.view(), 1},
                                                               .a_scale = t.scale.view(),
                                                               .b_scale = {&t.scale.view(), 1},
                                                               .gather_size = kSizeOfCalls,
                                                               .out = {&t.whole.view(), 1}},
                                                              rank.group, rank.stream));
       },
       false},
      {"scaled_scatter",
       [](RankContextOfTest& rank, TensorsOfCalls& t) {
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

}  // namespace

std::vector<CallOfTest> every_call() {
  std::vector<CallOfTest> all = calls();
  for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kNative}) {
    const std::string name(to_string(algorithm));
    all.push_back({"gather_" + name,
                   [=](RankContextOfTest& rank, TensorsOfCalls& t) {
                     return gather_of_calls(rank, t, t.shard.view(), algorithm);
                   },
                   algorithm != Algorithm::kNative});
    if (algorithm == Algorithm::kNative) continue;
    all.push_back({"gather_in_place_" + name, [=](RankContextOfTest& rank, TensorsOfCalls& t) {
                     return gather_of_calls(rank, t, t.symmetric.view(), algorithm, t.handle);
                   }});
    all.push_back({"scatter_" + name,
                   [=](RankContextOfTest& rank, TensorsOfCalls& t) { return scatter(rank, t, algorithm); }});
    all.push_back({"fused_all_reduce_" + name, [=](RankContextOfTest& rank, TensorsOfCalls& t) {
                     return all_reduce(rank, t, algorithm);
                   }});
  }
  return all;
}

}  // namespace tandem::test
