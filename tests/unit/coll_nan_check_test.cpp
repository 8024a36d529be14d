#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tandem/coll/collectives.hpp>
#include <vector>

#include "base/format.hpp"
#include "coll/cpu/nan_scan.hpp"
#include "coll/element_rows.hpp"
#include "coll/nan_check.hpp"
#include "support/planted_nan.hpp"
#include "support/symm_rank.hpp"

// Checks for NaN: what they find in tensors of every type and form, on every backend, and what collectives
// look at.

namespace tandem::testing {
namespace {

// ---- the order of elements ----

/// All elements by position, as offsets in memory and as indices.
struct Walked {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> indices;
};

Walked walk(const TensorView& view) {
  const coll::ElementRows rows = coll::ElementRows::of(view);
  const std::int64_t begin =
      (static_cast<const std::byte*>(rows.data) - static_cast<const std::byte*>(view.data)) /
      size_bytes(view.dtype);
  Walked walked;
  for (std::int64_t row = 0; row < rows.num_rows; ++row) {
    for (std::int64_t i = 0; i < rows.row_length; ++i) {
      walked.offsets.push_back(begin + rows.offset_of_row(row) + i * rows.step);
      walked.indices.push_back(rows.index_at(row * rows.row_length + i));
    }
  }
  return walked;
}

/// The same by the view's own strides; of an element that several indices have, the smallest.
Walked expected_of(const TensorView& view) {
  Walked expected;
  for (std::int64_t idx = 0; idx < view.numel(); ++idx) {
    std::int64_t offset = 0;
    std::int64_t rest = idx;
    for (int d = view.dim() - 1; d >= 0; --d) {
      offset += rest % view.size(d) * view.stride(d);
      rest /= view.size(d);
    }
    if (std::count(expected.offsets.begin(), expected.offsets.end(), offset) > 0) continue;
    expected.offsets.push_back(offset);
    expected.indices.push_back(idx);
  }
  return expected;
}

TEST(CollElementRows, has_every_element_once_with_its_index) {
  float memory[4096] = {};
  const auto view = [&](const Dims& sizes, const Dims& strides) {
    TensorView made = TensorView::contiguous(memory + 2048, sizes, DType::kF32);
    made.strides = strides;
    return made;
  };
  for (const TensorView& one :
       {view({}, {}), view({1}, {7}), view({5}, {1}), view({5}, {3}), view({4, 6}, {6, 1}),
        view({4, 6}, {1, 4}), view({4, 6}, {9, 1}), view({4, 6}, {12, 2}), view({3, 4, 5}, {20, 5, 1}),
        view({3, 4, 5}, {1, 3, 12}), view({3, 4, 5}, {5, 15, 1}), view({3, 4, 5}, {40, 1, 7}),
        view({4, 6}, {0, 1}), view({4, 6}, {1, 0}), view({4, 6}, {-6, 1}), view({4, 6}, {6, -1}),
        view({2, 1, 3}, {3, 99, 1}), view({3, 4}, {-1, -3})}) {
    Walked expected = expected_of(one);
    const Walked got = walk(one);
    ASSERT_EQ(got.offsets.size(), expected.offsets.size()) << to_string(one);
    for (std::size_t i = 0; i < got.offsets.size(); ++i) {
      const auto found = std::find(expected.offsets.begin(), expected.offsets.end(), got.offsets[i]);
      ASSERT_NE(found, expected.offsets.end()) << to_string(one);
      EXPECT_EQ(got.indices[i], expected.indices[static_cast<std::size_t>(found - expected.offsets.begin())])
          << to_string(one);
      *found = std::int64_t{1} << 60;  // once
      if (i > 0) {
        EXPECT_GT(got.offsets[i], got.offsets[i - 1]) << to_string(one);
      }
    }
  }
  EXPECT_EQ(coll::ElementRows::of(view({3, 0}, {0, 1})).num_rows, 0);
}

TEST(CollElementRows, counts_beyond_32_bits) {
  const std::int64_t rows = 100'000;
  const std::int64_t columns = 70'001;
  const TensorView whole = TensorView::contiguous(nullptr, {rows, columns}, DType::kF8E4M3);
  const coll::ElementRows one = coll::ElementRows::of(whole);
  EXPECT_EQ(one.num_rows, 1);
  EXPECT_EQ(one.row_length, rows * columns);
  EXPECT_EQ(one.index_at(rows * columns - 1), rows * columns - 1);
  const coll::ElementRows transposed = coll::ElementRows::of(whole.movedim(0, 1));
  EXPECT_EQ(transposed.row_length, rows * columns);
  // Element [1, 99999] of the transposed view comes at 99999 * 70001 + 1, and has index 1 * 100000 + 99999.
  EXPECT_EQ(transposed.index_at(99'999 * columns + 1), 199'999);
  const coll::ElementRows cut = coll::ElementRows::of(whole.narrow(1, 0, columns - 1));
  EXPECT_EQ(cut.num_rows, rows);
  EXPECT_EQ(cut.offset_of_row(rows - 1), (rows - 1) * columns);
  EXPECT_EQ(cut.index_at(rows * (columns - 1) - 1), rows * (columns - 1) - 1);
}

// ---- one tensor ----

class CollNanCheck : public ::testing::TestWithParam<RankCase> {
 protected:
  void run(const SymmProgram& program, const Config& config = {}) {
    expect_ok(run_symm_ranks(GetParam(), config, program));
  }
};
INSTANTIATE_TEST_SUITE_P(World, CollNanCheck, ::testing::ValuesIn(rank_cases({1})), case_name);

/// What a check in a group of its own says of `view`; empty: nothing.
std::string checked(SymmRank& rank, const TensorView& view) {
  static std::atomic<int> number{0};
  const std::vector<int> alone = {rank.rank()};
  auto group = rank.group.subgroup(alone, "check " + std::to_string(number++)).value();
  EXPECT_TRUE(coll::enqueue_nan_check("op", {"x", &view}, *group, *rank.stream));
  const auto done = rank.finish();
  EXPECT_EQ(done.has_value(), group->status().has_value());
  if (done) return "";
  EXPECT_EQ(done.error().code(), ErrorCode::kNumeric);
  EXPECT_EQ(done.error().text(), group->status().error().text());
  return done.error().text();
}

/// A view of memory of the device, `offset` elements behind a place that is aligned well.
class DeviceElements {
 public:
  DeviceElements(const SymmRank& rank, DType dtype, std::int64_t count, std::int64_t offset)
      : image_(dtype, offset + count + 16),
        memory_(rank.device->allocate_tensor({offset + count + 16}, dtype).value()),
        device_(*rank.device),
        offset_(offset),
        count_(count) {
    // NaN all around: what is not in the view is not looked at.
    for (std::int64_t i = 0; i < offset; ++i) image_.set(i, nan_bits(dtype)[0]);
    for (std::int64_t i = 0; i < 16; ++i) image_.set(offset + count + i, nan_bits(dtype)[0]);
  }
  void set(std::int64_t idx, std::uint64_t bits) { image_.set(offset_ + idx, bits); }
  void clean(std::int64_t idx) { set(idx, 0); }
  TensorView upload() {
    EXPECT_TRUE(device_.copy_from_host(image_.data(), memory_.view()));
    return memory_.view().narrow(0, offset_, count_);
  }

 private:
  Elements image_;
  Tensor memory_;
  Device& device_;
  std::int64_t offset_;
  std::int64_t count_;
};

TEST_P(CollNanCheck, finds_each_nan_at_each_place_of_each_type) {
  run([](SymmRank& rank) -> Result<void> {
    for (const DType dtype : kFloatingTypes) {
      const std::vector<std::uint64_t> nans = nan_bits(dtype);
      std::size_t which = 0;
      for (const std::int64_t offset : {0, 1, 3}) {
        for (const std::int64_t count : {1, 7, 33, 1000}) {
          DeviceElements elements(rank, dtype, count, offset);
          EXPECT_EQ(checked(rank, elements.upload()), "")
              << to_string(dtype) << " " << offset << " " << count;
          for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
            elements.set(at, nans[which++ % nans.size()]);
            EXPECT_EQ(checked(rank, elements.upload()),
                      fmt::format("rank 0: op: x has 1 NaN, at element {} ([{}])", at, at))
                << to_string(dtype) << ", " << offset << " behind an aligned place, " << count << " elements";
            elements.clean(at);
          }
        }
      }
    }
    return {};
  });
}

TEST_P(CollNanCheck, counts_all_and_names_the_first) {
  run([](SymmRank& rank) -> Result<void> {
    for (const DType dtype : kFloatingTypes) {
      constexpr std::int64_t kCount = 100'003;
      DeviceElements elements(rank, dtype, kCount, 1);
      std::int64_t planted = 0;
      for (std::int64_t at = 4711; at < kCount; at += 97, ++planted) elements.set(at, nan_bits(dtype)[1]);
      EXPECT_EQ(checked(rank, elements.upload()),
                fmt::format("rank 0: op: x has {} NaNs, the first at element 4711 ([4711])", planted));
    }
    return {};
  });
}

TEST_P(CollNanCheck, looks_at_any_strides_and_at_nothing_between_them) {
  run([](SymmRank& rank) -> Result<void> {
    for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF8E4M3}) {
      constexpr std::int64_t kRows = 37;
      constexpr std::int64_t kColumns = 45;
      DeviceElements elements(rank, dtype, kRows * kColumns, 0);
      // Column 7 is full of NaN, and so is the last row.
      for (std::int64_t r = 0; r < kRows; ++r) elements.set(r * kColumns + 7, nan_bits(dtype)[0]);
      for (std::int64_t c = 0; c < kColumns; ++c)
        elements.set((kRows - 1) * kColumns + c, nan_bits(dtype)[0]);
      const std::int64_t r = 20;
      const std::int64_t c = 30;
      for (const bool has_nan : {false, true}) {
        if (has_nan) elements.set(r * kColumns + c, nan_bits(dtype)[1]);
        TensorView all = elements.upload();
        all.sizes = {kRows, kColumns};
        all.strides = {kColumns, 1};
        const TensorView right = all.narrow(0, 0, kRows - 1).narrow(1, 8, kColumns - 8);
        TensorView every_other = right.narrow(1, 0, 36);
        every_other.sizes[1] = 18;
        every_other.strides[1] = 2;
        const auto says = [&](std::int64_t columns, std::int64_t column, bool is_transposed) -> std::string {
          if (!has_nan) return "";
          return is_transposed ? fmt::format("rank 0: op: x has 1 NaN, at element {} ([{}, {}])",
                                             column * (kRows - 1) + r, column, r)
                               : fmt::format("rank 0: op: x has 1 NaN, at element {} ([{}, {}])",
                                             r * columns + column, r, column);
        };
        EXPECT_EQ(checked(rank, right), says(kColumns - 8, c - 8, false));
        EXPECT_EQ(checked(rank, right.movedim(0, 1)), says(0, c - 8, true));
        EXPECT_EQ(checked(rank, every_other), says(18, (c - 8) / 2, false));
        EXPECT_EQ(checked(rank, right.narrow(1, 0, 0)), "");
      }
    }
    return {};
  });
}

