#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <tandem/cost/table.hpp>

namespace tandem::cost {
namespace {

Row row_of(std::int64_t m, double serial_us) {
  Row row;
  row.key = {.op = "all_gather_matmul",
             .layout = "rows",
             .dtype = DType::kBF16,
             .m = m,
             .n = 3584,
             .k = 8192,
             .world = 4,
             .link = "peer memory"};
  row.us = {{"serial", serial_us}, {"pipelined", 380.25}};
  row.command = "tandem tune \"with quotes\"";
  row.commit = "abc";
  return row;
}

TEST(CostTable, BucketsArePowersOfTwoAndThreeHalvesOfThem) {
  EXPECT_EQ(bucket_of(0), 0);
  EXPECT_EQ(bucket_of(1), 1);
  EXPECT_EQ(bucket_of(2), 2);
  EXPECT_EQ(bucket_of(3), 3);
  EXPECT_EQ(bucket_of(4), 4);
  EXPECT_EQ(bucket_of(5), 6);
  EXPECT_EQ(bucket_of(6), 6);
  EXPECT_EQ(bucket_of(7), 8);
  EXPECT_EQ(bucket_of(1025), 1536);
  EXPECT_EQ(bucket_of(1536), 1536);
  EXPECT_EQ(bucket_of(1537), 2048);
  for (std::int64_t m = 1; m < 5000; ++m) {
    EXPECT_GE(bucket_of(m), m);
    EXPECT_EQ(bucket_of(bucket_of(m)), bucket_of(m));
    EXPECT_LE(bucket_of(m), bucket_of(m + 1));
  }
}

TEST(CostTable, BucketsOfTheLargestSizesAreNumbersToo) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kTop = std::int64_t{1} << 62;
  EXPECT_EQ(bucket_of(kTop), kTop);
  EXPECT_EQ(bucket_of(kTop + 1), kTop / 2 * 3);
  EXPECT_EQ(bucket_of(kTop / 2 * 3), kTop / 2 * 3);
  EXPECT_EQ(bucket_of(kTop / 2 * 3 + 1), kMost);
  EXPECT_EQ(bucket_of(kMost), kMost);
}

TEST(CostTable, FindsWhatDiffersInTheBucketsOfMOnly) {
  const Table table{.device = "d", .rows = {row_of(4096, 500)}};
  ASSERT_NE(table.find(row_of(4096, 0).key), nullptr);
  EXPECT_NE(table.find(row_of(3073, 0).key), nullptr);
  EXPECT_EQ(table.find(row_of(3072, 0).key), nullptr);
  EXPECT_EQ(table.find(row_of(4097, 0).key), nullptr);
  const auto other = [&](auto change) {
    Key key = row_of(4096, 0).key;
    change(key);
    return table.find(key);
  };
  EXPECT_EQ(other([](Key& key) { key.op = "matmul_reduce_scatter"; }), nullptr);
  EXPECT_EQ(other([](Key& key) { key.layout = "columns"; }), nullptr);
  EXPECT_EQ(other([](Key& key) { key.dtype = DType::kF16; }), nullptr);
  EXPECT_EQ(other([](Key& key) { key.n = 3585; }), nullptr);
  EXPECT_EQ(other([](Key& key) { key.k = 8191; }), nullptr);
  EXPECT_EQ(other([](Key& key) { key.world = 8; }), nullptr);
  EXPECT_EQ(other([](Key& key) { key.link = "shared memory"; }), nullptr);
}

TEST(CostTable, ALaterRowTakesThePlaceOfOneForTheSameBucket) {
  Table table{.device = "d", .rows = {}};
  table.put(row_of(4096, 500));
  table.put(row_of(4000, 400));
  table.put(row_of(2048, 300));
  ASSERT_EQ(table.rows.size(), 2U);
  EXPECT_EQ(table.find(row_of(4096, 0).key)->us.at("serial"), 400);
  EXPECT_EQ(table.find(row_of(2048, 0).key)->us.at("serial"), 300);
}

TEST(CostTable, IsReadAsItWasWritten) {
  const Table table{.device = "a \"device\", 2 cores", .rows = {row_of(4096, 500.5), row_of(1024, 0.25)}};
  const auto read = parse_table(to_json(table));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->device, table.device);
  ASSERT_EQ(read->rows.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(read->rows[i].key, table.rows[i].key);
    EXPECT_EQ(read->rows[i].us, table.rows[i].us);
    EXPECT_EQ(read->rows[i].command, table.rows[i].command);
    EXPECT_EQ(read->rows[i].commit, table.rows[i].commit);
  }
}

TEST(CostTable, AMessageLeavesOutWhatIsForPeople) {
  const Table table{.device = "d", .rows = {row_of(4096, 500.5), row_of(1024, 0.25)}};
  const std::string message = to_message(table);
  EXPECT_EQ(message.find("command"), std::string::npos);
  EXPECT_EQ(message.find("commit"), std::string::npos);
  const auto read = parse_table(message);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(read->device, "d");
  ASSERT_EQ(read->rows.size(), 2U);
  EXPECT_EQ(read->rows[1].key, table.rows[1].key);
  EXPECT_EQ(read->rows[1].us, table.rows[1].us);
}

TEST(CostTable, AKeyReadsAsAProblem) {
  EXPECT_EQ(to_string(row_of(4096, 0).key), "all_gather_matmul rows 4096x3584x8192 bf16 w4, peer memory");
}

}  // namespace
}  // namespace tandem::cost
