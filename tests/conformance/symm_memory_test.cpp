// Symmetric memory on ranks that are threads: tensors, handles and their tables, for every backend and size.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <random>

#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

using symm::Handle;

std::vector<std::int32_t> numbers_from(std::int32_t first) {
  std::vector<std::int32_t> numbers(256);
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

std::vector<std::uint32_t> random_words(std::int64_t count, int seed) {
  std::mt19937 bits(static_cast<unsigned>(seed));
  std::vector<std::uint32_t> words(static_cast<std::size_t>(count));
  for (std::uint32_t& word : words) word = bits();
  return words;
}

class SymmMemory : public ::testing::TestWithParam<RankCase> {
 protected:
  void run(const SymmProgram& program, const Config& config = {}) {
    expect_ok(run_symm_ranks(GetParam(), config, program));
  }
};
INSTANTIATE_TEST_SUITE_P(World, SymmMemory, ::testing::ValuesIn(rank_cases({1, 2, 3, 4, 8})), case_name);

TEST_P(SymmMemory, EmptyIsZeroedContiguousAndSymmetric) {
  run([](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({33, 65}, DType::kBF16);
    EXPECT_TRUE(tensor.view().is_contiguous());
    EXPECT_EQ(tensor.view().size_bytes(), 33 * 65 * 2);
    EXPECT_EQ(rank.read<std::uint16_t>(tensor.view()), std::vector<std::uint16_t>(33 * 65, 0));
    const Tensor ordinary = Tensor::host({33, 65}, DType::kBF16);
    EXPECT_TRUE(symm::is_symmetric(tensor.view(), *rank.device));
    EXPECT_TRUE(symm::is_symmetric(tensor.view().narrow(0, 32, 1), *rank.device));
    EXPECT_FALSE(symm::is_symmetric(ordinary.view(), *rank.device));
    TensorView beyond = tensor.view();
    beyond.sizes[0] += 1;
    EXPECT_FALSE(symm::is_symmetric(beyond, *rank.device));
    return {};
  });
}

TEST_P(SymmMemory, EveryRankReadsEveryRank) {
  run([](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({64, 64});
    const auto handle = rank.meet(tensor);
    EXPECT_EQ(handle->rank(), rank.rank());
    EXPECT_EQ(handle->world_size(), rank.size());
    EXPECT_EQ(handle->buffer_size_bytes(), 64 * 64 * 4);
    EXPECT_EQ(handle->offset_bytes(), 0);
    EXPECT_EQ(handle->buffer_ptrs()[static_cast<std::size_t>(rank.rank())], tensor.view().data);
    rank.fill(tensor.view(), static_cast<float>(rank.rank() + 1));
    if (auto done = handle->barrier(*rank.stream); !done) return done;
    if (auto done = rank.finish(); !done) return done;
    const auto table = TensorView::contiguous(const_cast<void**>(handle->buffer_ptrs_dev()), {rank.size()},
                                              DType::kI64, rank.device->id());
    const auto pointers_dev = rank.read<void*>(table);
    for (int q = 0; q < rank.size(); ++q) {
      const auto view = handle->get_buffer(q, {64, 64}, DType::kF32).value();
      EXPECT_EQ(rank.read<float>(view), std::vector<float>(64 * 64, static_cast<float>(q + 1)))
          << "rank " << q;
      EXPECT_EQ(pointers_dev[static_cast<std::size_t>(q)], view.data);
    }
    return handle->barrier(*rank.stream).and_then([&] { return rank.finish(); });
  });
}

TEST_P(SymmMemory, RendezvousIsCachedByTensorAndGroup) {
  run([](SymmRank& rank) -> Result<void> {
    const Tensor x = rank.empty({16});
    const Tensor y = rank.empty({16});
    const auto hx = rank.meet(x);
    const auto hy = rank.meet(y);
    EXPECT_NE(hx, hy);
    EXPECT_EQ(rank.meet(x), hx);
    // A look-up even where only some ranks have kept their handle.
    const Handle* raw = hy.get();
    std::shared_ptr<Handle> kept = rank.rank() % 2 == 0 ? hy : nullptr;
    EXPECT_EQ(rank.meet(y).get(), raw);
    return {};
  });
}

TEST_P(SymmMemory, FindHandleFindsViewsAndNothingElse) {
  run([](SymmRank& rank) -> Result<void> {
    const Tensor x = rank.empty({8, 16});
    const Tensor stranger = rank.empty({8, 16});
    const Tensor ordinary = Tensor::host({8, 16}, DType::kF32);
    EXPECT_EQ(symm::find_handle(x.view(), rank.group), nullptr) << "before the rendezvous";
    const auto handle = rank.meet(x);
    EXPECT_EQ(symm::find_handle(x.view(), rank.group), handle);
    EXPECT_EQ(symm::find_handle(x.view().narrow(0, 7, 1), rank.group), handle);
    EXPECT_EQ(symm::find_handle(stranger.view(), rank.group), nullptr);
    EXPECT_EQ(symm::find_handle(ordinary.view(), rank.group), nullptr);
    TensorView beyond = x.view();
    beyond.sizes[0] = 9;
    EXPECT_EQ(symm::find_handle(beyond, rank.group), nullptr);
    return {};
  });
}

TEST_P(SymmMemory, OffsetsOfViewsInOneBlock) {
  run([](SymmRank& rank) -> Result<void> {
    Tensor x = rank.empty({8, 16});
    const auto whole = rank.meet(x);
    const Tensor rows(x.view().narrow(0, 3, 2), x.owner());
    const auto part = rank.meet(rows);  // no communication: the block is known
    EXPECT_NE(part, whole);
    EXPECT_EQ(part->offset_bytes(), 3 * 16 * 4);
    EXPECT_EQ(symm::find_handle(rows.view(), rank.group), part);
    EXPECT_EQ(symm::find_handle(x.view(), rank.group), whole);
    for (int q = 0; q < rank.size(); ++q) {
      auto* base = static_cast<std::byte*>(whole->buffer_ptrs()[static_cast<std::size_t>(q)]);
      EXPECT_EQ(part->get_remote_tensor(q, {2, 16}, DType::kF32).value().data, base + 3 * 16 * 4);
      EXPECT_EQ(part->get_buffer(q, {2, 16}, DType::kF32).value().data, base) << "get_buffer adds no offset";
    }
    expect_error(part->get_remote_tensor(0, {6, 16}, DType::kF32), ErrorCode::kInvalidArgument,
                 "576 bytes requested");
    return {};
  });
}

TEST_P(SymmMemory, HandleOutlivesTensor) {
  run([](SymmRank& rank) -> Result<void> {
    std::shared_ptr<Handle> handle;
    {
      Tensor tensor = rank.empty({256}, DType::kI32);
      rank.write(tensor.view(), numbers_from(1000 * rank.rank()));
      handle = rank.meet(tensor);
    }
    if (auto done = handle->barrier(*rank.stream); !done) return done;
    if (auto done = rank.finish(); !done) return done;
    const int next = (rank.rank() + 1) % rank.size();
    const auto view = handle->get_buffer(next, {256}, DType::kI32).value();
    EXPECT_EQ(rank.read<std::int32_t>(view), numbers_from(1000 * next));
    EXPECT_EQ(symm::find_handle(handle->get_buffer(rank.rank(), {4}, DType::kI32).value(), rank.group),
              handle);
    return handle->barrier(*rank.stream).and_then([&] { return rank.finish(); });
  });
}

TEST_P(SymmMemory, GetCopiesAnyBits) {
  run([](SymmRank& rank) -> Result<void> {
    const std::int64_t count = 4099;
    const Tensor source = rank.empty({count}, DType::kU32);
    rank.write(source.view(), random_words(count, rank.rank()));
    const auto handle = rank.meet(source);
    if (auto done = handle->barrier(*rank.stream); !done) return done;
    for (int q = 0; q < rank.size(); ++q) {
      const auto target = rank.device->allocate_tensor({count - 7}, DType::kF32).value();
      if (auto done = handle->get(*rank.stream, target.view(), q, 7); !done) return done;
      if (auto done = rank.finish(); !done) return done;
      auto expected = random_words(count, q);
      expected.erase(expected.begin(), expected.begin() + 7);
      EXPECT_EQ(rank.read<std::uint32_t>(target.view()), expected) << "from rank " << q;
    }
    return handle->barrier(*rank.stream).and_then([&] { return rank.finish(); });
  });
}

// Every rank writes its row into every other's block; a word behind it says so.
TEST_P(SymmMemory, PutCopiesAnyBitsBeforeTheSignalBehindIt) {
  run([](SymmRank& rank) -> Result<void> {
    const std::int64_t count = 4099;
    const Tensor rows = rank.empty({3 + count * rank.size()}, DType::kU32);
    const auto handle = rank.meet(rows);
    const auto source = rank.device->allocate_tensor({count}, DType::kU32).value();
    rank.write(source.view(), random_words(count, rank.rank()));
    for (int step = 0; step < rank.size(); ++step) {
      const int peer = (rank.rank() + step) % rank.size();
      if (auto done = handle->put(*rank.stream, source.view(), peer, 3 + count * rank.rank()); !done)
        return done;
      if (auto done = handle->put_signal(*rank.stream, peer, symm::kFirstUserChannel); !done) return done;
    }
    for (int q = 0; q < rank.size(); ++q) {
      if (auto done = handle->wait_signal(*rank.stream, q, symm::kFirstUserChannel); !done) return done;
    }
    if (auto done = rank.finish(); !done) return done;
    for (int q = 0; q < rank.size(); ++q) {
      EXPECT_EQ(rank.read<std::uint32_t>(rows.view().narrow(0, 3 + count * q, count)), random_words(count, q))
          << "from rank " << q;
    }
    return handle->barrier(*rank.stream).and_then([&] { return rank.finish(); });
  });
}

TEST_P(SymmMemory, EmptyTensorsCanMeet) {
  run([](SymmRank& rank) -> Result<void> {
    const Tensor nothing = rank.empty({0, 16});
    const auto handle = rank.meet(nothing);
    EXPECT_EQ(handle->buffer_size_bytes(), 0);
    EXPECT_TRUE(handle->get_buffer(0, {0}, DType::kF32));
    expect_error(handle->get_buffer(0, {1}, DType::kF32), ErrorCode::kInvalidArgument,
                 "4 bytes requested, 0 available");
    return handle->barrier(*rank.stream).and_then([&] { return rank.finish(); });
  });
}

TEST_P(SymmMemory, PairsByOrderOfCallsNotOfAllocation) {
  run([](SymmRank& rank) -> Result<void> {
    Tensor first = rank.empty({4}, DType::kI32);
    Tensor second = rank.empty({4}, DType::kI32);
    if (rank.rank() == 0) std::swap(first, second);
    rank.fill<std::int32_t>(first.view(), 1);
    rank.fill<std::int32_t>(second.view(), 2);
    const auto h1 = rank.meet(first);
    const auto h2 = rank.meet(second);
    if (auto done = h1->barrier(*rank.stream).and_then([&] { return rank.finish(); }); !done) return done;
    for (int q = 0; q < rank.size(); ++q) {
      const auto one = rank.read<std::int32_t>(h1->get_buffer(q, {1}, DType::kI32).value());
      const auto two = rank.read<std::int32_t>(h2->get_buffer(q, {1}, DType::kI32).value());
      EXPECT_EQ(one[0], 1) << "rank " << q;
      EXPECT_EQ(two[0], 2) << "rank " << q;
    }
    return h1->barrier(*rank.stream).and_then([&] { return rank.finish(); });
  });
}

TEST_P(SymmMemory, WritingAllDataLeavesThePadsAlone) {
  run([](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({12345}, DType::kU8);
    const auto handle = rank.meet(tensor);
    const int next = (rank.rank() + 1) % rank.size();
    const auto remote = handle->get_buffer(next, {12345}, DType::kU8).value();
    rank.fill<std::uint8_t>(remote, 0xff);
    if (auto done = handle->barrier(*rank.stream).and_then([&] { return rank.finish(); }); !done) return done;
    EXPECT_EQ(rank.read<std::uint8_t>(tensor.view()), std::vector<std::uint8_t>(12345, 0xff));
    if (auto done = handle->barrier(*rank.stream, 1).and_then([&] { return rank.finish(); }); !done)
      return done;
    // All ranks have passed and nobody signals until the next rendezvous.
    const Tensor pause = rank.empty({1});
    (void)rank.meet(pause);
    expect_pad_zero(*handle);
    return {};
  });
}

TEST_P(SymmMemory, PadSizeIsSettable) {
  run([](SymmRank& rank) -> Result<void> {
    const Tensor x = rank.empty({4});
    const auto before = rank.meet(x);
    EXPECT_GE(before->signal_pad_size_bytes(), 9216);
    EXPECT_GE(before->num_channels(), 16);
    EXPECT_EQ(before->num_channels(), before->signal_pad_size_bytes() / (4 * rank.size()));
    expect_error(symm::set_signal_pad_size(rank.group, 0), ErrorCode::kInvalidArgument, "0 bytes");
    expect_error(symm::set_signal_pad_size(rank.group, -4), ErrorCode::kInvalidArgument, "-4 bytes");
    expect_error(symm::set_signal_pad_size(rank.group, 4 * rank.size() + 1), ErrorCode::kInvalidArgument,
                 "multiple");
    if (auto done = symm::set_signal_pad_size(rank.group, std::int64_t{4} * rank.size() * 3); !done)
      return done;
    const Tensor y = rank.empty({4});
    const auto after = rank.meet(y);
    EXPECT_EQ(after->num_channels(), 3);
    EXPECT_EQ(before->num_channels(), before->signal_pad_size_bytes() / (4 * rank.size()));
    EXPECT_TRUE(after->barrier(*rank.stream, 2));
    expect_error(after->barrier(*rank.stream, 3), ErrorCode::kInvalidArgument, "channel 3, need 0 to 2");
    return rank.finish();
  });
}

TEST_P(SymmMemory, WorkspaceGrowsGeometricallyAndStays) {
  run([](SymmRank& rank) -> Result<void> {
    const auto small = symm::workspace(rank.group, *rank.device, 100).value();
    EXPECT_GE(small->buffer_size_bytes(), 100);
    EXPECT_EQ(symm::workspace(rank.group, *rank.device, 0).value(), small);
    EXPECT_EQ(symm::workspace(rank.group, *rank.device, small->buffer_size_bytes()).value(), small);
    const auto grown = symm::workspace(rank.group, *rank.device, small->buffer_size_bytes() + 1).value();
    EXPECT_NE(grown, small);
    EXPECT_GE(grown->buffer_size_bytes(), 2 * small->buffer_size_bytes());
    EXPECT_EQ(symm::workspace(rank.group, *rank.device, 1).value(), grown) << "never shrinks";
    // Queued work may still use the old one: it stays mapped and usable.
    rank.fill<std::uint8_t>(small->get_buffer(rank.rank(), {small->buffer_size_bytes()}, DType::kU8).value(),
                            1);
    return small->barrier(*rank.stream).and_then([&] { return rank.finish(); });
  });
}

class SymmOverlap : public SymmMemory {};
INSTANTIATE_TEST_SUITE_P(World, SymmOverlap, ::testing::ValuesIn(rank_cases({3, 4, 8})), case_name);

TEST_P(SymmOverlap, GroupsOfOneTensorHavePadsOfTheirOwn) {
  run([](SymmRank& rank) -> Result<void> {
    // {0, 1} and {1, 2}: rank 1 is in both, and the two are made in different orders on different ranks.
    const Tensor tensor = rank.empty({64}, DType::kI32);
    const auto world = rank.meet(tensor);
    const std::array<int, 2> low{0, 1};
    const std::array<int, 2> high{1, 2};
    std::vector<std::unique_ptr<Group>> groups;
    if (rank.rank() <= 1) groups.push_back(rank.group.subgroup(low, "pair").value());
    if (rank.rank() == 1 || rank.rank() == 2) groups.push_back(rank.group.subgroup(high, "pair").value());
    std::vector<std::shared_ptr<Handle>> handles;
    for (const auto& group : groups) handles.push_back(symm::rendezvous(tensor, *group).value());
    handles.push_back(world);
    for (std::size_t i = 0; i < handles.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        EXPECT_NE(handles[i]->signal_pad_ptrs()[static_cast<std::size_t>(handles[i]->rank())],
                  handles[j]->signal_pad_ptrs()[static_cast<std::size_t>(handles[j]->rank())]);
      }
    }
    for (int round = 0; round < 20; ++round) {
      for (const auto& handle : handles) {
        if (auto done = handle->barrier(*rank.stream); !done) return done;
      }
    }
    return rank.finish();
  });
}