TEST_P(CollNanCheck, skips_types_without_nan_and_empty_tensors) {
  run([](SymmRank& rank) -> Result<void> {
    for (const DType dtype : {DType::kU8, DType::kI8, DType::kI32, DType::kU32, DType::kI64, DType::kBool}) {
      const Tensor ones = rank.device->allocate_tensor({64}, dtype).value();
      const std::vector<std::uint8_t> bytes(static_cast<std::size_t>(ones.view().size_bytes()), 0xff);
      EXPECT_TRUE(rank.device->copy_from_host(bytes.data(), ones.view()));
      EXPECT_EQ(checked(rank, ones.view()), "") << to_string(dtype);
    }
    EXPECT_EQ(checked(rank, TensorView::contiguous(nullptr, {0}, DType::kF32, rank.device->id())), "");
    return {};
  });
}

// ---- collectives ----

class CollNanChecks : public CollNanCheck {};
INSTANTIATE_TEST_SUITE_P(World, CollNanChecks, ::testing::ValuesIn(rank_cases({2, 3})), case_name);

constexpr std::int64_t kRows = 12;
constexpr std::int64_t kColumns = 5;

/// Tensors of one rank: inputs of ones, results full of NaN.
struct Tensors {
  explicit Tensors(SymmRank& rank)
      : symmetric(rank.empty({kRows, kColumns})),
        handle(rank.meet(symmetric)),
        shard(filled(rank, {kRows / rank.size(), kColumns}, 1)),
        whole(filled(rank, {kRows, kColumns}, 1)),
        bias(filled(rank, {kColumns}, 1)),
        gathered(filled(rank, {kRows, kColumns}, NAN)),
        part(filled(rank, {kRows / rank.size(), kColumns}, NAN)),
        all_gathered(filled(rank, {rank.size() * kRows, kColumns}, NAN)),
        words(rank.device->allocate_tensor({rank.size()}, DType::kU32).value()) {
    rank.fill(symmetric.view(), 1.0F);
  }
  static Tensor filled(SymmRank& rank, const Dims& sizes, float value) {
    Tensor made = rank.device->allocate_tensor(sizes, DType::kF32).value();
    rank.fill(made.view(), value);
    return made;
  }

