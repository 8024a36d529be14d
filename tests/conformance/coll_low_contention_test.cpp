// The low-contention collectives on ranks that are threads: every backend and number of ranks, any dimension,
// strides, type and bits, symmetric inputs, ragged and empty shards, random delays, calls in a row, and
// graphs.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <tandem/base/convert.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/coll/collectives.hpp>
#include <tandem/fused/all_gather_matmul.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "support/device_bytes.hpp"
#include "support/symm_rank.hpp"

namespace tandem::testing {
namespace {

using coll::ReduceOp;

class CollLowContention : public ::testing::TestWithParam<RankCase> {
 protected:
  void run(const SymmProgram& program, const Config& config = {}) {
    expect_ok(run_symm_ranks(GetParam(), config, program));
  }
};
INSTANTIATE_TEST_SUITE_P(World, CollLowContention, ::testing::ValuesIn(rank_cases({1, 2, 3, 4, 8})),
                         case_name);

enum class Layout { kPacked, kHoles };

/// Sizes in memory: rows with a hole behind each, or none.
Dims in_memory(Dims sizes, Layout layout) {
  if (layout == Layout::kHoles) sizes[sizes.size() - 1] += 3;
  return sizes;
}

TensorView view_of(const TensorView& memory, const Dims& sizes, Layout layout) {
  return layout == Layout::kHoles ? memory.narrow(memory.dim() - 1, 0, sizes.back()) : memory;
}

/// A poisoned tensor between guards, with its holes, and an image of it on the host.
class Operand {
 public:
  Operand(Device& device, const Dims& sizes, DType dtype, Layout layout)
      : sizes_(sizes), layout_(layout), memory_(in_memory(sizes, layout)), bytes_(device, memory_, dtype) {
    dtype_ = dtype;
  }
  [[nodiscard]] TensorView view() const { return view_of(bytes_.view(memory_, dtype_), sizes_, layout_); }
  [[nodiscard]] TensorView host() { return view_of(bytes_.image().view(memory_, dtype_), sizes_, layout_); }
  void upload() { bytes_.upload(); }
  void download() { bytes_.download(); }
  [[nodiscard]] GuardedBytes& image() { return bytes_.image(); }

