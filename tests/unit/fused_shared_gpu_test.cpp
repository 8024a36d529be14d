#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/format.hpp"
#include "base/try.hpp"
#include "conformance/fused_harness.hpp"
#include "device/cuda/cuda_frees.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/shared_gpu.hpp"
#include "gemm/backend.hpp"

// Ranks that are threads share GPU 0, and one of them has to load a product that its peers do not load: for a
// layout or a stream of its own, or for a product of the caller's. Loading waits until nothing runs on the
// GPU and keeps every thread from enqueuing meanwhile, as cuBLASLt's does. So no kernel of a peer may wait
// then for something that a host has yet to enqueue.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::RankContextOfTest;

/// The GPU as all ranks of a test see it.
class LoadingGpu {
 public:
  void add(Device& device) {
    const std::lock_guard lock(mutex_);
    devices_.push_back(&device);
  }
  /// Errors: kTimeout if kernels run on, which wait for what no thread can enqueue meanwhile.
  [[nodiscard]] Result<void> load(const Device& device) {
    // Time for peers to enqueue what waits for this rank.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto alone = device.service<cuda::SharedGpu>()->exclude_others();
    const auto deadline = Deadline::after(std::chrono::seconds(5));
    while (!is_idle()) {
      if (deadline.expired()) return fail(ErrorCode::kTimeout, "load: a kernel on the GPU does not end");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return {};
  }

 private:
  [[nodiscard]] bool is_idle() {
    const std::lock_guard lock(mutex_);
    for (const Device* const device : devices_) {
      for (const cuda::CudaStream* const stream : device->service<cuda::CudaFrees>()->queues()) {
        if (cudaStreamQuery(stream->native()) != cudaSuccess) return false;
      }
    }
    return true;
  }

  std::mutex mutex_;
  std::vector<const Device*> devices_;
};

/// Multiplies nothing. Prepares a product, on a stream, once.
class LoadedProduct final : public gemm::Implementation {
 public:
  explicit LoadedProduct(LoadingGpu& gpu) : gpu_(gpu) {}
  std::string_view name() const override { return "loaded"; }
  bool accepts(const gemm::Product& product, std::string* /*why_not*/) const override {
    // A native gather whose b is column-major awaits what arrives, and then multiplies.
    return !product.arrival.has_value() || !product.b_is_column_major;
  }
  Result<void> run(const gemm::Product&, const gemm::ProductArgs&, Stream&) const override { return {}; }
  Result<void> prepare(const gemm::Product& product, const gemm::ProductArgs& like,
                       Stream& stream) const override {
    const auto look = fmt::format("{} {} {}", to_string(product), like.b->is_contiguous(), stream.id());
    if (!loaded_.insert(look).second) return {};
    TANDEM_ASSIGN(const auto* const on, cuda::cuda_stream(stream, "load"));
    on->settle_before_load();
    ++num_loads_;
    return gpu_.load(stream.device());
  }
  int num_loads() const { return num_loads_; }

 private:
  LoadingGpu& gpu_;
  // Of one rank's thread.
  mutable std::set<std::string> loaded_;
  mutable int num_loads_ = 0;
};

class LoadedProducts final : public gemm::Backend {
 public:
  explicit LoadedProducts(LoadingGpu& gpu) : product_(gpu), all_{&product_} {}
  std::span<const gemm::Implementation* const> implementations() const override { return all_; }
  const LoadedProduct& product() const { return product_; }

 private:
  LoadedProduct product_;
  std::array<const gemm::Implementation*, 1> all_;
};

constexpr std::int64_t kSide = 64;
constexpr std::int64_t kRows = 256;  ///< of a rank

/// An op, and a product of the caller's.
class Calls {
 public:
  Calls(bool gathers, Algorithm algorithm, RankContextOfTest& rank)
      : gathers_(gathers),
        algorithm_(algorithm),
        rank_(rank),
        rows_(kRows * rank.group.size()),
        a_(rank.device, Dims{gathers ? kRows : rows_, kSide}, DType::kF32),
        b_(rank.device, Dims{kSide, kSide}, DType::kF32),
        out_(rank.device, Dims{gathers ? rows_ : kRows, kSide}, DType::kF32) {}

  Result<void> op(bool by_columns, Stream& stream) {
    const std::vector a = {a_.view()};
    const std::vector b = {by_columns ? b_.view().movedim(0, 1) : b_.view()};
    const std::vector out = {out_.view()};
    const auto report =
        gathers_ ? fused_all_gather_matmul(
                       {.a = a[0], .b = b, .gather_size = rows_, .out = out, .algorithm = algorithm_},
                       rank_.group, stream)
                 : fused_matmul_reduce_scatter({.a = a, .b = b, .out = out[0], .algorithm = algorithm_},
                                               rank_.group, stream);
    if (!report) return tl::unexpected(report.error());
    return {};
  }
  Result<void> product() {
    const gemm::MmArgs args{.a = b_.view(),
                            .b = b_.view().narrow(1, 0, 8),
                            .out = out_.view().narrow(1, 0, 8).narrow(0, 0, kSide),
                            .bias = {}};
    TANDEM_TRY(gemm::prepare(args, rank_.stream));
    return gemm::mm(args, rank_.stream);
  }