  Tensor symmetric;
  std::shared_ptr<symm::Handle> handle;
  Tensor shard, whole, bias, gathered, part, all_gathered, words;
};

struct Collective {
  std::string name;
  std::string op;  ///< as its errors begin
  std::function<Result<void>(SymmRank& rank, Tensors& t, Group& group)> enqueue;
  std::function<Tensor*(Tensors& t)> input;
  std::string tensor = "input";
};

std::vector<Collective> all_collectives() {
  const auto gather = [](SymmRank& rank, Tensors& t, Group& group) {
    return coll::all_gather({.input = t.shard.view(), .output = t.gathered.view()}, group, *rank.stream);
  };
  const auto scatter = [](SymmRank& rank, Tensors& t, Group& group) {
    return coll::reduce_scatter({.input = t.whole.view(), .output = t.part.view(), .bias = t.bias.view()},
                                group, *rank.stream);
  };
  const auto reduce = [](SymmRank& rank, Tensors& t, Group& group) {
    return coll::all_reduce({.input = t.whole.view(), .output = t.gathered.view(), .bias = t.bias.view()},
                            group, *rank.stream);
  };
  const auto shard = [](Tensors& t) { return &t.shard; };
  const auto whole = [](Tensors& t) { return &t.whole; };
  const auto bias = [](Tensors& t) { return &t.bias; };
  return {{"all_gather", "all_gather f32 [12, 5]", gather, shard},
          {"reduce_scatter", "reduce_scatter sum f32 [12, 5] -> f32 + bias", scatter, whole},
          {"reduce_scatter bias", "reduce_scatter sum f32 [12, 5] -> f32 + bias", scatter, bias, "bias"},
          {"all_reduce", "all_reduce sum f32 [12, 5] -> f32 + bias", reduce, whole},
          {"all_reduce bias", "all_reduce sum f32 [12, 5] -> f32 + bias", reduce, bias, "bias"}};
}

