// Arguments that are wrong on one rank or on all: code, values and remedy.
#include <gtest/gtest.h>

#include <limits>

#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
using std::chrono::milliseconds;

TEST(SymmArguments, Empty) {
  const auto device = open_device({DeviceKind::kCpu, 0}, {}).value();
  expect_error(symm::empty({4, -2}, DType::kF32, *device), ErrorCode::kInvalidArgument, "negative size -2");
  expect_error(symm::empty({kMax, 2}, DType::kF32, *device), ErrorCode::kInvalidArgument,
               "more than 2^62 bytes");
  expect_error(symm::empty({std::int64_t{1} << 50}, DType::kU8, *device), ErrorCode::kOutOfMemory,
               "1125899906842624 bytes asked for");
}

TEST(SymmArguments, HandlesRefuseWithTheValues) {
  expect_ok(run_symm_ranks(2, {}, [](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({100}, DType::kU8);
    const auto handle = rank.meet(tensor);
    constexpr auto kBad = ErrorCode::kInvalidArgument;
    Stream& stream = *rank.stream;
    const Tensor target = Tensor::host({1}, DType::kU8);
    for (const int bad : {-1, 2, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
      const std::string text = "rank " + std::to_string(bad) + ", need 0 to 1";
      expect_error(handle->get_buffer(bad, {1}, DType::kU8), kBad, text);
      expect_error(handle->get_signal_pad(bad), kBad, text);
      expect_error(handle->get_remote_tensor(bad, {1}, DType::kU8), kBad, text);
      expect_error(handle->put_signal(stream, bad), kBad, text);
      expect_error(handle->wait_signal(stream, bad), kBad, text);
      expect_error(handle->get(stream, target.view(), bad), kBad, text);
      expect_error(handle->put(stream, target.view(), bad), kBad, text);
    }
    const int most = handle->num_channels() - 1;
    const std::string need = ", need 0 to " + std::to_string(most);
    for (const int bad : {-1, most + 1, std::numeric_limits<int>::max()}) {
      const std::string text = "channel " + std::to_string(bad) + need;
      expect_error(handle->put_signal(stream, 0, bad), kBad, text);
      expect_error(handle->wait_signal(stream, 0, bad), kBad, text);
      expect_error(handle->barrier(stream, bad), kBad, text);
    }
    for (const auto bad : {milliseconds(0), milliseconds(-5)}) {
      const std::string text = "timeout of " + std::to_string(bad.count()) + " ms";
      expect_error(handle->put_signal(stream, 0, 0, bad), kBad, text);
      expect_error(handle->wait_signal(stream, 0, 0, bad), kBad, text);
      expect_error(handle->barrier(stream, 0, bad), kBad, text);
    }
    // The last channel is legal.
    if (auto done = handle->barrier(stream, most); !done) return done;
    return rank.finish();
  }));
}

TEST(SymmArguments, WindowsStayInside) {
  expect_ok(run_symm_ranks(1, {}, [](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({100}, DType::kU8);
    const auto handle = rank.meet(tensor);
    constexpr auto kBad = ErrorCode::kInvalidArgument;
    EXPECT_EQ(handle->get_buffer(0, {5, 5}, DType::kF32).value().data, tensor.view().data);
    EXPECT_EQ(handle->get_buffer(0, {24}, DType::kF32, 1).value().data, tensor.view().data_as<char>() + 4);
    EXPECT_EQ(handle->get_buffer(0, {12}, DType::kF64).value().dtype, DType::kF64);
    EXPECT_TRUE(handle->get_buffer(0, {0}, DType::kF32, 25));
    expect_error(handle->get_buffer(0, {26}, DType::kF32), kBad, "104 bytes requested, 100 available");
    expect_error(handle->get_buffer(0, {25}, DType::kF32, 1), kBad, "104 bytes requested, 100 available");
    expect_error(handle->get_buffer(0, {13}, DType::kF64), kBad, "104 bytes requested, 100 available");
    expect_error(handle->get_buffer(0, {1}, DType::kF32, -1), kBad, "negative offset -1");
    expect_error(handle->get_buffer(0, {-1}, DType::kF32), kBad, "negative size -1");
    expect_error(handle->get_buffer(0, {1}, DType::kF32, kMax), kBad, "100 available");
    expect_error(handle->get_buffer(0, {kMax / 8}, DType::kF64, kMax / 8), kBad, "2^62");
    expect_error(handle->get_buffer(0, {std::int64_t{1} << 31, 4}, DType::kU8), kBad,
                 "8589934592 bytes requested");

    const std::int64_t pad_bytes = handle->signal_pad_size_bytes();
    EXPECT_EQ(handle->get_signal_pad(0).value().numel(), pad_bytes / 4);
    EXPECT_EQ(handle->get_signal_pad(0, {}, DType::kU8).value().numel(), pad_bytes);
    EXPECT_EQ(handle->get_signal_pad(0, {2, 3}, DType::kU32, 5).value().data_as<std::uint32_t>(),
              handle->signal_pad_ptrs()[0] + 5);
    EXPECT_EQ(handle->get_signal_pad(0, {pad_bytes / 8}, DType::kI64).value().size_bytes(),
              pad_bytes / 8 * 8);
    expect_error(handle->get_signal_pad(0, {pad_bytes / 4}, DType::kU32, 1), kBad,
                 std::to_string(pad_bytes) + " available");
    return {};
  }));
}

TEST(SymmArguments, CopiesRefuseTheirLocalSide) {
  expect_ok(run_symm_ranks(1, {}, [](SymmRank& rank) -> Result<void> {
    Tensor whole = rank.empty({102}, DType::kU8);
    const Tensor odd(whole.view().narrow(0, 2, 100), whole.owner());
    const auto handle = rank.meet(odd);
    const Tensor target = Tensor::host({10, 10}, DType::kU8);
    constexpr auto kBad = ErrorCode::kInvalidArgument;
    expect_error(handle->get(*rank.stream, target.view().movedim(0, 1), 0), kBad, "not contiguous");
    expect_error(handle->put(*rank.stream, target.view().movedim(0, 1), 0), kBad,
                 "put: source u8 [10, 10] strides [1, 10] on cpu:0 is not contiguous");
    expect_error(handle->put(*rank.stream, target.view(), 0, 1), kBad, "103 bytes requested, 102 available");
    expect_error(handle->put(*rank.stream, target.view(), 0, -1), kBad, "put: negative offset -1");
    expect_error(handle->get(*rank.stream, target.view(), 0, 1), kBad, "103 bytes requested, 102 available");
    expect_error(handle->get(*rank.stream, target.view(), 0, -1), kBad, "negative offset -1");
    const Tensor floats = Tensor::host({1}, DType::kF32);
    expect_error(handle->get(*rank.stream, floats.view(), 0), kBad, "2 bytes is no multiple of the 4 bytes");
    TensorView elsewhere = target.view();
    elsewhere.device = {DeviceKind::kCuda, 3};
    expect_error(handle->get(*rank.stream, elsewhere, 0), kBad, "destination on cuda:3");
    expect_error(handle->put(*rank.stream, elsewhere, 0), kBad, "source on cuda:3");
    return {};
  }));
}

TEST(SymmArguments, StreamOfAnotherDevice) {
  expect_ok(run_symm_ranks(1, {}, [](SymmRank& rank) -> Result<void> {
    const Tensor tensor = rank.empty({4});
    const auto handle = rank.meet(tensor);
    const auto other = open_device({DeviceKind::kCpu, 0}, {}).value();
    const auto stream = other->create_stream().value();
    expect_error(handle->barrier(*stream), ErrorCode::kInvalidArgument, "the stream belongs to");
    return {};
  }));
}

// `program` gives this rank's result of the call under test; every rank must get `code` with `piece`.
void expect_on_every_rank(int size, ErrorCode code, std::string_view piece,
                          const std::function<Result<void>(SymmRank&)>& program) {
  std::atomic<int> num_checked{0};
  (void)run_symm_ranks(size, {}, [&](SymmRank& rank) -> Result<void> {
    const auto result = program(rank);
    SCOPED_TRACE("rank " + std::to_string(rank.rank()));
    expect_error(result, code, piece);
    num_checked.fetch_add(1);
    return {};
  });
  EXPECT_EQ(num_checked.load(), size);
}

Result<void> meet(SymmRank& rank, const Dims& sizes, DType dtype) {
  const Tensor tensor = rank.empty(sizes, dtype);
  const auto handle = symm::rendezvous(tensor, rank.group);
  if (!handle) return tl::unexpected(handle.error());
  return {};
}

TEST(SymmMismatch, IsSeenByEveryRank) {
  for (const int odd_one : {0, 2}) {
    expect_on_every_rank(3, ErrorCode::kMismatch, "f32 [65]", [&](SymmRank& rank) {
      return meet(rank, {rank.rank() == odd_one ? 65 : 64}, DType::kF32);
    });
    expect_on_every_rank(3, ErrorCode::kMismatch, "bf16", [&](SymmRank& rank) {
      return meet(rank, {64}, rank.rank() == odd_one ? DType::kBF16 : DType::kF16);
    });
    expect_on_every_rank(3, ErrorCode::kMismatch, "[8, 8]", [&](SymmRank& rank) {
      return meet(rank, rank.rank() == odd_one ? Dims{8, 8} : Dims{64}, DType::kF32);
    });
  }
}

TEST(SymmMismatch, PadsOfDifferentSizes) {
  expect_on_every_rank(2, ErrorCode::kMismatch, "pad of 80 bytes", [&](SymmRank& rank) -> Result<void> {
    if (rank.rank() == 1) expect_ok(symm::set_signal_pad_size(rank.group, 80));
    return meet(rank, {64}, DType::kF32);
  });
}

TEST(SymmMismatch, WorkspacesOfDifferentSizes) {
  expect_on_every_rank(2, ErrorCode::kMismatch, "2000000 bytes", [&](SymmRank& rank) -> Result<void> {
    const auto handle = symm::workspace(rank.group, *rank.device, rank.rank() == 1 ? 2'000'000 : 1'000'000);
    if (!handle) return tl::unexpected(handle.error());
    return {};
  });
}

TEST(SymmMismatch, OneRankRefusesTheOthersHearWhy) {
  expect_ok(run_symm_ranks(3, {}, [](SymmRank& rank) -> Result<void> {
    Tensor tensor = rank.rank() == 1 ? Tensor::host({64}, DType::kF32) : rank.empty({64});
    const auto handle = symm::rendezvous(tensor, rank.group);
    const auto code = rank.rank() == 1 ? ErrorCode::kInvalidArgument : ErrorCode::kMismatch;
    expect_error(handle, code, "not symmetric memory");
    return {};
  }));
}

TEST(SymmMismatch, AllRefuseAndGoOn) {
  expect_ok(run_symm_ranks(3, {}, [](SymmRank& rank) -> Result<void> {
    const Tensor ordinary = Tensor::host({64}, DType::kF32);
    expect_error(symm::rendezvous(ordinary, rank.group), ErrorCode::kInvalidArgument, "not symmetric memory");
    expect_error(symm::workspace(rank.group, *rank.device, -1), ErrorCode::kInvalidArgument, "-1 bytes");
    expect_error(symm::workspace(rank.group, *rank.device, std::int64_t{1} << 50), ErrorCode::kOutOfMemory,
                 "asked for");
    expect_ok(rank.group.status());
    const Tensor tensor = rank.empty({64});
    const auto handle = rank.meet(tensor);
    return handle->barrier(*rank.stream).and_then([&] { return rank.finish(); });
  }));
}

}  // namespace
}  // namespace tandem::testing
