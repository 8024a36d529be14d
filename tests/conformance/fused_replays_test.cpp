#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/fused_graph_problem.hpp"
#include "conformance/fused_harness.hpp"
#include "harness/reference.hpp"

// Calls that come again, which the library records and launches as graphs of its own: that it does, when it
// has to and when it must not, and that every call works with just the tensors that it names. Every result
// against float64. A backend that records nothing is skipped.

namespace tandem {
namespace {

using test::Complaints;
using test::Expected;
using test::Guarded;
using test::JobCase;
using test::Problem;
using test::RankContextOfTest;
using test::to_text;
using test::value_of;

constexpr DType kType = DType::kBF16;

/// Both ops, both algorithms, both kinds of dims.
std::vector<Problem> small_problems() {
  std::vector<Problem> problems;
  for (const bool gathers : {true, false}) {
    for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
      for (const int dim : {0, 1})
        problems.push_back({.gathers = gathers, .algorithm = algorithm, .dim = dim});
    }
  }
  return problems;
}

/// The tensors of a call. A gather has one a and two b's, biases and outs, and keeps what it gathered; a
/// scatter has two a's and b's, and keeps its own product.
enum Place : std::uint8_t { kA0, kA1, kB0, kB1, kBias0, kBias1, kOut0, kOut1, kKept, kNumPlaces };

/// Which tensor is in each place.
using Choice = std::array<int, kNumPlaces>;

/// One rank's tensors of one problem, several for each place.
class Op {
 public:
  Op(RankContextOfTest& rank, const Problem& problem, int num_choices) : rank_(rank), problem_(problem) {
    for (int which = 0; which < num_choices; ++which) add(which);
  }

  /// Poisons all results, calls, waits, and checks all results. Complains if it is not launched as it has to
  /// be, if that is known.
  Result<void> call(const Choice& choice, std::optional<bool> is_graph, Stream& stream,
                    Complaints& complaints) {
    for (const Place place : results()) {
      for (Guarded& tensor : tensors_[place]) tensor.poison();
    }
    const auto report = problem_.gathers ? gather(choice, stream) : scatter(choice, stream);
    if (!report) return tl::unexpected(report.error());
    if (is_graph && report->as_graph != *is_graph) {
      complaints.add(fmt::format("{}, rank {}: launched {}", to_text(problem_, rank_.group.size()),
                                 rank_.group.rank(), report->as_graph ? "as a graph" : "step by step"));
    }
    if (auto done = stream.synchronize(); !done) return done;
    check(choice, complaints);
    return {};
  }
  Result<void> call(const Choice& choice, std::optional<bool> is_graph, Complaints& complaints) {
    return call(choice, is_graph, rank_.stream, complaints);
  }

  /// What there is one of in this problem.
  [[nodiscard]] std::vector<Place> places() const {
    if (problem_.gathers) return {kA0, kB0, kB1, kBias0, kBias1, kOut0, kOut1, kKept};
    return {kA0, kA1, kB0, kB1, kBias0, kOut0, kKept};
  }

 private:
  [[nodiscard]] std::vector<Place> results() const {
    return problem_.gathers ? std::vector<Place>{kOut0, kOut1, kKept} : std::vector<Place>{kOut0, kKept};
  }
  [[nodiscard]] std::int64_t columns(int i) const { return i == 0 ? problem_.n : 8; }
  [[nodiscard]] std::int64_t depth(int j) const { return j == 0 ? problem_.k : 16; }
  /// Of the dim that is gathered or scattered.
  [[nodiscard]] Shard own() const {
    const std::int64_t last = problem_.gathers ? problem_.k : problem_.n;
    return shard_of(problem_.dim == 0 ? problem_.m : last, rank_.group.size(), rank_.group.rank());
  }

  /// Element of an input: of all of a in a gather, of rank `rank`'s own tensor in a scatter.
  [[nodiscard]] double input(Place place, int which, int rank, std::int64_t row, std::int64_t column) const {
    const int id = 1 + place + 16 * which + (problem_.gathers || place == kBias0 ? 0 : 1024 * rank);
    return value_of(id, row * 4096 + column, kType);
  }