std::unique_ptr<Group> subgroup(SymmRank& rank, const std::string& name) {
  std::vector<int> ranks;
  for (int r = 0; r < rank.size(); ++r) ranks.push_back(r);
  return rank.group.subgroup(ranks, name).value();
}

TEST_P(CollNanChecks, clean_inputs_pass_whatever_results_hold) {
  run([](SymmRank& rank) -> Result<void> {
    Tensors t(rank);
    rank.group.set_nan_check(true);
    for (const Collective& one : all_collectives()) {
      if (auto done = one.enqueue(rank, t, rank.group); !done) return done;
      if (auto done = rank.finish(); !done) return done;
      rank.fill(t.gathered.view(), NAN);
      rank.fill(t.part.view(), NAN);
    }
    if (auto done = coll::all_gather_with_progress({.output = t.all_gathered.view(),
                                                    .input = t.symmetric.view(),
                                                    .progress = t.words.view(),
                                                    .input_handle = t.handle},
                                                   rank.group, *rank.stream);
        !done)
      return done;
    return rank.finish();
  });
}

TEST_P(CollNanChecks, a_nan_of_one_rank_is_the_error_of_every_rank) {
  run([](SymmRank& rank) -> Result<void> {
    Tensors t(rank);
    for (const Collective& one : all_collectives()) {
      const auto group = subgroup(rank, one.name);
      group->set_nan_check(true);
      if (auto done = one.enqueue(rank, t, *group); !done) return done;  // memory is made
      if (auto done = rank.finish(); !done) return done;
      // A rank that still waited for the clean call would hear of the NaN there.
      if (auto all = rank.group.all_gather({}, "clean call is over"); !all)
        return tl::unexpected(all.error());
      if (rank.rank() == 1) rank.fill(one.input(t)->view(), NAN);
      const std::int64_t count = one.input(t)->view().numel();
      const auto enqueued = one.enqueue(rank, t, *group);
      const auto done = enqueued ? rank.finish() : enqueued;
      EXPECT_FALSE(done) << one.name << ", rank " << rank.rank();
      if (done) continue;
      EXPECT_EQ(done.error().code(), ErrorCode::kNumeric);
      EXPECT_EQ(done.error().text(),
                fmt::format("rank 1: {}: {} has {} NaNs, the first at element 0 ([{}])", one.op, one.tensor,
                            count, one.tensor == "bias" ? "0" : "0, 0"));
      EXPECT_FALSE(group->status());
      // Whatever else the other rank's stream tells of it, which may be late, comes before the next call.
      if (auto all = rank.group.all_gather({}, "both have heard of it"); !all)
        return tl::unexpected(all.error());
      static_cast<void>(rank.finish());
      if (auto all = rank.group.all_gather({}, "both have forgotten it"); !all)
        return tl::unexpected(all.error());
      rank.fill(one.input(t)->view(), 1.0F);
    }
    // The device and other groups go on.
    rank.group.set_nan_check(true);
    if (auto done = all_collectives()[0].enqueue(rank, t, rank.group); !done) return done;
    return rank.finish();
  });
}

