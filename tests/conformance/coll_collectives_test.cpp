// The collectives on ranks that are threads: every backend and world size, ragged and empty shards, any bits,
// random delays.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <tandem/base/convert.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/coll/collectives.hpp>

#include "support/device_bytes.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

using coll::ReduceOp;

class CollCollectives : public ::testing::TestWithParam<RankCase> {
 protected:
  void run(const SymmProgram& program, const Config& config = {}) {
    expect_ok(run_symm_ranks(GetParam(), config, program));
  }
};
INSTANTIATE_TEST_SUITE_P(World, CollCollectives, ::testing::ValuesIn(rank_cases({1, 2, 3, 4, 8})), case_name);

void delay_a_little(SymmRank& rank, std::mt19937& random) {
  expect_ok(rank.stream->sleep(std::chrono::microseconds(random() % 300)));
}

// Every rank can make every rank's input.
GuardedBytes input_of(int rank, const Dims& sizes, DType dtype, unsigned call) {
  GuardedBytes input(sizes, dtype);
  input.fill_random(1000 * call + static_cast<unsigned>(rank));
  return input;
}

Result<void> gather_and_check(SymmRank& rank, std::int64_t total, DType dtype, unsigned call) {
  constexpr std::int64_t kColumns = 5;
  const Shard mine = shard_of(total, rank.size(), rank.rank());
  const DeviceBytes input(*rank.device, input_of(rank.rank(), {mine.size, kColumns}, dtype, call));
  DeviceBytes output(*rank.device, {total, kColumns}, dtype);
  const coll::AllGatherArgs args{.input = input.view({mine.size, kColumns}, dtype),
                                 .output = output.view({total, kColumns}, dtype)};
  if (auto done = coll::all_gather(args, rank.group, *rank.stream); !done) return done;
  if (auto done = rank.finish(); !done) return done;
  output.download();
  for (int q = 0; q < rank.size(); ++q) {
    const Shard part = shard_of(total, rank.size(), q);
    GuardedBytes theirs = input_of(q, {part.size, kColumns}, dtype, call);
    const std::int64_t row_bytes = kColumns * size_bytes(dtype);
    EXPECT_EQ(std::memcmp(output.image().data() + part.offset * row_bytes, theirs.data(),
                          static_cast<std::size_t>(part.size * row_bytes)),
              0)
        << "rank " << rank.rank() << " of " << rank.size() << ", shard " << q << " of " << total << " rows "
        << to_string(dtype);
  }
  EXPECT_TRUE(output.image().guards_are_whole());
  return {};
}

TEST_P(CollCollectives, AllGatherMovesAnyBitsOfAnyType) {
  run([](SymmRank& rank) -> Result<void> {
    std::mt19937 random(static_cast<unsigned>(rank.rank()));
    unsigned call = 0;
    for (const DType dtype :
         {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kU8, DType::kI64}) {
      for (const std::int64_t total : {0, 1, 2, 3, 7, 8, 9, 64, 129}) {
        delay_a_little(rank, random);
        if (auto done = gather_and_check(rank, total, dtype, ++call); !done) return done;
      }
    }
    return {};
  });
}

TensorView element_of(const GuardedBytes& bytes, std::int64_t idx, DType dtype) {
  auto& writable = const_cast<GuardedBytes&>(bytes);
  return TensorView::contiguous(writable.data() + idx * size_bytes(dtype), {1}, dtype);
}

float as_float(const GuardedBytes& bytes, std::int64_t idx, DType dtype) {
  return static_cast<float>(element_as_f64(element_of(bytes, idx, dtype), 0));
}

void set_float(GuardedBytes& bytes, std::int64_t idx, DType dtype, float value) {
  ASSERT_TRUE(convert(TensorView::contiguous(&value, {1}, DType::kF32), element_of(bytes, idx, dtype)));
}

GuardedBytes numbers_of(int rank, const Dims& sizes, DType dtype, unsigned call) {
  GuardedBytes numbers(sizes, dtype);
  std::mt19937 random(1000 * call + static_cast<unsigned>(rank));
  std::uniform_real_distribution<float> uniform(-2.0F, 2.0F);
  for (std::int64_t i = 0; i < numel(sizes); ++i) set_float(numbers, i, dtype, uniform(random));
  return numbers;
}

struct SumCase {
  std::int64_t total;
  DType in;
  DType out;
  ReduceOp op;
  bool bias;
  std::int64_t columns = 6;
  bool to_all = false;    ///< an all-reduce
  bool in_place = false;  ///< of one: its output is its input
};