  void add(int which) {
    const auto put = [&](Place place, const Layout& layout) {
      tensors_[place].emplace_back(rank_.device, layout, kType);
    };
    const auto fill = [&](Place place, Shard of_rows, std::int64_t row_size, std::int64_t first_column) {
      put(place, test::dense({of_rows.size, row_size}));
      tensors_[place].back().fill([&](std::int64_t idx) {
        return input(place, which, rank_.group.rank(), of_rows.offset + idx / row_size,
                     first_column + idx % row_size);
      });
    };
    const auto fill_bias = [&](Place place, std::int64_t size) {
      put(place, test::dense({size}));
      tensors_[place].back().fill([&](std::int64_t idx) { return input(place, which, 0, 0, idx); });
    };
    const Shard all_rows = {0, problem_.m};
    Choice choice = {};
    choice.fill(which);
    if (problem_.gathers) {
      fill(kA0, problem_.dim == 0 ? own() : all_rows, problem_.dim == 0 ? problem_.k : own().size,
           problem_.dim == 0 ? 0 : own().offset);
      for (const int i : {0, 1}) {
        fill(static_cast<Place>(kB0 + i), {0, problem_.k}, columns(i), 0);
        fill_bias(static_cast<Place>(kBias0 + i), columns(i));
      }
      select(choice);
      for (const int i : {0, 1}) put(static_cast<Place>(kOut0 + i), output_layout(gather_args(), i).value());
      put(kKept, gathered_layout(gather_args()).value());
      return;
    }
    for (const int j : {0, 1}) {
      fill(static_cast<Place>(kA0 + j), all_rows, depth(j), 0);
      fill(static_cast<Place>(kB0 + j), {0, depth(j)}, problem_.n, 0);
    }
    fill_bias(kBias0, problem_.n);
    select(choice);
    put(kOut0, output_layout(scatter_args(), rank_.group.size(), rank_.group.rank()).value());
    put(kKept, test::dense({problem_.m, problem_.n}));
  }

  /// Sets the views that the arguments consist of, of the tensors that there are.
  void select(const Choice& choice) {
    for (int place = 0; place < kNumPlaces; ++place) {
      const auto of = static_cast<std::size_t>(choice[static_cast<std::size_t>(place)]);
      if (of < tensors_[static_cast<std::size_t>(place)].size())
        views_[static_cast<std::size_t>(place)] = tensors_[static_cast<std::size_t>(place)][of].view();
    }
  }
  [[nodiscard]] AllGatherMatmulArgs gather_args() const {
    return {.a = views_[kA0],
            .b = std::span(views_).subspan(kB0, 2),
            .gather_dim = problem_.dim,
            .gather_size = problem_.dim == 0 ? problem_.m : problem_.k,
            .out = std::span(views_).subspan(kOut0, 2),
            .gathered = views_[kKept],
            .bias = std::span(views_).subspan(kBias0, 2),
            .algorithm = problem_.algorithm};
  }
  [[nodiscard]] MatmulReduceScatterArgs scatter_args() const {
    return {.a = std::span(views_).subspan(kA0, 2),
            .b = std::span(views_).subspan(kB0, 2),
            .scatter_dim = problem_.dim,
            .out = views_[kOut0],
            .bias = views_[kBias0],
            .product = views_[kKept],
            .algorithm = problem_.algorithm};
  }
  Result<OpReport> gather(const Choice& choice, Stream& stream) {
    select(choice);
    return fused_all_gather_matmul(gather_args(), rank_.group, stream);
  }
  Result<OpReport> scatter(const Choice& choice, Stream& stream) {
    select(choice);
    return fused_matmul_reduce_scatter(scatter_args(), rank_.group, stream);
  }

