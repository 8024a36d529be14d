#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <tandem/backend/backend.hpp>
#include <tandem/base/convert.hpp>
#include <tandem/bootstrap/thread_ranks.hpp>
#include <tandem/program/host/executor.hpp>
#include <vector>

#include "support/host_fusions.hpp"
#include "support/test_devices.hpp"

// Host programs on ranks that are threads, against sums in float64.

namespace tandem::program::host {
namespace {

using testing::Placement;
using testing::RankCase;
using testing::stated_linear;
using testing::stated_matmul;
using testing::stated_scatter;
using testing::StatedFusion;

struct Form {
  const char* name;
  StatedFusion (*state)(int num_devices);
  LowerOptions options;
  bool scatters = false;
  bool has_bias = false;
};

StatedFusion matmul_of(int num_devices) {
  return stated_matmul(num_devices);
}
StatedFusion linear_of(int num_devices) {
  return stated_linear(num_devices);
}
StatedFusion scatter_of(int num_devices) {
  return stated_scatter(num_devices);
}

const std::vector<Form>& forms() {
  static const std::vector<Form> all = {
      {"gather", matmul_of, {.workers_wait = true}},
      {"gather_joining_loop", matmul_of, {.workers_wait = true, .joining_loop = true, .single_select = true}},
      {"linear", linear_of, {.workers_wait = true}, false, true},
      {"ring", matmul_of, {.workers_wait = true, .point_to_point = true}},
      {"ring_offset_by_rank",
       matmul_of,
       {.workers_wait = true, .point_to_point = true, .offset_by_rank = true}},
      {"scatter", scatter_of, {.workers_wait = true}, true},
      {"scatter_joining_loop", scatter_of, {.workers_wait = true, .joining_loop = true}, true},
  };
  return all;
}

/// Sizes of one product: m rows of each of the s * w shards, k and n of the whole.
struct Sizes {
  std::int64_t s = 1;
  std::int64_t m = 3;
  std::int64_t k = 8;
  std::int64_t n = 5;
};

float element(std::int64_t seed, std::int64_t row, std::int64_t column) {
  const auto mixed = static_cast<std::uint64_t>(seed * 7919 + row * 104729 + column * 1299709) * 2654435761u;
  return static_cast<float>(mixed % 1000) / 500.0F - 1.0F;
}
float a_at(std::int64_t row, std::int64_t k) {
  return element(1, row, k);
}
float b_at(std::int64_t k, std::int64_t n) {
  return element(2, k, n);
}
float bias_at(std::int64_t n) {
  return element(3, 0, n);
}

/// One rank's tensors and its part of the result.
class RankData {
 public:
  RankData(const Form& form, const Sizes& sizes, int world, int rank, Device& device)
      : form_(form), sizes_(sizes), world_(world), rank_(rank), device_(device) {}

  Result<void> fill();
  [[nodiscard]] const std::vector<TensorView>& inputs() const { return inputs_; }
  Result<TensorView> poisoned_out(const Dims& sizes);
  /// Largest |got - want|; infinite where something was not written.
  Result<double> error();

 private:
  Result<void> add(const Dims& sizes, const std::vector<float>& values);
  [[nodiscard]] double wanted(std::int64_t row, std::int64_t column) const;
  /// The row of the whole product that is row `local` of this rank's result.
  [[nodiscard]] std::int64_t whole_row(std::int64_t local) const {
    if (!form_.scatters) return local;
    return (local / sizes_.m * world_ + rank_) * sizes_.m + local % sizes_.m;
  }

