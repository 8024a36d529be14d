// Groups, handles, tensors, events and streams end in any order, on each rank in another, while their work is
// queued.
#include <gtest/gtest.h>

#include <algorithm>
#include <any>
#include <chrono>
#include <numeric>
#include <random>
#include <tandem/coll/collectives.hpp>
#include <utility>

#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

class SymmRandomLives : public ::testing::TestWithParam<RankCase> {};
INSTANTIATE_TEST_SUITE_P(World, SymmRandomLives, ::testing::ValuesIn(rank_cases({2, 3})), case_name);

/// A life of objects of all kinds with queued work between them.
Result<void> live(SymmRank& rank, std::mt19937& random) {
  std::vector<int> everybody(static_cast<std::size_t>(rank.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  std::shared_ptr<Group> group = rank.group.subgroup(everybody, "life").value();
  std::shared_ptr<Stream> first = rank.device->create_stream().value();
  std::shared_ptr<Stream> second = rank.device->create_stream().value();
  auto block = std::make_shared<Tensor>(rank.empty({256}));
  auto sum = std::make_shared<Tensor>(rank.device->allocate_tensor({256}, DType::kF32).value());
  auto copy = std::make_shared<Tensor>(rank.device->allocate_tensor({256}, DType::kF32).value());
  rank.fill(block->view(), 1.0F);
  std::shared_ptr<symm::Handle> handle = symm::rendezvous(*block, *group).value();
  std::shared_ptr<Event> event = rank.device->create_event().value();
  const int peer = (rank.rank() + 1) % rank.size();

  for (Stream* const stream : {first.get(), second.get()}) {
    if (auto done = stream->sleep(std::chrono::microseconds(random() % 2000)); !done) return done;
  }
  if (auto done = handle->barrier(*first); !done) return done;
  if (auto done = handle->get(*first, copy->view(), peer); !done) return done;
  if (auto done = first->record(*event); !done) return done;
  if (auto done = second->wait(*event); !done) return done;
  if (auto done =
          coll::all_reduce({.input = copy->view(), .output = sum->view(), .bias = {}}, *group, *second);
      !done) {
    return done;
  }
  std::vector<std::any> all(8);
  const auto move_to_all = [&all](auto&... objects) {
    std::size_t idx = 0;
    ((all[idx++] = std::move(objects)), ...);
  };
  move_to_all(group, first, second, block, sum, copy, handle, event);
  std::shuffle(all.begin(), all.end(), random);
  for (std::any& one : all) one.reset();
  return {};
}

TEST_P(SymmRandomLives, EndInAnyOrder) {
  expect_ok(run_symm_ranks(GetParam(), {}, [](SymmRank& rank) -> Result<void> {
    std::mt19937 random(static_cast<unsigned>(7 + rank.rank()));
    for (int life = 0; life < 60; ++life) {
      if (auto done = live(rank, random); !done) return done;
    }
    // What they shared still works.
    const Tensor tensor = rank.empty({4});
    return rank.meet(tensor)->barrier(*rank.stream).and_then([&] { return rank.finish(); });
  }));
}

}  // namespace
}  // namespace tandem::testing
