// What it takes to add an algorithm: a function that writes its program down. A real one stands in a file of
// its own, src/fused/gather/<name>.cpp, and has an entry in the list of src/fused/gather/algorithms.cpp, with
// its build function declared in algorithms.hpp; besides, only a new name in Algorithm (fused/report.hpp) and
// the source's line in CMakeLists.txt. Binding, verifying, running, printing and tracing are there.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "fused/gather/algorithms.hpp"
#include "program/runner.hpp"
#include "program/verify.hpp"

namespace tandem {
namespace {

using program::all_of;
using program::kCurrent;
using test::Complaints;
using test::Guarded;
using test::RankContextOfTest;

/// Everything on the caller's stream: publish, get all shards, multiply them at once.
fused::GatherProgram build_one_lane_gather(const fused::GatherProblem& problem, int rank, const Device&) {
  fused::GatherBuilder gather(problem, Algorithm::kSerial, rank, 1);
  program::Builder& steps = gather.steps();
  const fused::Travelling& a = gather.tensors().front();
  gather.add_gathered();
  const program::RootId published =
      steps.at(program::Space::kWorkspace, 0, "published a", a.sizes_of(problem.part_of(rank).size), a.dtype);
  steps.memory().workspace_bytes = std::max(a.part_bytes(problem.world), program::kRootAlignment);

  gather.copy_shards();
  steps.copy(kCurrent, gather.own_shard(0), all_of(published));
  steps.barrier(kCurrent, 1);  // all shards are published
  for (int step = 1; step < problem.world; ++step) {
    const int source = (rank + step) % problem.world;
    steps.get(kCurrent, source, all_of(published), gather.arrived(0, gather.from(source)));
  }
  const Shard own = problem.part_of(rank);
  steps.copy(kCurrent, gather.own_shard(0),
             program::part_of(gather.travel(0).gathered, 0, own.offset, own.size));
  steps.barrier(kCurrent, 0);  // peers may use the workspace again
  gather.multiply(kCurrent, gather.all());
  return {gather.take(), gather.roots()};
}

/// Three times in a row, with memory of its own.
Result<void> run(const fused::GatherProgram& built, const fused::GatherProblem& problem,
                 const fused::GatherCall& call, RankContextOfTest& rank) {
  const program::Program& program = built.program;
  const auto workspace = symm::workspace(rank.group, rank.device, program.memory.workspace_bytes);
  if (!workspace) return tl::unexpected(workspace.error());
  const auto scratch = rank.device.allocate(program.memory.scratch_bytes);
  if (!scratch) return tl::unexpected(scratch.error());
  program::Bindings bindings(program);
  bindings.bind_lane(kCurrent, rank.stream);
  bindings.bind_scratch(program, static_cast<std::byte*>(scratch->data()), rank.device.id());
  bindings.bind_workspace(program, workspace->get(), rank.device.id());
  bind(call, problem, built.roots, bindings);
  for (int round = 0; round < 3; ++round) {
    if (auto ran = program::run(program, bindings); !ran) return ran;
  }
  return rank.stream.synchronize();
}

class FusedAnotherAlgorithm : public ::testing::TestWithParam<int> {};

TEST_P(FusedAnotherAlgorithm, passes_the_verifier_and_gives_the_product) {
  const int world = GetParam();
  const Dims sizes = {3 * world - 1, 4};
  constexpr std::int64_t kColumns = 5;
  Complaints complaints;
  on_ranks(
      {.ranks = {{DeviceKind::kCpu}, world}}, test::quick_config(), complaints,
      [&](RankContextOfTest& rank) -> Result<void> {
        const fused::GatherProblem problem{.sizes = sizes,
                                           .world = world,
                                           .device = rank.device.id(),
                                           .num_b = 1,
                                           .sum_n = kColumns,
                                           .keeps_gathered = rank.group.rank() == 0};
        std::vector<program::Program> programs;
        for (int r = 0; r < world; ++r)
          programs.push_back(build_one_lane_gather(problem, r, rank.device).program);
        if (auto verified = program::verify(programs); !verified) return verified;

        const auto built = build_one_lane_gather(problem, rank.group.rank(), rank.device);
        const Shard own = problem.part_of(rank.group.rank());
        const Tensor whole = test::generated(sizes, DType::kF32, 1);
        const TensorView part = whole.view().narrow(0, own.offset, own.size);
        Guarded a(rank.device, test::dense(part.sizes), part);
        Guarded b(rank.device, test::dense({sizes[1], kColumns}),
                  test::generated({sizes[1], kColumns}, DType::kF32, 2));
        Guarded out(rank.device, Dims{sizes[0], kColumns}, DType::kF32);
        Guarded all(rank.device, sizes, DType::kF32);
        fused::GatherCall call{.a = a.view(), .b = {&b.view(), 1}, .out = {&out.view(), 1}, .gathered = {}};
        if (problem.keeps_gathered) call.gathered = all.view();

        if (auto ran = run(built, problem, call, rank); !ran) return ran;
        out.download();
        harness::Wrong wrong;
        harness::ProductReference({.a = whole.view(), .b = b.host()}).compare(out.host(), "out", wrong);
        complaints.add("gather", out, wrong);
        if (!problem.keeps_gathered) return {};
        all.download();
        harness::Wrong wrong_gathered;
        compare_equal(all.host(), whole.view(), "gathered", wrong_gathered);
        complaints.add("gather", all, wrong_gathered);
        return {};
      });
  EXPECT_EQ(complaints.text(), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedAnotherAlgorithm, ::testing::Values(1, 2, 3, 4),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace tandem