  const Form& form_;
  Sizes sizes_;
  int world_;
  int rank_;
  Device& device_;
  std::vector<Tensor> tensors_;
  std::vector<TensorView> inputs_;
  Tensor out_;
};

Result<void> RankData::add(const Dims& sizes, const std::vector<float>& values) {
  auto tensor = device_.allocate_tensor(sizes, DType::kF32);
  if (!tensor) return tl::unexpected(tensor.error());
  inputs_.push_back(tensor->view());
  tensors_.push_back(*std::move(tensor));
  return device_.copy_from_host(values.data(), inputs_.back());
}

Result<void> RankData::fill() {
  const auto [s, m, k, n] = sizes_;
  const std::int64_t own_k = form_.scatters ? k / world_ : k;
  const std::int64_t first_k = form_.scatters ? own_k * rank_ : 0;
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> bias;
  for (std::int64_t j = 0; j < s; ++j) {
    for (std::int64_t shard = 0; shard < (form_.scatters ? world_ : 1); ++shard) {
      const std::int64_t of = form_.scatters ? shard : rank_;
      for (std::int64_t row = 0; row < m; ++row) {
        for (std::int64_t i = 0; i < own_k; ++i) a.push_back(a_at((j * world_ + of) * m + row, first_k + i));
      }
    }
  }
  const std::int64_t rows_of_b = form_.has_bias ? n : own_k;
  const std::int64_t columns_of_b = form_.has_bias ? own_k : n;
  for (std::int64_t row = 0; row < rows_of_b; ++row) {
    for (std::int64_t i = 0; i < columns_of_b; ++i) {
      b.push_back(form_.has_bias ? b_at(first_k + i, row) : b_at(first_k + row, i));
    }
  }
  for (std::int64_t i = 0; i < n; ++i) bias.push_back(bias_at(i));
  const Dims a_sizes = form_.scatters ? Dims{s, 1, world_, m, own_k} : Dims{s, 1, m, k};
  if (auto ok = add(a_sizes, a); !ok) return ok;
  const Dims b_sizes = form_.scatters ? Dims{1, 1, own_k, n} : Dims{rows_of_b, columns_of_b};
  if (auto ok = add(b_sizes, b); !ok) return ok;
  return form_.has_bias ? add({n}, bias) : Result<void>();
}

Result<TensorView> RankData::poisoned_out(const Dims& sizes) {
  auto out = device_.allocate_tensor(sizes, DType::kF32);
  if (!out) return tl::unexpected(out.error());
  out_ = *std::move(out);
  const std::vector<float> nans(static_cast<std::size_t>(numel(sizes)), std::nanf(""));
  if (auto ok = device_.copy_from_host(nans.data(), out_.view()); !ok) return tl::unexpected(ok.error());
  return out_.view();
}

double RankData::wanted(std::int64_t row, std::int64_t column) const {
  double sum = form_.has_bias ? bias_at(column) : 0;
  for (std::int64_t i = 0; i < sizes_.k; ++i) sum += static_cast<double>(a_at(row, i)) * b_at(i, column);
  return sum;
}

Result<double> RankData::error() {
  std::vector<float> got(static_cast<std::size_t>(out_.view().numel()));
  if (auto ok = device_.copy_to_host(out_.view(), got.data()); !ok) return tl::unexpected(ok.error());
  double most = 0;
  const std::int64_t rows = sizes_.n == 0 ? 0 : static_cast<std::int64_t>(got.size()) / sizes_.n;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < sizes_.n; ++column) {
      const double here = got[static_cast<std::size_t>(row * sizes_.n + column)];
      const double difference = std::abs(here - wanted(whole_row(row), column));
      most = std::isfinite(difference) ? std::max(most, difference) : std::numeric_limits<double>::infinity();
    }
  }
  return most;
}

constexpr double kBound = 1e-4;

using Work = std::function<Result<void>(Executor& executor, RankData& data, Stream& stream, Group& group)>;

/// `work` on every rank, with an executor of the form.
void on_ranks(const RankCase& ranks, const Form& form, const Sizes& sizes, int num_streams,
              const Work& work) {
  const auto done = run_thread_ranks(ranks.size, {}, [&](Group& group) -> Result<void> {
    auto device = open_device(ranks.placement.device_of(group.rank()), group.config());
    if (!device) return tl::unexpected(device.error());
    auto stream = (*device)->create_stream();
    if (!stream) return tl::unexpected(stream.error());
    RankData data(form, sizes, group.size(), group.rank(), **device);
    if (auto ok = data.fill(); !ok) return ok;
    const StatedFusion stated = form.state(group.size());
    const auto program = lower(stated.fusion, form.options);
    if (!program) return tl::unexpected(program.error());
    auto executor = Executor::create(*program, data.inputs(), group, **device, num_streams);
    if (!executor) return tl::unexpected(executor.error());
    auto result = work(**executor, data, **stream, group);
    const auto ended = (*stream)->synchronize();
    return result ? ended : result;
  });
  EXPECT_TRUE(done) << form.name << ": " << done.error().to_string();
}

Result<void> run_and_compare(Executor& executor, RankData& data, Stream& stream, const char* form) {
  const auto out = data.poisoned_out(executor.out_sizes());
  if (!out) return tl::unexpected(out.error());
  if (auto ok = executor.run(data.inputs(), *out, stream); !ok) return ok;
  if (auto ok = stream.synchronize(); !ok) return ok;
  const auto error = data.error();
  if (!error) return tl::unexpected(error.error());
  EXPECT_LE(*error, kBound) << form << "\n" << executor.to_string();
  return {};
}

class HostProgramRun : public ::testing::TestWithParam<RankCase> {};

TEST_P(HostProgramRun, IsTheProductForEveryFormAndLength) {
  for (const Form& form : forms()) {
    for (const std::int64_t s : {1, 2, 8}) {
      on_ranks(GetParam(), form, {.s = s, .k = 16}, 4,
               [&](Executor& executor, RankData& data, Stream& stream, Group&) -> Result<void> {
                 EXPECT_EQ(executor.num_streams(), std::min<std::int64_t>(s, 4));
                 for (int i = 0; i < 3; ++i) {
                   if (auto ok = run_and_compare(executor, data, stream, form.name); !ok) return ok;
                 }
                 return {};
               });
    }
  }
}

