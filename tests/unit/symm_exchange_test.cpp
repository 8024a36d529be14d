// The parts of a rendezvous that need no ranks: sizes, ranges, records.
#include "symm/exchange.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>

#include "base/byte_size.hpp"
#include "symm/byte_range.hpp"

namespace tandem::symm {
namespace {

TEST(SymmByteSize, CountsIn64Bits) {
  EXPECT_EQ(byte_size({1 << 16, 1 << 16}, DType::kF32, "t").value(), std::int64_t{1} << 34);
  EXPECT_EQ(byte_size({(std::int64_t{1} << 31) + 1}, DType::kU8, "t").value(), (std::int64_t{1} << 31) + 1);
  EXPECT_EQ(byte_size({std::int64_t{1} << 62}, DType::kU8, "t").value(), std::int64_t{1} << 62);
  EXPECT_EQ(byte_size({}, DType::kF64, "t").value(), 8);
  EXPECT_EQ(byte_size({std::numeric_limits<std::int64_t>::max(), 0, 7}, DType::kF64, "t").value(), 0);
}

TEST(SymmByteSize, RefusesWhatOverflows) {
  const std::int64_t max = std::numeric_limits<std::int64_t>::max();
  for (const Dims& sizes : {Dims{max}, Dims{max, max}, Dims{std::int64_t{1} << 61, 8}, Dims{3, max, 5}}) {
    const auto result = byte_size(sizes, DType::kF32, "symm::empty");
    ASSERT_FALSE(result) << to_string(sizes) << " gave " << *result;
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(result.error().text().find("more than 2^62"), std::string::npos) << result.error().text();
  }
  EXPECT_NE(byte_size({4, -1}, DType::kF32, "t").error().text().find("negative size -1"), std::string::npos);
  EXPECT_FALSE(byte_size({4, 0, -1}, DType::kF32, "t"));
  EXPECT_FALSE(byte_size({4}, static_cast<DType>(99), "t"));
}

TEST(SymmByteRange, FollowsTheStrides) {
  std::byte memory[256];
  TensorView view = TensorView::contiguous(memory + 64, {2, 3}, DType::kF32);
  EXPECT_EQ(byte_range(view).first, memory + 64);
  EXPECT_EQ(byte_range(view).last, memory + 88);
  view.strides = {8, -1};
  EXPECT_EQ(byte_range(view).first, memory + 56);
  EXPECT_EQ(byte_range(view).last, memory + 100);
  view.sizes = {0, 3};
  EXPECT_EQ(byte_range(view).last, memory + 64);
}

std::vector<Store::Bytes> bytes_of(const std::vector<Record>& records) {
  std::vector<Store::Bytes> table;
  for (const Record& record : records) {
    const auto* begin = reinterpret_cast<const std::byte*>(&record);
    table.emplace_back(begin, begin + sizeof(Record));
  }
  return table;
}

std::vector<Record> three_equal_records() {
  std::vector<Record> records(3);
  for (int q = 0; q < 3; ++q) {
    Record& record = records[static_cast<std::size_t>(q)];
    record.rank = q;
    record.world_size = 3;
    record.pid = 100 + q;
    record.block_bytes = 64;
    record.pad_bytes = 9216;
    record.ordinal = 5 - q;
    record.block_cookie = static_cast<std::uint64_t>(q) + 1;
  }
  return records;
}

TEST(SymmRecords, EqualOnesPass) {
  const auto records = parse_records(bytes_of(three_equal_records()));
  ASSERT_TRUE(records) << records.error().to_string();
  EXPECT_EQ((*records)[2].block_cookie, 3U);
}

TEST(SymmRecords, EachDifferenceIsAMismatchThatListsAllRanks) {
  const std::function<void(Record&)> mutations[] = {
      [](Record& r) { r.block_bytes = 128; }, [](Record& r) { r.pad_bytes = 12; },
      [](Record& r) { r.offset_bytes = 4; },  [](Record& r) { r.sizes_hash = 77; },
      [](Record& r) { r.dtype = 3; },         [](Record& r) { r.number = 9; },
  };
  for (std::size_t at = 0; at < 3; ++at) {
    for (const auto& mutate : mutations) {
      auto records = three_equal_records();
      mutate(records[at]);
      const auto result = parse_records(bytes_of(records));
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().code(), ErrorCode::kMismatch);
      for (const char* rank : {"rank 0 (pid 100)", "rank 1 (pid 101)", "rank 2 (pid 102)"}) {
        EXPECT_NE(result.error().text().find(rank), std::string::npos) << result.error().text();
      }
    }
  }
}

TEST(SymmRecords, RefusesStrangers) {
  const std::function<void(Record&)> mutations[] = {
      [](Record& r) { r.magic = 1; },      [](Record& r) { r.version = 2; },
      [](Record& r) { r.rank = 2; },       [](Record& r) { r.world_size = 4; },
      [](Record& r) { r.dtype = 1000; },   [](Record& r) { r.block_bytes = -1; },
      [](Record& r) { r.pad_bytes = -4; },
  };
  for (const auto& mutate : mutations) {
    auto records = three_equal_records();
    mutate(records[1]);
    const auto result = parse_records(bytes_of(records));
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::kMismatch) << result.error().text();
  }
  auto table = bytes_of(three_equal_records());
  table[1].pop_back();
  EXPECT_NE(parse_records(table).error().text().find("rank 1 sent 95 bytes"), std::string::npos);
}

}  // namespace
}  // namespace tandem::symm