 private:
  bool gathers_;
  Algorithm algorithm_;
  RankContextOfTest& rank_;
  std::int64_t rows_;
  Guarded a_, b_, out_;
};

using Body = std::function<Result<void>(RankContextOfTest&, const LoadedProduct&)>;

/// `body` on ranks that share GPU 0.
std::string complaints_of(int num_ranks, const Config& config, const Body& body) {
  Complaints complaints;
  LoadingGpu gpu;
  test::on_ranks({.ranks = {{DeviceKind::kCuda}, num_ranks}}, config, complaints,
                 [&](RankContextOfTest& rank) -> Result<void> {
                   gpu.add(rank.device);
                   const auto products = std::make_shared<LoadedProducts>(gpu);
                   rank.device.attach<gemm::Backend>(products);
                   TANDEM_TRY(rank.group.all_gather({}, "all devices are known"));
                   auto done = body(rank, products->product());
                   // Nobody's streams go while another rank looks at them.
                   if (done) TANDEM_TRY(rank.group.all_gather({}, "all have loaded"));
                   return done;
                 });
  return complaints.text();
}

using OpCase = std::tuple<int, bool, Algorithm>;

class FusedSharedGpu : public ::testing::TestWithParam<OpCase> {
 protected:
  void SetUp() override {
    if (testing::num_test_gpus() == 0) GTEST_SKIP() << "needs a GPU";
  }
  [[nodiscard]] static std::string run(
      const std::function<Result<void>(Calls&, RankContextOfTest&, bool loads)>& body) {
    const auto [ranks, gathers, algorithm] = GetParam();
    return complaints_of(ranks, test::quick_config(),
                         [&](RankContextOfTest& rank, const LoadedProduct& product) -> Result<void> {
                           Calls calls(gathers, algorithm, rank);
                           TANDEM_TRY(calls.op(false, rank.stream));
                           const int before = product.num_loads();
                           const bool loads = rank.group.rank() == 0;
                           TANDEM_TRY(body(calls, rank, loads));
                           if ((product.num_loads() > before) != loads)
                             return fail(ErrorCode::kInternal, "another rank was to load");
                           return rank.stream.synchronize();
                         });
  }
};

TEST_P(FusedSharedGpu, OneRankLoadsForALayoutOfItsOwn) {
  EXPECT_EQ(
      run([](Calls& calls, RankContextOfTest& rank, bool loads) { return calls.op(loads, rank.stream); }),
      "");
}

TEST_P(FusedSharedGpu, OneRankLoadsForAStreamOfItsOwn) {
  EXPECT_EQ(run([](Calls& calls, RankContextOfTest& rank, bool loads) -> Result<void> {
              if (!loads) return calls.op(false, rank.stream);
              TANDEM_ASSIGN(const auto stream, rank.device.create_stream());
              TANDEM_TRY(calls.op(false, *stream));
              return stream->synchronize();
            }),
            "");
}

TEST_P(FusedSharedGpu, OneRankLoadsForAProductOfTheCallers) {
  EXPECT_EQ(run([](Calls& calls, RankContextOfTest& rank, bool loads) -> Result<void> {
              if (loads) TANDEM_TRY(calls.product());
              return calls.op(false, rank.stream);
            }),
            "");
}

std::string name_of(const ::testing::TestParamInfo<OpCase>& info) {
  const auto [ranks, gathers, algorithm] = info.param;
  return fmt::format("{}_{}_{}", gathers ? "gather" : "scatter", to_string(algorithm), ranks);
}

INSTANTIATE_TEST_SUITE_P(Jobs, FusedSharedGpu,
                         ::testing::Combine(::testing::Values(2, 3), ::testing::Bool(),
                                            ::testing::Values(Algorithm::kSerial, Algorithm::kPipelined)),
                         name_of);

// Rank 1 has all that it awaits, and goes on to load, when rank 2 has yet to send its shard to rank 0.
TEST(FusedSharedGpuPushes, OneRankLoadsWhileAnotherStillEnqueues) {
  if (testing::num_test_gpus() == 0) GTEST_SKIP() << "needs a GPU";
  Config config = test::quick_config();
  config.fault = "put:2:*:delay:200";  // it sends to rank 1 first
  EXPECT_EQ(complaints_of(3, config,
                          [](RankContextOfTest& rank, const LoadedProduct&) -> Result<void> {
                            Calls calls(true, Algorithm::kNative, rank);
                            for (int call = 0; call < 2; ++call) {
                              TANDEM_TRY(calls.op(true, rank.stream));
                              TANDEM_TRY(rank.stream.synchronize());
                            }
                            if (rank.group.rank() == 1) TANDEM_TRY(calls.product());
                            return rank.stream.synchronize();
                          }),
            "");
}

}  // namespace
}  // namespace tandem