TEST_P(HostProgramRun, IsTheProductWithAnyNumberOfStreams) {
  for (const int num_streams : {1, 3, kMostStreams}) {
    on_ranks(GetParam(), forms()[0], {.s = 5}, num_streams,
             [&](Executor& executor, RankData& data, Stream& stream, Group&) {
               return run_and_compare(executor, data, stream, "gather");
             });
  }
}

TEST_P(HostProgramRun, HasNothingToDoForNoRows) {
  for (const Sizes& sizes : {Sizes{.s = 0}, Sizes{.s = 2, .m = 0}, Sizes{.s = 2, .n = 0}}) {
    for (const Form& form : forms()) {
      on_ranks(GetParam(), form, sizes, 2, [&](Executor& executor, RankData& data, Stream& stream, Group&) {
        return run_and_compare(executor, data, stream, form.name);
      });
    }
  }
}

TEST_P(HostProgramRun, IsZeroForNoColumnsOfA) {
  for (const Form& form : forms()) {
    on_ranks(GetParam(), form, {.s = 2, .k = 0}, 2,
             [&](Executor& executor, RankData& data, Stream& stream, Group&) {
               return run_and_compare(executor, data, stream, form.name);
             });
  }
}

// Runs behind each other are not separated by the host: each one's output is right all the same.
TEST_P(HostProgramRun, MayBeEnqueuedBehindItself) {
  for (const Form& form : forms()) {
    on_ranks(GetParam(), form, {.s = 3, .k = 16}, 2,
             [&](Executor& executor, RankData& data, Stream& stream, Group&) -> Result<void> {
               const auto out = data.poisoned_out(executor.out_sizes());
               if (!out) return tl::unexpected(out.error());
               for (int i = 0; i < 20; ++i) {
                 if (auto ok = executor.run(data.inputs(), *out, stream); !ok) return ok;
               }
               if (auto ok = stream.synchronize(); !ok) return ok;
               const auto error = data.error();
               if (!error) return tl::unexpected(error.error());
               EXPECT_LE(*error, kBound) << form.name;
               return {};
             });
  }
}

TEST_P(HostProgramRun, IsTheSameRecorded) {
  if (GetParam().placement.kind == DeviceKind::kCpu) GTEST_SKIP() << "nothing is recorded on a CPU";
  for (const Form& form : forms()) {
    on_ranks(GetParam(), form, {.s = 4, .k = 16}, 2,
             [&](Executor& executor, RankData& data, Stream& stream, Group&) -> Result<void> {
               if (auto ok = run_and_compare(executor, data, stream, form.name); !ok) return ok;
               const auto out = data.poisoned_out(executor.out_sizes());
               if (!out) return tl::unexpected(out.error());
               if (auto ok = stream.begin_capture(); !ok) return ok;
               const auto recorded = executor.run(data.inputs(), *out, stream);
               const auto graph = stream.end_capture();
               if (!recorded) return recorded;
               if (!graph) return tl::unexpected(graph.error());
               for (int i = 0; i < 3; ++i) {
                 if (auto ok = (*graph)->launch(stream); !ok) return ok;
               }
               if (auto ok = stream.synchronize(); !ok) return ok;
               const auto error = data.error();
               if (!error) return tl::unexpected(error.error());
               EXPECT_LE(*error, kBound) << form.name;
               return {};
             });
  }
}

// A worker stream that sleeps holds up the caller's stream, and never the host.
TEST_P(HostProgramRun, DoesNotBlockTheHostBehindAStreamThatSleeps) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kNap{200};
  for (const Form& form : forms()) {
    on_ranks(GetParam(), form, {.s = 4, .k = 16}, 2,
             [&](Executor& executor, RankData& data, Stream& stream, Group& group) -> Result<void> {
               if (auto ok = run_and_compare(executor, data, stream, form.name); !ok) return ok;
               const auto out = data.poisoned_out(executor.out_sizes());
               if (!out) return tl::unexpected(out.error());
               if (auto met = group.all_gather({}, "test"); !met) return tl::unexpected(met.error());
               const auto begin = Clock::now();
               if (auto ok = executor.worker(1).sleep(kNap); !ok) return ok;
               if (auto ok = executor.run(data.inputs(), *out, stream); !ok) return ok;
               EXPECT_LT(Clock::now() - begin, kNap) << form.name;
               if (auto ok = stream.synchronize(); !ok) return ok;
               EXPECT_GE(Clock::now() - begin, kNap) << form.name;
               const auto error = data.error();
               if (!error) return tl::unexpected(error.error());
               EXPECT_LE(*error, kBound) << form.name;
               return {};
             });
  }
}

INSTANTIATE_TEST_SUITE_P(All, HostProgramRun, ::testing::ValuesIn(testing::rank_cases({1, 2, 4, 8})),
                         testing::case_name);

}  // namespace
}  // namespace tandem::program::host