 private:
  Dims sizes_;
  Layout layout_;
  Dims memory_;
  DeviceBytes bytes_;
  DType dtype_ = DType::kF32;
};

template <class Function>
void for_each_offset(const TensorView& view, Function function) {
  for (std::int64_t i = 0; i < view.numel(); ++i) {
    std::int64_t rest = i;
    std::int64_t offset = 0;
    for (int d = view.dim() - 1; d >= 0; --d) {
      offset += rest % view.size(d) * view.stride(d);
      rest /= view.size(d);
    }
    function(i, offset);
  }
}

/// Any bits, other ones for every byte of every rank's tensor.
std::uint8_t byte_of(int rank, unsigned call, std::int64_t idx) {
  return static_cast<std::uint8_t>(static_cast<std::uint64_t>(idx) * 37U +
                                   static_cast<unsigned>(rank) * 101U + call * 13U);
}

void fill_bytes(const TensorView& view, int rank, unsigned call) {
  const std::int64_t width = size_bytes(view.dtype);
  for_each_offset(view, [&](std::int64_t i, std::int64_t offset) {
    for (std::int64_t b = 0; b < width; ++b)
      view.data_as<std::uint8_t>()[offset * width + b] = byte_of(rank, call, i * width + b);
  });
}

void expect_bytes(const TensorView& view, int rank, unsigned call, const std::string& where) {
  const std::int64_t width = size_bytes(view.dtype);
  std::int64_t num_wrong = 0;
  for_each_offset(view, [&](std::int64_t i, std::int64_t offset) {
    for (std::int64_t b = 0; b < width; ++b)
      num_wrong += view.data_as<std::uint8_t>()[offset * width + b] != byte_of(rank, call, i * width + b);
  });
  EXPECT_EQ(num_wrong, 0) << where;
}

struct Case {
  Dims sizes;  ///< of the whole
  int dim = 0;
  DType dtype = DType::kF32;
  Layout input = Layout::kPacked;
  Layout output = Layout::kPacked;
  bool symmetric = false;
  ReduceOp op = ReduceOp::kSum;
};

std::string to_text(const Case& c, const SymmRank& rank) {
  return "rank " + std::to_string(rank.rank()) + " of " + std::to_string(rank.size()) + ", " +
         to_string(c.sizes) + " along " + std::to_string(c.dim) + " " + std::string(to_string(c.dtype)) +
         (c.input == Layout::kHoles ? ", input with holes" : "") +
         (c.output == Layout::kHoles ? ", output with holes" : "") + (c.symmetric ? ", symmetric" : "");
}

Dims part_sizes(const Case& c, int world, int q) {
  Dims sizes = c.sizes;
  sizes[c.dim] = shard_of(c.sizes[c.dim], world, q).size;
  return sizes;
}

TensorView part_of(const TensorView& whole, const Case& c, int world, int q) {
  const Shard part = shard_of(c.sizes[c.dim], world, q);
  return whole.narrow(c.dim, part.offset, part.size);
}

/// Symmetric memory with the input behind some elements of others, and its handle.
struct SymmetricInput {
  SymmetricInput(SymmRank& rank, const Case& c)
      : memory(rank.empty({kBefore + numel(part_sizes(c, rank.size(), 0))}, c.dtype)),
        handle(rank.meet(memory)),
        sizes(part_sizes(c, rank.size(), rank.rank())) {}
  [[nodiscard]] TensorView view() const {
    return TensorView::contiguous(memory.view().data_as<std::byte>() + kBefore * size_bytes(memory.dtype()),
                                  sizes, memory.dtype(), memory.view().device);
  }
  static constexpr std::int64_t kBefore = 3;
  Tensor memory;
  std::shared_ptr<symm::Handle> handle;
  Dims sizes;
};

/// A gather that is enqueued, and checked later.
class Gather {
 public:
  Gather(SymmRank& rank, const Case& c, unsigned call)
      : rank_(rank),
        case_(c),
        call_(call),
        input_(*rank.device, part_sizes(c, rank.size(), rank.rank()), c.dtype, c.input),
        output_(*rank.device, c.sizes, c.dtype, c.output) {
    fill_bytes(input_.host(), rank.rank(), call);
    input_.upload();
    if (!c.symmetric) return;
    symmetric_.emplace(rank, c);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(symmetric_->view().size_bytes()));
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = byte_of(rank.rank(), call, static_cast<std::int64_t>(i));
    if (!bytes.empty()) rank.write(symmetric_->view(), bytes);
  }
  [[nodiscard]] coll::LowContentionAllGatherArgs args() const {
    return {.input = symmetric_ ? symmetric_->view() : input_.view(),
            .output = output_.view(),
            .gather_dim = case_.dim,
            .input_handle = symmetric_ ? symmetric_->handle : nullptr};
  }
  [[nodiscard]] Result<void> enqueue(Stream& stream) const {
    return coll::low_contention_all_gather(args(), rank_.group, stream);
  }
  void check() {
    output_.download();
    for (int q = 0; q < rank_.size(); ++q) {
      expect_bytes(part_of(output_.host(), case_, rank_.size(), q), q, call_,
                   to_text(case_, rank_) + ": shard " + std::to_string(q));
    }
    EXPECT_TRUE(output_.image().guards_are_whole()) << to_text(case_, rank_);
    if (symmetric_) expect_pad_zero(*symmetric_->handle);
  }

 private:
  SymmRank& rank_;
  Case case_;
  unsigned call_;
  Operand input_;
  Operand output_;
  std::optional<SymmetricInput> symmetric_;
};

/// Small integers, whose sums every type holds but f8, and values that round.
float number_of(int rank, unsigned call, std::int64_t idx, DType dtype) {
  const auto mixed = static_cast<unsigned>(idx) * 7U + static_cast<unsigned>(rank) * 13U + call;
  return is_f8(dtype) ? static_cast<float>(mixed % 5U) : 0.37F * static_cast<float>(mixed % 1009U) - 100;
}

/// The elements of `view`, row-major.
std::vector<float> floats_of(const TensorView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.numel()));
  if (values.empty()) return values;
  EXPECT_TRUE(convert(view, TensorView::contiguous(values.data(), view.sizes, DType::kF32)));
  return values;
}

void set_floats(const TensorView& view, std::vector<float> values) {
  if (values.empty()) return;
  EXPECT_TRUE(convert(TensorView::contiguous(values.data(), view.sizes, DType::kF32), view));
}