/// Enqueues the collective, and adds a bias if there is one.
template <class Args, class Collective>
Result<void> enqueue(Args args, const SumCase& c, const TensorView& bias, Collective collective,
                     SymmRank& rank) {
  args.op = c.op;
  if (c.bias) args.bias = bias;
  return collective(args, rank.group, *rank.stream);
}

// Bit for bit the sum in rank order, whatever the order of arrival.
Result<void> sum_and_check(SymmRank& rank, const SumCase& c, unsigned call) {
  const Dims sizes = {c.total, c.columns};
  const Shard mine = c.to_all ? Shard{0, c.total} : shard_of(c.total, rank.size(), rank.rank());
  DeviceBytes input(*rank.device, numbers_of(rank.rank(), sizes, c.in, call));
  DeviceBytes bias(*rank.device, numbers_of(99, {c.columns}, c.out, call));
  DeviceBytes elsewhere(*rank.device, {mine.size, c.columns}, c.out);
  DeviceBytes& output = c.in_place ? input : elsewhere;
  const TensorView from = input.view(sizes, c.in);
  const TensorView to = output.view({mine.size, c.columns}, c.out);
  const TensorView added = bias.view({c.columns}, c.out);
  const auto enqueued = c.to_all ? enqueue(coll::AllReduceArgs{.input = from, .output = to, .bias = {}}, c,
                                           added, coll::all_reduce, rank)
                                 : enqueue(coll::ReduceScatterArgs{.input = from, .output = to, .bias = {}},
                                           c, added, coll::reduce_scatter, rank);
  if (!enqueued) return enqueued;
  if (auto done = rank.finish(); !done) return done;
  output.download();

  std::vector<GuardedBytes> inputs;
  for (int q = 0; q < rank.size(); ++q) inputs.push_back(numbers_of(q, sizes, c.in, call));
  GuardedBytes want({mine.size, c.columns}, c.out);
  for (std::int64_t i = 0; i < mine.size * c.columns; ++i) {
    float sum = as_float(inputs[0], mine.offset * c.columns + i, c.in);
    for (int q = 1; q < rank.size(); ++q) {
      sum += as_float(inputs[static_cast<std::size_t>(q)], mine.offset * c.columns + i, c.in);
    }
    if (c.op == ReduceOp::kAvg) sum /= static_cast<float>(rank.size());
    if (c.bias) sum += as_float(bias.image(), i % c.columns, c.out);
    set_float(want, i, c.out, sum);
    EXPECT_EQ(as_float(output.image(), i, c.out), as_float(want, i, c.out))
        << "rank " << rank.rank() << " of " << rank.size() << ", element " << i << ", " << c.total << " rows "
        << to_string(c.in) << " -> " << to_string(c.out) << " " << to_string(c.op);
  }
  EXPECT_TRUE(output.image().guards_are_whole());
  return {};
}

Result<void> sum_every_type(SymmRank& rank, bool to_all) {
  std::mt19937 random(static_cast<unsigned>(rank.rank()));
  unsigned call = to_all ? 500 : 0;
  for (const auto& [in, out] :
       {std::pair(DType::kF32, DType::kF32), std::pair(DType::kBF16, DType::kBF16),
        std::pair(DType::kF16, DType::kF16), std::pair(DType::kBF16, DType::kF32),
        std::pair(DType::kF32, DType::kF16), std::pair(DType::kF8E4M3, DType::kF8E4M3),
        std::pair(DType::kF32, DType::kF8E5M2)}) {
    for (const std::int64_t total : {0, 1, 3, 7, 8, 9, 65}) {
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg}) {
        delay_a_little(rank, random);
        const SumCase c{.total = total,
                        .in = in,
                        .out = out,
                        .op = op,
                        .bias = ++call % 2 == 0,
                        .to_all = to_all,
                        .in_place = to_all && in == out && call % 3 == 0};
        if (auto done = sum_and_check(rank, c, call); !done) return done;
      }
    }
  }
  return {};
}

TEST_P(CollCollectives, ReduceScatterSumsInRankOrder) {
  run([](SymmRank& rank) { return sum_every_type(rank, false); });
}

TEST_P(CollCollectives, AllReduceSumsInRankOrder) {
  run([](SymmRank& rank) { return sum_every_type(rank, true); });
}

