// Random programs of groups: any subsets of the ranks, in any order of ranks, one name for all, and
// collectives of theirs on several streams. Each rank enqueues the calls that it is part of, in the order of
// the program.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <set>
#include <tandem/coll/collectives.hpp>

#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

struct Call {
  std::size_t group = 0;
  bool sums = false;      ///< an all-reduce, or else an all-gather
  std::int64_t rows = 0;  ///< of one rank
};

/// The same on every rank.
struct RandomProgram {
  std::vector<std::vector<int>> groups;  ///< the members of each, in the order of their ranks in it
  std::vector<Call> calls;

  RandomProgram(int world, unsigned seed) {
    constexpr std::size_t kGroups = 5;
    constexpr int kCalls = 40;
    std::mt19937 random(seed);
    std::set<std::vector<int>> known;
    while (known.size() < kGroups) {
      std::vector<int> members(static_cast<std::size_t>(world));
      std::iota(members.begin(), members.end(), 0);
      std::shuffle(members.begin(), members.end(), random);
      members.resize(1 + random() % members.size());
      if (known.insert(members).second) groups.push_back(members);
    }
    for (int i = 0; i < kCalls; ++i) {
      calls.push_back({random() % kGroups, random() % 2 == 0, static_cast<std::int64_t>(random() % 300)});
    }
  }
};

float value_of(int rank, std::size_t call) {
  return static_cast<float>(100 * call + static_cast<std::size_t>(rank));
}

/// What a member gets.
std::vector<float> result_of(const Call& call, std::size_t idx, const std::vector<int>& members) {
  std::vector<float> result;
  if (call.sums) {
    float sum = 0;
    for (const int member : members) sum += value_of(member, idx);
    result.assign(static_cast<std::size_t>(call.rows), sum);
    return result;
  }
  for (const int member : members)
    result.insert(result.end(), static_cast<std::size_t>(call.rows), value_of(member, idx));
  return result;
}

/// Of rank `world` of the program: what differs between ranks is drawn from `random`.
Result<void> run(const RandomProgram& program, SymmRank& world, std::mt19937& random) {
  std::vector<std::unique_ptr<Group>> groups;
  for (const std::vector<int>& members : program.groups) {
    groups.emplace_back();
    if (std::find(members.begin(), members.end(), world.rank()) == members.end()) continue;
    auto made = world.group.subgroup(members, "group");
    if (!made) return tl::unexpected(made.error());
    groups.back() = *std::move(made);
  }
  std::unique_ptr<Stream> other = world.device->create_stream().value();
  struct Made {
    std::size_t call;
    Tensor input, output;
  };
  std::vector<Made> made;
  for (std::size_t i = 0; i < program.calls.size(); ++i) {
    const Call& call = program.calls[i];
    Group* const group = groups[call.group].get();
    if (group == nullptr) continue;
    Stream& stream = random() % 2 == 0 ? *world.stream : *other;
    if (auto done = stream.sleep(std::chrono::microseconds(random() % 200)); !done) return done;
    const std::int64_t num_all = call.sums ? call.rows : call.rows * group->size();
    made.push_back({i, world.device->allocate_tensor({call.rows}, DType::kF32).value(),
                    world.device->allocate_tensor({num_all}, DType::kF32).value()});
    const TensorView input = made.back().input.view();
    const TensorView output = made.back().output.view();
    world.fill(input, value_of(world.rank(), i));
    auto enqueued = call.sums
                        ? coll::all_reduce({.input = input, .output = output, .bias = {}}, *group, stream)
                        : coll::all_gather({.input = input, .output = output}, *group, stream);
    if (!enqueued) return enqueued;
  }
  if (auto done = world.finish(); !done) return done;
  if (auto done = other->synchronize(); !done) return done;
  for (const Made& one : made) {
    const Call& call = program.calls[one.call];
    EXPECT_EQ(world.read<float>(one.output.view()), result_of(call, one.call, program.groups[call.group]))
        << "rank " << world.rank() << ", call " << one.call;
  }
  std::shuffle(groups.begin(), groups.end(), random);  // they end in any order
  groups.clear();
  return {};
}

class CollRandomGroups : public ::testing::TestWithParam<RankCase> {};
INSTANTIATE_TEST_SUITE_P(World, CollRandomGroups, ::testing::ValuesIn(rank_cases({3, 4, 8})), case_name);

TEST_P(CollRandomGroups, AreRightInAnyProgram) {
  expect_ok(run_symm_ranks(GetParam(), {}, [](SymmRank& rank) -> Result<void> {
    std::mt19937 random(static_cast<unsigned>(1 + rank.rank()));
    for (unsigned seed = 0; seed < 6; ++seed) {
      if (auto done = run(RandomProgram(rank.size(), seed), rank, random); !done) return done;
    }
    return {};
  }));
}

}  // namespace
}  // namespace tandem::testing