TEST_P(CollNanChecks, a_gather_with_progress_is_checked) {
  run([](SymmRank& rank) -> Result<void> {
    Tensors t(rank);
    rank.group.set_nan_check(true);
    std::vector<float> values(static_cast<std::size_t>(kRows * kColumns), 1.0F);
    if (rank.rank() == 1) values[6] = NAN;
    rank.write(t.symmetric.view(), values);
    const auto enqueued = coll::all_gather_with_progress({.output = t.all_gathered.view(),
                                                          .input = t.symmetric.view(),
                                                          .progress = t.words.view(),
                                                          .input_handle = t.handle},
                                                         rank.group, *rank.stream);
    const auto done = enqueued ? rank.finish() : enqueued;
    EXPECT_FALSE(done);
    if (!done) {
      EXPECT_NE(done.error().text().find("input has 1 NaN, at element 6 ([1, 1])"), std::string::npos)
          << done.error().text();
    }
    return {};
  });
}

TEST_P(CollNanChecks, the_switch_is_each_ranks_own_and_can_be_turned) {
  run([](SymmRank& rank) -> Result<void> {
    Tensors t(rank);
    const Collective gather = all_collectives()[0];
    EXPECT_FALSE(rank.group.nan_check());
    rank.fill(t.shard.view(), rank.rank() == 0 ? NAN : 1.0F);
    for (const bool is_on : {false, true, false}) {
      if (rank.rank() != 0) rank.group.set_nan_check(is_on);  // rank 0, which has the NaN, does not look
      if (auto done = gather.enqueue(rank, t, rank.group); !done) return done;
      if (auto done = rank.finish(); !done) return done;
    }
    EXPECT_FALSE(rank.group.nan_check());
    const auto inherits = subgroup(rank, "inherits");
    EXPECT_FALSE(inherits->nan_check());
    rank.group.set_nan_check(true);
    EXPECT_TRUE(subgroup(rank, "inherits too")->nan_check());
    const auto enqueued = gather.enqueue(rank, t, rank.group);
    EXPECT_FALSE(enqueued ? rank.finish() : enqueued);
    return {};
  });
}

TEST_P(CollNanChecks, the_setting_of_the_configuration_is_the_first) {
  Config config;
  config.nan_check = true;
  run(
      [](SymmRank& rank) -> Result<void> {
        EXPECT_TRUE(rank.group.nan_check());
        return {};
      },
      config);
}

// Inputs go right behind the call, and their memory is handed out again: what the check sees is theirs.
TEST_P(CollNanChecks, inputs_may_go_behind_the_call) {
  run([](SymmRank& rank) -> Result<void> {
    rank.group.set_nan_check(true);
    const Tensor output = rank.device->allocate_tensor({kRows * 1000, kColumns}, DType::kF32).value();
    for (int call = 0; call < 20; ++call) {
      {
        const Tensor input = Tensors::filled(rank, {kRows * 1000 / rank.size(), kColumns}, 1);
        if (auto held = rank.stream->sleep(std::chrono::microseconds(500)); !held) return held;
        if (auto done =
                coll::all_gather({.input = input.view(), .output = output.view()}, rank.group, *rank.stream);
            !done)
          return done;
      }
      const Tensor next = Tensors::filled(rank, {kRows * 1000 / rank.size(), kColumns}, NAN);
      if (auto done = rank.finish(); !done) return done;
    }
    return {};
  });
}

}  // namespace
}  // namespace tandem::testing
