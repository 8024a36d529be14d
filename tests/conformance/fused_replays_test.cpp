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
#include <tandem/base/convert.hpp>
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
using test::Guarded;
using test::JobCase;
using test::Problem;
using test::RankContextOfTest;
using test::to_text;

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

  /// An input: all of a in a gather, rank `rank`'s own tensor in a scatter.
  [[nodiscard]] Tensor input(int place, int which, int rank) const {
    const int i = place % 2;
    const Dims product = {problem_.m, problem_.gathers ? problem_.k : depth(i),
                          problem_.gathers ? columns(i) : problem_.n};
    const Dims sizes = place < kB0      ? Dims{product[0], product[1]}
                       : place < kBias0 ? Dims{product[1], product[2]}
                                        : Dims{product[2]};
    const int own = problem_.gathers || place == kBias0 ? 0 : 1024 * rank;
    return test::generated(sizes, kType, 1 + place + 16 * which + own);
  }

  void add(int which) {
    const auto put = [&](int place, const Layout& layout) {
      at(place).emplace_back(rank_.device, layout, kType);
    };
    const auto fill = [&](int place) {
      const Tensor whole = input(place, which, rank_.group.rank());
      TensorView part = whole.view();
      if (problem_.gathers && place == kA0) part = part.narrow(problem_.dim, own().offset, own().size);
      at(place).emplace_back(rank_.device, test::dense(part.sizes), part);
    };
    for (const Place place : places()) {
      if (place < kOut0) fill(place);
    }
    Choice choice = {};
    choice.fill(which);
    select(choice);
    if (problem_.gathers) {
      for (const int i : {0, 1}) put(kOut0 + i, output_layout(gather_args(), i).value());
      put(kKept, gathered_layout(gather_args()).value());
      return;
    }
    put(kOut0, output_layout(scatter_args(), rank_.group.size(), rank_.group.rank()).value());
    put(kKept, test::dense({problem_.m, problem_.n}));
  }
  std::deque<Guarded>& at(int place) { return tensors_[static_cast<std::size_t>(place)]; }

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

  [[nodiscard]] harness::ProductReference product(const Choice& choice, int i, int rank) const {
    const auto chosen = [&](int place) {
      return input(place, choice[static_cast<std::size_t>(place)], rank);
    };
    const Tensor a = chosen(problem_.gathers ? kA0 : kA0 + i);
    const Tensor b = chosen(kB0 + i);
    if (!problem_.gathers) return harness::ProductReference({.a = a.view(), .b = b.view()});
    const Tensor bias = chosen(kBias0 + i);
    return harness::ProductReference({.a = a.view(), .b = b.view(), .bias = bias.view()});
  }
  /// Results of a gather.
  void compare_gathered(const Choice& choice, Place place, const Guarded& got, harness::Wrong& wrong) const {
    if (place != kKept) return product(choice, place - kOut0, 0).compare(got.host(), "out", wrong);
    const Tensor a = input(kA0, choice[kA0], 0);
    compare_equal(got.host(), a.view(), "gathered", wrong);
  }
  /// Results of a scatter.
  void compare_scattered(const Choice& choice, Place place, const Guarded& got, harness::Wrong& wrong) const {
    const Tensor bias = input(kBias0, choice[kBias0], 0);
    std::vector<std::vector<harness::ProductReference>> products;
    for (int rank = 0; rank < rank_.group.size(); ++rank)
      products.push_back({product(choice, 0, rank), product(choice, 1, rank)});
    const auto need = [&](std::int64_t row, std::int64_t column) {
      std::vector<harness::Expected> partials;
      for (const auto& of_rank : products) {
        const harness::Expected parts[] = {of_rank[0].sum_at(row, column), of_rank[1].sum_at(row, column)};
        partials.push_back(harness::sum_in_steps(parts, kType));
      }
      if (place == kKept)
        return harness::rounded(partials[static_cast<std::size_t>(rank_.group.rank())], kType);
      harness::Expected sum =
          sum_over_ranks(partials, kType, coll::ReduceOp::kSum, element_as_f64(bias.view(), column));
      // A rank that adds what came to its first product rounds that sum.
      double magnitude = 0;
      for (const harness::Expected& partial : partials) magnitude += std::abs(partial.value);
      sum.tolerance += harness::rounding_error(kType, magnitude);
      return harness::rounded(sum, kType);
    };
    const harness::Window window{problem_.dim, place == kKept ? Shard{} : own()};
    compare_elements({{problem_.m, problem_.n}, window, got.host()}, "result", need, wrong);
  }

  void check(const Choice& choice, Complaints& complaints) {
    for (const Place place : results()) {
      for (std::size_t which = 0; which < tensors_[place].size(); ++which) {
        Guarded& tensor = tensors_[place][which];
        tensor.download();
        const std::string name =
            fmt::format("{}, rank {} of {}: tensor {} of place {}", to_text(problem_, rank_.group.size()),
                        rank_.group.rank(), rank_.group.size(), which, int{place});
        harness::Wrong wrong;
        if (which != static_cast<std::size_t>(choice[place])) {
          if (!is_poison(tensor)) wrong.add("it was written, and is not one of the call's");
        } else if (problem_.gathers) {
          compare_gathered(choice, place, tensor, wrong);
        } else {
          compare_scattered(choice, place, tensor, wrong);
        }
        complaints.add(name, tensor, wrong);
      }
    }
  }
  static bool is_poison(const Guarded& tensor) {
    for (std::int64_t idx = 0; idx < tensor.view().numel(); ++idx) {
      if (!std::isnan(tensor.at(idx))) return false;
    }
    return true;
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
  const Tensor whole = test::generated({rank.group.size() * rows, k}, kType, id);
  const Guarded filled(rank.device, test::dense({rows, k}),
                       whole.view().narrow(0, rank.group.rank() * rows, rows));
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
    const Guarded b(rank.device, test::dense({kDepth, kColumns}),
                    test::generated({kDepth, kColumns}, kType, 1));
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
        harness::Wrong wrong;
        const Tensor a = test::generated({world * kRows, kDepth}, kType, id);
        harness::ProductReference({.a = a.view(), .b = b.host()}).compare(out.host(), "out", wrong);
        complaints.add(fmt::format("rank {}, memory {}, call {}", rank.group.rank(), id, call), out, wrong);
      }
    }
    return {};
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, FusedReplays, ::testing::ValuesIn(test::all_cases({1, 2, 4})),
                         test::job_name);

}  // namespace
}  // namespace tandem