TEST_P(SymmMemory, RecycledGroupNameFindsNothingOld) {
  run([](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({64});
    std::vector<int> everybody;
    for (int q = 0; q < rank.size(); ++q) everybody.push_back(q);
    std::shared_ptr<Handle> old;
    for (int life = 0; life < 3; ++life) {
      auto group = rank.group.subgroup(everybody, "again").value();
      EXPECT_EQ(symm::find_handle(tensor.view(), *group), nullptr) << "life " << life;
      const auto handle = symm::rendezvous(tensor, *group).value();
      EXPECT_NE(handle, old);
      if (auto done = handle->barrier(*rank.stream).and_then([&] { return rank.finish(); }); !done)
        return done;
      if (old)
        expect_error(old->barrier(*rank.stream), ErrorCode::kInvalidArgument, "group has been destroyed");
      old = handle;
    }
    return {};
  });
}

TEST_P(SymmMemory, AddressesThatComeBackAreNotOldTensors) {
  run([](SymmRank& rank) -> Result<void> {
    for (int i = 0; i < 50; ++i) {
      const Tensor tensor = rank.empty({1024});
      EXPECT_EQ(symm::find_handle(tensor.view(), rank.group), nullptr) << "round " << i;
      rank.fill(tensor.view(), static_cast<float>(i));
      const auto handle = rank.meet(tensor);
      if (auto done = handle->barrier(*rank.stream).and_then([&] { return rank.finish(); }); !done)
        return done;
      for (int q = 0; q < rank.size(); ++q) {
        const auto first = handle->get_buffer(q, {1}, DType::kF32).value();
        EXPECT_EQ(rank.read<float>(first)[0], static_cast<float>(i));
      }
      if (auto done = handle->barrier(*rank.stream).and_then([&] { return rank.finish(); }); !done)
        return done;
    }
    return {};
  });
}

}  // namespace
}  // namespace tandem::testing