  /// One rank's products for one element of a scatter.
  [[nodiscard]] Expected partial(const Choice& choice, int rank, std::int64_t row,
                                 std::int64_t column) const {
    Expected sum;
    for (const int j : {0, 1}) {
      for (std::int64_t x = 0; x < depth(j); ++x) {
        const double term =
            input(static_cast<Place>(kA0 + j), choice[static_cast<std::size_t>(kA0 + j)], rank, row, x) *
            input(static_cast<Place>(kB0 + j), choice[static_cast<std::size_t>(kB0 + j)], rank, x, column);
        sum.value += term;
        sum.error += std::abs(term) * f32_error(depth(0) + depth(1));
      }
    }
    return sum;
  }
  static double f32_error(std::int64_t num_terms) {
    return static_cast<double>(num_terms + 8) * std::ldexp(1.0, -24);
  }
  [[nodiscard]] Expected scattered(const Choice& choice, std::int64_t row, std::int64_t column) const {
    Expected sum = {input(kBias0, choice[kBias0], 0, 0, column), 0};
    for (int rank = 0; rank < rank_.group.size(); ++rank) {
      const Expected part = partial(choice, rank, row, column);
      sum.value += part.value;
      sum.error += part.error + harness::rounding_error(kType, part.value);  // it travels rounded
    }
    return sum;
  }
  [[nodiscard]] Expected multiplied(const Choice& choice, int i, std::int64_t row,
                                    std::int64_t column) const {
    const auto b = static_cast<Place>(kB0 + i);
    const auto bias = static_cast<Place>(kBias0 + i);
    Expected sum = {input(bias, choice[bias], 0, 0, column), 0};
    for (std::int64_t x = 0; x < problem_.k; ++x) {
      const double term = input(kA0, choice[kA0], 0, row, x) * input(b, choice[b], 0, x, column);
      sum.value += term;
      sum.error += std::abs(term) * f32_error(problem_.k);
    }
    return sum;
  }
  /// Of the tensor in `place`, of this rank.
  [[nodiscard]] Expected expected(const Choice& choice, Place place, const Dims& at) const {
    if (problem_.gathers) {
      if (place == kKept) return {input(kA0, choice[kA0], 0, at[0], at[1]), 0};
      return multiplied(choice, place - kOut0, at[0], at[1]);
    }
    if (place == kKept) return partial(choice, rank_.group.rank(), at[0], at[1]);
    Dims all = at;
    all[problem_.dim] += own().offset;
    return scattered(choice, all[0], all[1]);
  }

  void check(const Choice& choice, Complaints& complaints) {
    for (const Place place : results()) {
      for (std::size_t which = 0; which < tensors_[place].size(); ++which) {
        Guarded& tensor = tensors_[place][which];
        tensor.download();
        const std::string name =
            fmt::format("{}, rank {} of {}: tensor {} of place {}", to_text(problem_, rank_.group.size()),
                        rank_.group.rank(), rank_.group.size(), which, int{place});
        if (which == static_cast<std::size_t>(choice[place])) {
          test::check_elements(tensor, name, complaints,
                               [&](const Dims& element) { return expected(choice, place, element); });
        } else if (!is_poison(tensor)) {
          complaints.add(name + " was written, and is not one of the call's");
        }
      }
    }
  }
  static bool is_poison(const Guarded& tensor) {
    for (std::int64_t idx = 0; idx < tensor.view().numel(); ++idx) {
      if (!std::isnan(tensor.at(idx))) return false;
    }
    return tensor.guards_are_whole();
  }