/// A scatter that is enqueued, and checked later: bit for bit the sum in rank order.
class Scatter {
 public:
  Scatter(SymmRank& rank, const Case& c, unsigned call)
      : rank_(rank),
        case_(c),
        call_(call),
        input_(*rank.device, c.sizes, c.dtype, c.input),
        output_(*rank.device, part_sizes(c, rank.size(), rank.rank()), c.dtype, c.output) {
    fill(input_.host(), rank.rank());
    input_.upload();
    if (!c.symmetric) return;
    symmetric_.emplace(rank.empty(c.sizes, c.dtype));
    GuardedBytes packed(c.sizes, c.dtype);
    fill(packed.view(c.sizes, c.dtype), rank.rank());
    if (numel(c.sizes) > 0) expect_ok(rank.device->copy_from_host(packed.data(), symmetric_->view()));
  }
  [[nodiscard]] Result<void> enqueue(Stream& stream) const {
    return coll::low_contention_reduce_scatter({.input = symmetric_ ? symmetric_->view() : input_.view(),
                                                .output = output_.view(),
                                                .op = case_.op,
                                                .scatter_dim = case_.dim},
                                               rank_.group, stream);
  }
  void check() {
    output_.download();
    const std::vector<float> got = floats_of(output_.host());
    std::vector<float> want(got.size());
    for (int q = 0; q < rank_.size(); ++q) {
      GuardedBytes input(case_.sizes, case_.dtype);
      const TensorView whole = input.view(case_.sizes, case_.dtype);
      fill(whole, q);
      const std::vector<float> chunk = floats_of(part_of(whole, case_, rank_.size(), rank_.rank()));
      for (std::size_t i = 0; i < want.size(); ++i) want[i] = q == 0 ? chunk[i] : want[i] + chunk[i];
    }
    if (case_.op == ReduceOp::kAvg) {
      for (float& sum : want) sum /= static_cast<float>(rank_.size());
    }
    GuardedBytes rounded({std::ssize(want)}, case_.dtype);
    set_floats(rounded.view({std::ssize(want)}, case_.dtype), want);
    want = floats_of(rounded.view({std::ssize(want)}, case_.dtype));
    std::int64_t num_wrong = 0;
    for (std::size_t i = 0; i < want.size(); ++i) num_wrong += got[i] != want[i];
    EXPECT_EQ(num_wrong, 0) << to_text(case_, rank_) << (case_.op == ReduceOp::kAvg ? " avg" : " sum");
    EXPECT_TRUE(output_.image().guards_are_whole()) << to_text(case_, rank_);
  }

 private:
  void fill(const TensorView& view, int of_rank) const {
    std::vector<float> values(static_cast<std::size_t>(view.numel()));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = number_of(of_rank, call_, static_cast<std::int64_t>(i), view.dtype);
    set_floats(view, std::move(values));
  }

  SymmRank& rank_;
  Case case_;
  unsigned call_;
  Operand input_;
  Operand output_;
  std::optional<Tensor> symmetric_;
};

void delay_a_little(SymmRank& rank, std::mt19937& random) {
  expect_ok(rank.stream->sleep(std::chrono::microseconds(random() % 300)));
}

struct SizesAndDim {
  Dims sizes;
  int dim;
};
// Ragged, fewer indices than ranks, none, and vectors.
const SizesAndDim kShapes[] = {{{7, 5}, 0},    {{3, 9}, 1},  {{2, 7, 6}, 1}, {{4, 3, 11}, 2},
                               {{1, 9, 4}, 1}, {{16, 8}, 0}, {{8, 32}, 1},   {{1, 5}, 0},
                               {{2, 1}, 1},    {{0, 4}, 0},  {{3, 0, 2}, 1}, {{17}, 0}};

/// Every shape with all layouts and both kinds of memory, in turns over types.
template <class Call>
Result<void> run_all(SymmRank& rank, const std::vector<DType>& dtypes) {
  std::mt19937 random(static_cast<unsigned>(rank.rank()));
  unsigned call = 0;
  for (const DType dtype : dtypes) {
    for (const auto& [sizes, dim] : kShapes) {
      for (const auto& [input, output, symmetric] : {std::tuple(Layout::kPacked, Layout::kPacked, false),
                                                     std::tuple(Layout::kHoles, Layout::kPacked, false),
                                                     std::tuple(Layout::kPacked, Layout::kHoles, true)}) {
        const Case c{.sizes = sizes,
                     .dim = dim,
                     .dtype = dtype,
                     .input = input,
                     .output = output,
                     .symmetric = symmetric,
                     .op = ++call % 2 == 0 ? ReduceOp::kSum : ReduceOp::kAvg};
        delay_a_little(rank, random);
        Call one(rank, c, call);
        if (auto done = one.enqueue(*rank.stream); !done) return done;
        if (auto done = rank.finish(); !done) return done;
        one.check();
      }
    }
  }
  return {};
}