// Of more bytes than one exchange carries: each rank sums a part, and gives it to all.
TEST_P(CollCollectives, AllReduceOfLargeInputs) {
  run([](SymmRank& rank) -> Result<void> {
    unsigned call = 700;
    for (const auto& [in, out] : {std::pair(DType::kF32, DType::kF32), std::pair(DType::kBF16, DType::kF32),
                                  std::pair(DType::kF32, DType::kBF16)}) {
      for (const std::int64_t total : {rank.size() * 512, rank.size() * 1001 + 1}) {
        const SumCase c{.total = total,
                        .in = in,
                        .out = out,
                        .op = total % 2 == 0 ? ReduceOp::kAvg : ReduceOp::kSum,
                        .bias = ++call % 2 == 0,
                        .columns = 24,
                        .to_all = true,
                        .in_place = in == out};
        if (auto done = sum_and_check(rank, c, call); !done) return done;
      }
    }
    return {};
  });
}

// The bias goes along the only dim, of which each rank sums a part.
TEST_P(CollCollectives, AllReduceOfVectorsAddsTheBiasOfEachElement) {
  run([](SymmRank& rank) -> Result<void> {
    for (const std::int64_t size : {5, 70'001}) {
      GuardedBytes numbers({size}, DType::kF32);
      for (std::int64_t i = 0; i < size; ++i) set_float(numbers, i, DType::kF32, static_cast<float>(i % 97));
      const DeviceBytes input(*rank.device, numbers);
      DeviceBytes output(*rank.device, {size}, DType::kF32);
      const TensorView in = input.view({size}, DType::kF32);
      const DeviceBytes bias(*rank.device, numbers);
      if (auto done = coll::all_reduce({.input = in,
                                        .output = output.view({size}, DType::kF32),
                                        .op = ReduceOp::kSum,
                                        .bias = bias.view({size}, DType::kF32)},
                                       rank.group, *rank.stream);
          !done) {
        return done;
      }
      if (auto done = rank.finish(); !done) return done;
      output.download();
      for (std::int64_t i = 0; i < size; ++i)
        EXPECT_EQ(as_float(output.image(), i, DType::kF32), static_cast<float>((rank.size() + 1) * (i % 97)));
    }
    return {};
  });
}

// More than what ranks push into each other's memory on a GPU, shared or of one's own, between calls that are
// little enough.
TEST_P(CollCollectives, LargeAndSmallCallsTakeTurns) {
  run([](SymmRank& rank) -> Result<void> {
    std::mt19937 random(static_cast<unsigned>(rank.rank()));
    unsigned call = 200;
    for (const std::int64_t rows : {14'000, 1, 3000, 110'000, 27'001, 700, 64}) {
      delay_a_little(rank, random);
      const std::int64_t total = rows * rank.size();
      if (auto done = gather_and_check(rank, total, DType::kF32, ++call); !done) return done;
      if (auto done = gather_and_check(rank, total - 1, DType::kBF16, ++call); !done) return done;
      // The check of a sum is slow.
      if (rows == 27'001 || (rows == 110'000 && rank.size() > 2)) continue;
      SumCase c{.total = total,
                .in = DType::kBF16,
                .out = DType::kBF16,
                .op = ReduceOp::kSum,
                .bias = true,
                .columns = rows < 14'000 ? 8 : 10};
      if (auto done = sum_and_check(rank, c, ++call); !done) return done;
      if (rows >= 14'000) continue;
      c.to_all = true;
      if (auto done = sum_and_check(rank, c, ++call); !done) return done;
    }
    return {};
  });
}

// Of the shards of one pair of calls, by rank and element.
float small_integer(int rank, std::int64_t idx, unsigned call) {
  return static_cast<float>((static_cast<unsigned>(idx) * 7U + static_cast<unsigned>(rank) * 13U + call) %
                            1009U);
}

// A gather of shards, and the sum of what all have gathered: W times the own shard.
class QueuedCalls {
 public:
  QueuedCalls(SymmRank& rank, std::int64_t rows, unsigned call)
      : rank_(rank),
        call_(call),
        sizes_{rows, 4},
        all_{rows * rank.size(), 4},
        shard_(*rank.device, sizes_, DType::kF32),
        gathered_(*rank.device, all_, DType::kF32),
        sum_(*rank.device, sizes_, DType::kF32) {
    for (std::int64_t i = 0; i < numel(sizes_); ++i) {
      set_float(shard_.image(), i, DType::kF32, small_integer(rank.rank(), i, call));
    }
    shard_.upload();
  }
  Result<void> enqueue() {
    const TensorView gathered = gathered_.view(all_, DType::kF32);
    auto done = coll::all_gather({.input = shard_.view(sizes_, DType::kF32), .output = gathered}, rank_.group,
                                 *rank_.stream);
    if (!done) return done;
    return coll::reduce_scatter(
        {.input = gathered, .output = sum_.view(sizes_, DType::kF32), .op = ReduceOp::kSum, .bias = {}},
        rank_.group, *rank_.stream);
  }
  void check() {
    gathered_.download();
    sum_.download();
    const std::int64_t count = numel(sizes_);
    for (std::int64_t i = 0; i < numel(all_); ++i) {
      const float want = small_integer(static_cast<int>(i / count), i % count, call_);
      ASSERT_EQ(as_float(gathered_.image(), i, DType::kF32), want) << "call " << call_ << ", element " << i;
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const float want = small_integer(rank_.rank(), i, call_) * static_cast<float>(rank_.size());
      ASSERT_EQ(as_float(sum_.image(), i, DType::kF32), want) << "call " << call_ << ", element " << i;
    }
    EXPECT_TRUE(gathered_.image().guards_are_whole() && sum_.image().guards_are_whole());
  }

 private:
  SymmRank& rank_;
  unsigned call_;
  Dims sizes_;
  Dims all_;
  DeviceBytes shard_;
  DeviceBytes gathered_;
  DeviceBytes sum_;
};

// One rank is late again and again while the others go on as far as they may, with calls of one piece to all.
TEST_P(CollCollectives, QueuedCallsOfChangingSizesAreKeptApart) {
  run([](SymmRank& rank) -> Result<void> {
    std::mt19937 random(static_cast<unsigned>(rank.rank()));
    std::vector<std::unique_ptr<QueuedCalls>> calls;
    for (unsigned call = 0; call < 30; ++call) {
      constexpr std::int64_t kRows[] = {1, 3000, 300, 20'000, 700, 1200, 16};
      calls.push_back(std::make_unique<QueuedCalls>(rank, kRows[call % 7], call));
    }
    for (int round = 0; round < 2; ++round) {
      for (const auto& call : calls) {
        if (rank.rank() == round % rank.size()) delay_a_little(rank, random);
        if (auto done = call->enqueue(); !done) return done;
      }
    }
    if (auto done = rank.finish(); !done) return done;
    for (const auto& call : calls) call->check();
    return {};
  });
}

// Whole vectors of every type, by all ranks at once.
TEST_P(CollCollectives, SumsOfWideRows) {
  run([](SymmRank& rank) -> Result<void> {
    unsigned call = 100;
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const bool bias : {false, true}) {
        SumCase c{.total = 24, .in = dtype, .out = dtype, .op = ReduceOp::kSum, .bias = bias, .columns = 64};
        for (const bool to_all : {false, true}) {
          c.to_all = to_all;
          if (auto done = sum_and_check(rank, c, ++call); !done) return done;
        }
      }
    }
    return {};
  });
}

TEST_P(CollCollectives, RepeatedCallsOnTwoStreamsStayInOrder) {
  run([](SymmRank& rank) -> Result<void> {
    // Each call's input is the call before's output, on the other stream: any overlap or swap breaks the
    // chain.
    auto other = rank.device->create_stream().value();
    Stream* const streams[] = {rank.stream.get(), other.get()};
    const int world = rank.size();
    std::mt19937 random(static_cast<unsigned>(rank.rank()));
    DeviceBytes shard(*rank.device, {3}, DType::kF32);
    const DeviceBytes all(*rank.device, {3 * world}, DType::kF32);
    for (std::int64_t i = 0; i < 3; ++i)
      set_float(shard.image(), i, DType::kF32, static_cast<float>(3 * rank.rank() + i));
    shard.upload();
    constexpr int kRounds = 20;
    for (int round = 0; round < kRounds; ++round) {
      Stream& stream = *streams[round % 2];
      Stream& next = *streams[(round + 1) % 2];
      if (auto done = stream.sleep(std::chrono::microseconds(random() % 300)); !done) return done;
      if (auto done = coll::all_gather(
              {.input = shard.view({3}, DType::kF32), .output = all.view({3 * world}, DType::kF32)},
              rank.group, stream);
          !done) {
        return done;
      }
      if (auto done = coll::reduce_scatter({.input = all.view({3 * world}, DType::kF32),
                                            .output = shard.view({3}, DType::kF32),
                                            .op = ReduceOp::kSum,
                                            .bias = {}},
                                           rank.group, next);
          !done) {
        return done;
      }
    }
    if (auto done = rank.finish(); !done) return done;
    if (auto done = other->synchronize(); !done) return done;
    shard.download();
    for (std::int64_t i = 0; i < 3; ++i) {
      float want = static_cast<float>(3 * rank.rank() + i);
      for (int round = 0; round < kRounds; ++round) want *= static_cast<float>(world);
      EXPECT_EQ(as_float(shard.image(), i, DType::kF32), want) << "rank " << rank.rank() << " of " << world;
    }
    return {};
  });
}

TEST_P(CollCollectives, ProgressWordsRiseWithTheirPieces) {
  run([](SymmRank& rank) -> Result<void> {
    constexpr std::int64_t kRows = 4;
    constexpr int kSplits = 2;
    const int world = rank.size();
    const Tensor input = rank.empty({kRows + 1, 3});
    const auto handle = rank.meet(input);
    // The second row on: a piece of a symmetric tensor is symmetric too.
    const TensorView mine = input.view().narrow(0, 1, kRows);
    std::vector<float> values(static_cast<std::size_t>(mine.numel()));
    std::iota(values.begin(), values.end(), static_cast<float>(100 * rank.rank()));
    rank.write(mine, values);
    DeviceBytes output(*rank.device, {world * kRows, 3}, DType::kF32);
    const Tensor progress = rank.empty({world * kSplits}, DType::kU32);
    const coll::AllGatherWithProgressArgs args{.output = output.view({world * kRows, 3}, DType::kF32),
                                               .input = mine,
                                               .progress = progress.view(),
                                               .splits_per_rank = kSplits,
                                               .input_handle = handle};
    for (int call = 0; call < 3; ++call) {
      if (auto done = rank.stream->memset32(progress.view(), 0, 0, world * kSplits); !done) return done;
      if (auto done = coll::all_gather_with_progress(args, rank.group, *rank.stream); !done) return done;
      if (auto done = rank.finish(); !done) return done;
      const std::vector<std::uint32_t> all_ones(static_cast<std::size_t>(world * kSplits), 1U);
      EXPECT_EQ(rank.read<std::uint32_t>(progress.view()), all_ones);
      output.download();
      for (std::int64_t i = 0; i < world * kRows * 3; ++i) {
        EXPECT_EQ(as_float(output.image(), i, DType::kF32),
                  static_cast<float>(100 * (i / (kRows * 3)) + i % (kRows * 3)))
            << "rank " << rank.rank() << ", element " << i;
      }
      EXPECT_TRUE(output.image().guards_are_whole());
    }
    return {};
  });
}

struct StackCase {
  std::int64_t layers;
  Dims sizes;
  Dims strides;  // of the output
  DType in;
  DType out;
  ReduceOp op;
  bool bias;
};

float expected_sum(const StackCase& c, const GuardedBytes& stack, const GuardedBytes& bias, std::int64_t i) {
  float sum = as_float(stack, i, c.in);
  for (std::int64_t layer = 1; layer < c.layers; ++layer) {
    sum += as_float(stack, layer * numel(c.sizes) + i, c.in);
  }
  if (c.op == ReduceOp::kAvg) sum /= static_cast<float>(c.layers);
  if (c.bias) sum += as_float(bias, i % c.sizes.back(), c.out);
  return sum;
}

void reduce_and_check(SymmRank& rank, const StackCase& c, unsigned call) {
  Dims stack_sizes = c.sizes;
  stack_sizes.insert(0, c.layers);
  DeviceBytes stack(*rank.device, numbers_of(0, stack_sizes, c.in, call));
  DeviceBytes bias(*rank.device, numbers_of(1, {c.sizes.back()}, c.out, call));
  DeviceBytes out(*rank.device, {2 * numel(c.sizes) + 1}, c.out);
  TensorView view = out.view(c.sizes, c.out);
  view.strides = c.strides;
  coll::ReduceStackArgs args{.stack = stack.view(stack_sizes, c.in), .out = view, .op = c.op, .bias = {}};
  if (c.bias) args.bias = bias.view({c.sizes.back()}, c.out);
  expect_ok(coll::reduce_stack(args, *rank.stream));
  expect_ok(rank.finish());

  GuardedBytes want = out.image();
  for (std::int64_t i = 0; i < numel(c.sizes); ++i) {
    std::int64_t offset = 0;
    std::int64_t rest = i;
    for (int d = c.sizes.size() - 1; d >= 0; --d) {
      offset += rest % c.sizes[d] * c.strides[d];
      rest /= c.sizes[d];
    }
    set_float(want, offset, c.out, expected_sum(c, stack.image(), bias.image(), i));
  }
  out.download();
  EXPECT_TRUE(out.image().guards_are_whole());
  EXPECT_EQ(std::memcmp(out.image().data(), want.data(), static_cast<std::size_t>(want.size_bytes_held())), 0)
      << c.layers << " layers of " << to_string(c.sizes) << " " << to_string(c.in) << " -> "
      << to_string(c.strides) << " " << to_string(c.out) << (c.bias ? " + bias" : "");
}

class CollStack : public CollCollectives {};
INSTANTIATE_TEST_SUITE_P(World, CollStack, ::testing::ValuesIn(rank_cases({1})), case_name);

// Bit for bit, and nothing is written beside the elements.
TEST_P(CollStack, AddsUpAnyNumberOfLayersIntoAnyStrides) {
  struct Shape {
    Dims sizes;
    Dims strides;
  };
  const Shape shapes[] = {{{6, 16}, {16, 1}},         // one row of vectors
                          {{7, 5}, {5, 1}},           // of single elements
                          {{6, 16}, {24, 1}},         // rows with holes
                          {{6, 16}, {1, 6}},          // columns
                          {{3, 4, 8}, {8, 24, 1}},    // the first two dims swapped
                          {{3, 4, 8}, {64, 8, 1}},    // the last two dims are one
                          {{3, 1, 8}, {16, 999, 1}},  // a dim of one has any stride
                          {{1}, {1}}};
  run([&](SymmRank& rank) -> Result<void> {
    unsigned call = 0;
    for (const auto& [in, out] :
         {std::pair(DType::kF32, DType::kF32), std::pair(DType::kBF16, DType::kBF16),
          std::pair(DType::kF16, DType::kF16), std::pair(DType::kBF16, DType::kF32),
          std::pair(DType::kF16, DType::kF32), std::pair(DType::kF32, DType::kBF16),
          std::pair(DType::kF32, DType::kF16), std::pair(DType::kF8E4M3, DType::kF8E4M3),
          std::pair(DType::kF8E5M2, DType::kF8E5M2), std::pair(DType::kF8E4M3, DType::kF32),
          std::pair(DType::kF8E5M2, DType::kF32), std::pair(DType::kF32, DType::kF8E4M3),
          std::pair(DType::kF32, DType::kF8E5M2)}) {
      for (const Shape& shape : shapes) {
        for (const std::int64_t layers : {1, 3, 8, 17, 40}) {
          const bool is_odd = ++call % 2 == 1;
          reduce_and_check(rank,
                           {layers, shape.sizes, shape.strides, in, out,
                            layers % 3 == 0 ? ReduceOp::kAvg : ReduceOp::kSum, is_odd},
                           call);
        }
      }
    }
    return {};
  });
}

// The link delay makes the order of arrival visible: the own rank's words come last.
TEST(CollProgress, SourcesArriveFromTheNextRankOnAndTheOwnLast) {
  Config config;
  config.link_delay = std::chrono::milliseconds(20);
  expect_ok(run_symm_ranks(3, config, [](SymmRank& rank) -> Result<void> {
    const Tensor input = rank.empty({8});
    const auto handle = rank.meet(input);
    const Tensor output = rank.empty({24});
    const Tensor progress = rank.empty({3}, DType::kU32);
    const coll::AllGatherWithProgressArgs args{.output = output.view(),
                                               .input = input.view(),
                                               .progress = progress.view(),
                                               .splits_per_rank = 1,
                                               .input_handle = handle};
    if (auto done = coll::all_gather_with_progress(args, rank.group, *rank.stream); !done) return done;
    auto word = [&](int step) {
      return std::atomic_ref<std::uint32_t>(
                 progress.view().data_as<std::uint32_t>()[(rank.rank() + step) % 3])
          .load();
    };
    const Deadline deadline = Deadline::after(std::chrono::seconds(20));
    while (word(3) == 0 && !deadline.expired()) {
      const std::uint32_t own = word(3);
      const std::uint32_t second = word(2);
      const std::uint32_t first = word(1);  // read last, so it is at least as late
      EXPECT_GE(first, second);
      EXPECT_GE(second, own);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return rank.finish();
  }));
}

}  // namespace
}  // namespace tandem::testing