  RankContextOfTest& rank_;
  Problem problem_;
  std::array<std::deque<Guarded>, kNumPlaces> tensors_;
  std::array<TensorView, kNumPlaces> views_ = {};
};

class FusedReplays : public ::testing::TestWithParam<JobCase> {
 protected:
  void SetUp() override {
    if (GetParam().is_on_cpu()) GTEST_SKIP() << "nothing is recorded on a CPU";
  }
  /// Where ranks share a GPU nothing is recorded.
  static bool records() { return GetParam().ranks.placement.one_gpu_each || GetParam().ranks.size == 1; }
  static Config recording_after(int num_calls) {
    Config config = test::quick_config();
    config.record_after = num_calls;
    return config;
  }
  static void run(const Config& config,
                  const std::function<Result<void>(RankContextOfTest&, Complaints&)>& body) {
    Complaints complaints;
    test::on_ranks(GetParam(), config, complaints, [&](RankContextOfTest& rank) -> Result<void> {
      if (auto done = body(rank, complaints); !done) return done;
      return test::check_pads(rank, complaints);
    });
    EXPECT_EQ(complaints.text(), "");
  }
};

/// `num_calls` calls, launched as a graph from `first_graph` on.
Result<void> call_again(Op& op, const Choice& choice, int num_calls, int first_graph,
                        Complaints& complaints) {
  for (int call = 0; call < num_calls; ++call) {
    if (auto done = op.call(choice, call >= first_graph, complaints); !done) return done;
  }
  return {};
}

constexpr int kNever = 1 << 20;

TEST_P(FusedReplays, a_graph_is_launched_for_just_its_own_tensors) {
  run(recording_after(2), [&](RankContextOfTest& rank, Complaints& complaints) -> Result<void> {
    const int first_graph = records() ? 2 : kNever;
    for (const Problem& problem : small_problems()) {
      Op op(rank, problem, 2);
      const Choice base = {};
      if (auto done = call_again(op, base, 4, first_graph, complaints); !done) return done;
      for (const Place place : op.places()) {
        Choice other = base;
        other[place] = 1;
        if (auto done = call_again(op, other, 3, first_graph, complaints); !done) return done;
        if (auto done = op.call(base, records(), complaints); !done) return done;
      }
    }
    return {};
  });
}

TEST_P(FusedReplays, ranks_need_not_do_as_others_do) {
  run(recording_after(1), [&](RankContextOfTest& rank, Complaints& complaints) -> Result<void> {
    constexpr int kNumCalls = 6;
    for (const Problem& problem : small_problems()) {
      Op op(rank, problem, kNumCalls);
      for (int call = 0; call < kNumCalls; ++call) {
        // The first rank's out is another one every time.
        Choice choice = {};
        const bool is_new = rank.group.rank() == 0 || call == 0;
        if (is_new) choice[kOut0] = call;
        if (auto done = op.call(choice, records() && !is_new, complaints); !done) return done;
      }
    }
    return {};
  });
}

TEST_P(FusedReplays, a_graph_goes_with_the_memory_that_grows) {
  run(recording_after(2), [&](RankContextOfTest& rank, Complaints& complaints) -> Result<void> {
    std::deque<Op> ops;
    for (const Problem& problem : small_problems()) ops.emplace_back(rank, problem, 1);
    for (const std::int64_t rows : {4096, 16384}) {
      for (Problem large : small_problems()) {
        large.m = rows;
        large.n = 8;
        if (auto done = Op(rank, large, 1).call({}, false, complaints); !done) return done;
      }
      for (int call = 0; call < 5; ++call) {
        for (Op& op : ops) {
          if (auto done = op.call({}, records() && call >= 2, complaints); !done) return done;
        }
      }
    }
    return {};
  });
}

// Shards above the size of what mailboxes take.
TEST_P(FusedReplays, large_shards) {
  if (!records() || !GetParam().vendor_products) GTEST_SKIP() << "the same as with small ones";
  run(recording_after(1), [&](RankContextOfTest& rank, Complaints& complaints) -> Result<void> {
    const std::int64_t rows = 2112 * rank.group.size();
    for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined}) {
      Op gather(rank, {.algorithm = algorithm, .m = rows, .k = 512, .n = 8}, 1);
      if (auto done = call_again(gather, {}, 2, 1, complaints); !done) return done;
      Op scatter(rank, {.gathers = false, .algorithm = algorithm, .m = rows, .k = 8, .n = 512}, 1);
      if (auto done = call_again(scatter, {}, 2, 1, complaints); !done) return done;
    }
    return {};
  });
}

TEST_P(FusedReplays, a_graph_is_launched_on_any_stream) {
  run(recording_after(1), [&](RankContextOfTest& rank, Complaints& complaints) -> Result<void> {
    const auto urgent = rank.device.create_stream(-1);
    if (!urgent) return tl::unexpected(urgent.error());
    for (const Problem& problem : small_problems()) {
      Op op(rank, problem, 1);
      for (int call = 0; call < 6; ++call) {
        Stream& stream = call % 2 == 0 ? rank.stream : **urgent;
        if (auto done = op.call({}, records() && call >= 1, stream, complaints); !done) return done;
      }
    }
    return {};
  });
}

// An allocator gives memory that was given back to the next one who asks.
TEST_P(FusedReplays, tensors_that_are_made_anew_at_the_same_place) {
  run(recording_after(1), [&](RankContextOfTest& rank, Complaints& complaints) -> Result<void> {
    for (const Problem& problem : small_problems()) {
      for (int made = 0; made < 4; ++made) {
        Op op(rank, problem, 1);
        if (auto done = op.call({}, std::nullopt, complaints); !done) return done;
      }
    }
    return {};
  });
}