TEST_P(CollLowContention, GathersAnyBitsAlongAnyDimension) {
  run([](SymmRank& rank) {
    return run_all<Gather>(rank, {DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kU8, DType::kI64});
  });
}

TEST_P(CollLowContention, ScattersSumsInRankOrderAlongAnyDimension) {
  run([](SymmRank& rank) {
    return run_all<Scatter>(rank, {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3});
  });
}

// Shards that copy engines get in two pieces, and chunks that are summed in two.
TEST_P(CollLowContention, LargePartsGoInPieces) {
  if (GetParam().placement.kind == DeviceKind::kCpu) GTEST_SKIP() << "without copy engines parts go whole";
  if (GetParam().size == 1 || GetParam().size > 3) GTEST_SKIP() << "large: on 2 and 3 ranks";
  run([](SymmRank& rank) -> Result<void> {
    unsigned call = 40;
    const std::int64_t world = rank.size();
    for (const bool symmetric : {false, true}) {
      // 17 MiB a rank, cut along the gathered dimension and along another one.
      for (const Case& c : {Case{.sizes = {world * 1088 * 1024 - 5, 16}, .dtype = DType::kU8},
                            Case{.sizes = {17, world * 1024 * 64, 16}, .dim = 1, .dtype = DType::kU8}}) {
        Case one = c;
        one.symmetric = symmetric;
        Gather gather(rank, one, ++call);
        if (auto done = gather.enqueue(*rank.stream); !done) return done;
        if (auto done = rank.finish(); !done) return done;
        gather.check();
      }
    }
    for (const Case& c :
         {Case{.sizes = {world * 300 - 1, 30'000}, .dtype = DType::kF8E4M3},
          Case{.sizes = {world * 9'000'000 - 7}, .dtype = DType::kF8E4M3, .op = ReduceOp::kAvg}}) {
      Scatter scatter(rank, c, ++call);
      if (auto done = scatter.enqueue(*rank.stream); !done) return done;
      if (auto done = rank.finish(); !done) return done;
      scatter.check();
    }
    return {};
  });
}

// One rank is late again and again; nobody waits between the calls, of which others are ordinary and fused.
TEST_P(CollLowContention, QueuedCallsAreKeptApart) {
  run([](SymmRank& rank) -> Result<void> {
    std::mt19937 random(static_cast<unsigned>(rank.rank()));
    std::vector<std::unique_ptr<Gather>> gathers;
    std::vector<std::unique_ptr<Scatter>> scatters;
    for (unsigned i = 0; i < 6; ++i) {
      const Case c{.sizes = {9, 16 + 8 * i}, .dim = static_cast<int>(i % 2), .symmetric = i % 3 == 1};
      gathers.push_back(std::make_unique<Gather>(rank, c, i));
      scatters.push_back(std::make_unique<Scatter>(rank, c, 100 + i));
    }
    const std::int64_t world = rank.size();
    const Tensor a = rank.device->allocate_tensor({4, 8}, DType::kF32).value();
    const Tensor b = rank.device->allocate_tensor({8, 8}, DType::kF32).value();
    const Tensor product = rank.device->allocate_tensor({4 * world, 8}, DType::kF32).value();
    rank.fill(a.view(), 1.0F);
    rank.fill(b.view(), 2.0F);
    const TensorView b_view = b.view();
    const TensorView out = product.view();
    for (int round = 0; round < 2; ++round) {
      for (std::size_t i = 0; i < gathers.size(); ++i) {
        if (rank.rank() == round % rank.size()) delay_a_little(rank, random);
        for (int twice = 0; twice < 2; ++twice) {
          if (auto done = gathers[i]->enqueue(*rank.stream); !done) return done;
          if (auto done = scatters[i]->enqueue(*rank.stream); !done) return done;
        }
        const auto fused =
            fused_all_gather_matmul({.a = a.view(),
                                     .b = b_view,
                                     .gather_size = 4 * world,
                                     .out = out,
                                     .algorithm = i % 2 == 0 ? Algorithm::kSerial : Algorithm::kPipelined},
                                    rank.group, *rank.stream);
        if (!fused) return tl::unexpected(fused.error());
      }
    }
    if (auto done = rank.finish(); !done) return done;
    for (const auto& gather : gathers) gather->check();
    for (const auto& scatter : scatters) scatter->check();
    for (const float value : rank.read<float>(product.view())) EXPECT_EQ(value, 16.0F);
    return {};
  });
}

// Both ops in place: the input is the own part of the gathered tensor, and the output that of the input.
TEST_P(CollLowContention, WorkInPlace) {
  run([](SymmRank& rank) -> Result<void> {
    const Case c{.sizes = {6, 4 * rank.size()}, .dim = 1};
    const Tensor whole = rank.device->allocate_tensor(c.sizes, DType::kF32).value();
    const TensorView own = part_of(whole.view(), c, rank.size(), rank.rank());
    rank.fill(whole.view(), static_cast<float>(rank.rank() + 1));
    if (auto done = coll::low_contention_all_gather({.input = own, .output = whole.view(), .gather_dim = 1},
                                                    rank.group, *rank.stream);
        !done)
      return done;
    if (auto done = rank.finish(); !done) return done;
    auto values = rank.read<float>(whole.view());
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(values[i], static_cast<float>(i % static_cast<std::size_t>(c.sizes[1]) / 4 + 1));
    if (auto done = coll::low_contention_reduce_scatter(
            {.input = whole.view(), .output = own, .scatter_dim = 1}, rank.group, *rank.stream);
        !done)
      return done;
    if (auto done = rank.finish(); !done) return done;
    values = rank.read<float>(whole.view());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto q = static_cast<int>(i % static_cast<std::size_t>(c.sizes[1]) / 4);
      EXPECT_EQ(values[i],
                static_cast<float>(q + 1) * static_cast<float>(q == rank.rank() ? rank.size() : 1));
    }
    return {};
  });
}

// Recorded behind an eager call, and replayed while one rank is late.
TEST_P(CollLowContention, ReplaysWithALateRank) {
  if (GetParam().placement.kind == DeviceKind::kCpu) GTEST_SKIP() << "CPU streams record nothing";
  run([](SymmRank& rank) -> Result<void> {
    const auto run_recorded = [&](auto& op) -> Result<void> {
      if (auto done = op.enqueue(*rank.stream); !done) return done;
      if (auto done = rank.finish(); !done) return done;
      if (auto begun = rank.stream->begin_capture(); !begun) return begun;
      const auto called = op.enqueue(*rank.stream);
      auto graph = rank.stream->end_capture();
      if (!called) return called;
      if (!graph) return tl::unexpected(graph.error());
      for (int replay = 0; replay < 4; ++replay) {
        if (rank.rank() == 0) expect_ok(rank.stream->sleep(std::chrono::milliseconds(2)));
        if (auto done = (*graph)->launch(*rank.stream); !done) return done;
      }
      if (auto done = rank.finish(); !done) return done;
      op.check();
      return {};
    };
    unsigned call = 60;
    for (const auto& [sizes, dim] : kShapes) {
      for (const bool symmetric : {false, true}) {
        const Case c{.sizes = sizes, .dim = dim, .symmetric = symmetric};
        Gather gather(rank, c, ++call);
        if (auto done = run_recorded(gather); !done) return done;
        Scatter scatter(rank, c, ++call);
        if (auto done = run_recorded(scatter); !done) return done;
      }
    }
    return {};
  });
}

// Two calls on two streams of one group follow each other.
TEST_P(CollLowContention, ComeBehindEachOtherOnTwoStreams) {
  run([](SymmRank& rank) -> Result<void> {
    const auto other = rank.device->create_stream().value();
    const Case c{.sizes = {12, 8}};
    std::vector<std::unique_ptr<Gather>> calls;
    for (unsigned i = 0; i < 8; ++i) {
      calls.push_back(std::make_unique<Gather>(rank, c, i));
      if (auto done = calls.back()->enqueue(i % 2 == 0 ? *rank.stream : *other); !done) return done;
    }
    if (auto done = rank.finish(); !done) return done;
    if (auto done = other->synchronize(); !done) return done;
    for (const auto& one : calls) one->check();
    return {};
  });
}

}  // namespace
}  // namespace tandem::testing