TEST_P(FusedReplays, nothing_is_recorded_where_nobody_wants_it) {
  Config delayed = test::quick_config();
  delayed.link_delay = std::chrono::microseconds(10);
  for (const Config& config : {recording_after(0), delayed}) {
    run(config, [&](RankContextOfTest& rank, Complaints& complaints) -> Result<void> {
      for (const Problem& problem : small_problems()) {
        Op op(rank, problem, 1);
        if (auto done = call_again(op, {}, 6, kNever, complaints); !done) return done;
      }
      return {};
    });
  }
}

/// a [rows, k] of this rank in symmetric memory, which peers read where it is.
struct InPlace {
  Tensor block;
  std::shared_ptr<symm::Handle> handle;
};
Result<InPlace> make_in_place(RankContextOfTest& rank, std::int64_t rows, std::int64_t k, int id) {
  auto block = symm::empty({rows, k}, kType, rank.device);
  if (!block) return tl::unexpected(block.error());
  auto handle = symm::rendezvous(*block, rank.group);
  if (!handle) return tl::unexpected(handle.error());
  Guarded filled(rank.device, Dims{rows, k}, kType);
  const std::int64_t first = rank.group.rank() * rows * k;
  filled.fill([&](std::int64_t idx) { return value_of(id, first + idx, kType); });
  const auto done =
      rank.stream.copy(filled.view(), block->view()).and_then([&] { return rank.stream.synchronize(); });
  if (!done) return tl::unexpected(done.error());
  return InPlace{*std::move(block), *std::move(handle)};
}

// New memory may have the address of old memory, and its handle that of the old handle: a graph that was made
// with the old ones must not be taken for one of the new.
TEST_P(FusedReplays, a_graph_goes_with_the_memory_that_it_reads_in_place) {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kDepth = 32;
  constexpr std::int64_t kColumns = 24;
  run(recording_after(1), [&](RankContextOfTest& rank, Complaints& complaints) -> Result<void> {
    const int world = rank.group.size();
    Guarded b(rank.device, Dims{kDepth, kColumns}, kType);
    b.fill([](std::int64_t idx) { return value_of(1, idx, kType); });
    Guarded out(rank.device, Dims{world * kRows, kColumns}, kType);
    const std::vector<TensorView> bs = {b.view()};
    const std::vector<TensorView> outs = {out.view()};
    for (int id = 10; id < 16; ++id) {
      auto in_place = make_in_place(rank, kRows, kDepth, id);
      if (!in_place) return tl::unexpected(in_place.error());
      for (int call = 0; call < 3; ++call) {
        out.poison();
        const auto report = fused_all_gather_matmul({.a = in_place->block.view(),
                                                     .b = bs,
                                                     .gather_dim = 0,
                                                     .gather_size = world * kRows,
                                                     .out = outs,
                                                     .a_handle = in_place->handle,
                                                     .algorithm = Algorithm::kPipelined},
                                                    rank.group, rank.stream);
        if (!report) return tl::unexpected(report.error());
        if (report->as_graph != (records() && call >= 1)) {
          complaints.add(fmt::format("rank {}, memory {}: call {} is launched {}", rank.group.rank(), id,
                                     call, report->as_graph ? "as a graph" : "step by step"));
        }
        if (auto done = rank.stream.synchronize(); !done) return done;
        out.download();
        test::check_elements(
            out, fmt::format("out with memory {}, call {}", id, call), complaints, [&](const Dims& at) {
              Expected need;
              for (std::int64_t j = 0; j < kDepth; ++j) {
                const double term =
                    value_of(id, at[0] * kDepth + j, kType) * value_of(1, j * kColumns + at[1], kType);
                need.value += term;
                need.error += std::abs(term) * static_cast<double>(kDepth + 8) * std::ldexp(1.0, -24);
              }
              return need;
            });
      }
    }
    return {};
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedReplays, ::testing::ValuesIn(test::all_cases({1, 2, 4})),
                         test::job_name);

}  // namespace
}  // namespace tandem
