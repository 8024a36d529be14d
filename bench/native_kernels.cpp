// The native kernels by themselves, each on every shape it takes, beside cuBLASLt's first eight heuristics on
// the same operands: with all of a in place, and with half of it behind signals that are there. One GPU.
//   bench_native_kernels [ROUNDS] [[MODE:]MxNxK ...]   prints a JSON row for each shape; times in
//   microseconds
// MODE: bf16; f8, by rows and columns with fast sums; f8exact, the same with exact sums; f8block, scaled
//       1x128
// by 128x128.
// Every output is compared bit by bit with the first kernel's, which is compared with the product's own.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <tandem/base/numeric.hpp>
#include <tandem/cuda/native_stream.hpp>
#include <tandem/tandem.hpp>
#include <vector>

#include "base/try.hpp"
#include "bf16_values.hpp"
#include "device/cuda/cuda_error.hpp"
#include "gemm/backend.hpp"
#include "gemm/cuda/sm90/lone_waits.hpp"
#include "gemm/operand_checks.hpp"
#include "product_table.hpp"

namespace {

using namespace tandem;
using bench::Variant;
using bench::Way;
using gemm::cuda::AsyncInputLaunch;
using tandem::cuda::check_cuda;

enum class Mode { kBF16, kF8, kF8Exact, kF8Block };
constexpr const char* kModes[] = {"bf16", "f8", "f8exact", "f8block"};

struct Shape {
  std::int64_t m = 0, n = 0, k = 0;
  Mode mode = Mode::kBF16;

  [[nodiscard]] bool is_f8() const { return mode != Mode::kBF16; }
  [[nodiscard]] bool is_by_blocks() const { return mode == Mode::kF8Block; }
  [[nodiscard]] std::int64_t k_blocks() const { return (k + 127) / 128; }
};

class Bench {
 public:
  static Result<Bench> make(const Shape& shape);
  Result<nlohmann::json> measure(int rounds);

 private:
  Result<void> run(const Variant& variant);
  Result<void> run_vendor(int heuristic);
  Result<double> time(const Variant& variant, int round);
  Result<void> check(Variant& variant);
  Result<void> fill();

  Shape shape_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  cudaStream_t native_ = nullptr;
  Result<Tensor> scale(const Dims& sizes);
  Tensor a_, b_, out_, flush_, signals_;
  Tensor a_scale_, b_scale_;
  TensorView b_columns_, b_scale_view_;
  std::shared_ptr<gemm::cuda::LoneWaits> waits_;
  std::unique_ptr<Event> begin_, end_;
  std::vector<std::uint16_t> reference_;
};

constexpr int kChunks = 2;
constexpr int kWarmup = 2;

Result<void> Bench::fill() {
  unsigned seed = 7;
  for (const Tensor* tensor : {&a_, &b_}) {
    const auto values = bench::random_bf16(tensor->view().numel(), seed++);
    if (!shape_.is_f8()) {
      TANDEM_TRY(device_->copy_from_host(values.data(), tensor->view()));
      continue;
    }
    std::vector<std::uint8_t> narrow;
    for (const std::uint16_t value : values) narrow.push_back(to_f8e4m3(to_f32(BF16{value})).bits);
    TANDEM_TRY(device_->copy_from_host(narrow.data(), tensor->view()));
  }
  return stream_->memset32(signals_.view(), 0, 1, kChunks);
}

Result<Bench> Bench::make(const Shape& shape) {
  Bench bench;
  bench.shape_ = shape;
  TANDEM_ASSIGN(const Config config, Config::from_environment());
  TANDEM_ASSIGN(bench.device_, open_device({DeviceKind::kCuda, 0}, config));
  Device& device = *bench.device_;
  TANDEM_ASSIGN(bench.stream_, device.create_stream());
  TANDEM_ASSIGN(bench.native_, tandem::cuda::native_stream(*bench.stream_));
  TANDEM_ASSIGN(bench.begin_, device.create_event());
  TANDEM_ASSIGN(bench.end_, device.create_event());
  const DType factors = shape.is_f8() ? DType::kF8E4M3 : DType::kBF16;
  TANDEM_ASSIGN(bench.a_, device.allocate_tensor({shape.m, shape.k}, factors));
  TANDEM_ASSIGN(bench.b_, device.allocate_tensor({shape.n, shape.k}, factors));
  bench.b_columns_ = bench.b_.view().movedim(0, 1);
  const std::int64_t blocks = shape.is_by_blocks() ? shape.k_blocks() : 1;
  const std::int64_t columns = shape.is_by_blocks() ? (shape.n + 127) / 128 : shape.n;
  TANDEM_ASSIGN(bench.a_scale_, bench.scale({shape.m, blocks}));
  TANDEM_ASSIGN(bench.b_scale_, bench.scale({columns, blocks}));
  bench.b_scale_view_ = bench.b_scale_.view().movedim(0, 1);
  TANDEM_ASSIGN(bench.out_, device.allocate_tensor({shape.m, shape.n}, DType::kBF16));
  TANDEM_ASSIGN(bench.flush_, device.allocate_tensor({64 << 20}, DType::kU32));
  TANDEM_ASSIGN(bench.signals_, device.allocate_tensor({kChunks}, DType::kU32));
  TANDEM_ASSIGN(bench.waits_, gemm::cuda::LoneWaits::make(device));
  TANDEM_TRY(bench.fill());
  TANDEM_TRY(bench.stream_->synchronize());
  return bench;
}

Result<Tensor> Bench::scale(const Dims& sizes) {
  TANDEM_ASSIGN(Tensor tensor, device_->allocate_tensor(sizes, DType::kF32));
  std::vector<float> values(static_cast<std::size_t>(tensor.view().numel()));
  std::mt19937 random(static_cast<unsigned>(values.size()));
  for (float& value : values) value = 0.5F + static_cast<float>(random() % 1024) / 1024;
  TANDEM_TRY(device_->copy_from_host(values.data(), tensor.view()));
  return tensor;
}

/// By cuBLASLt itself, whichever implementation the product would take.
Result<void> Bench::run_vendor(int heuristic) {
  const TensorView a = a_.view();
  const TensorView out = out_.view();
  const TensorView a_scale = a_scale_.view();
  gemm::ProductArgs args{.a = &a, .b = &b_columns_, .out = &out};
  if (shape_.is_f8()) {
    args.a_scale = &a_scale;
    args.b_scale = &b_scale_view_;
    args.fast_accum = shape_.mode == Mode::kF8;
  }
  args.heuristic = heuristic;
  TANDEM_ASSIGN(const gemm::Product product,
                shape_.is_f8() ? gemm::scaled_product(args) : gemm::mm_product(args));
  for (const gemm::Implementation* one : device_->service<gemm::Backend>()->implementations()) {
    if (one->name() == "cuda/cublaslt" && one->accepts(product, nullptr))
      return one->run(product, args, *stream_);
  }
  return fail(ErrorCode::kUnsupported, "not by cuBLASLt");
}

Result<void> Bench::run(const Variant& variant) {
  if (variant.kernel == nullptr) return run_vendor(variant.heuristic);
  AsyncInputLaunch launch;
  if (shape_.is_f8()) {
    const gemm::cuda::RowScales rows{.data = a_scale_.view().data_as<const float>(),
                                     .row_stride = a_scale_.view().size(1),
                                     .block_stride = 1};
    launch.scales.rows = rows;
    launch.scales.complete_rows = rows;
    launch.scales.columns = b_scale_.view().data_as<const float>();
    launch.scales.column_stride = static_cast<int>(b_scale_.view().size(1));
    launch.scales.block_stride = 1;
    launch.scales.along_k = shape_.is_by_blocks();
  }
  launch.a = a_.view().data;
  launch.b = b_.view().data;
  launch.out = out_.view().data;
  launch.n = shape_.n;
  launch.k = shape_.k;
  launch.rows = shape_.m;
  launch.chunks = gemm::ChunkOrder(shape_.m, kChunks, 0);
  launch.signal_rows = static_cast<int>(launch.chunks.stride());
  launch.signals = signals_.view().data_as<const std::uint32_t>();
  launch.complete = a_.view().data;
  launch.complete_rows = shape_.m;
  launch.complete_end = variant.way == Way::kSignals ? 1 : kChunks;
  launch.waits = waits_->handle();
  launch.num_clusters = bench::resident_on(0, *variant.kernel).most_clusters;
  return check_cuda(variant.name.c_str(), variant.kernel->launch(launch, native_));
}

Result<double> Bench::time(const Variant& variant, int round) {
  TANDEM_TRY(stream_->memset32(flush_.view(), 0, round + kWarmup, flush_.view().numel()));
  TANDEM_TRY(stream_->record(*begin_));
  TANDEM_TRY(run(variant));
  TANDEM_TRY(stream_->record(*end_));
  TANDEM_TRY(stream_->synchronize());
  return end_->elapsed_us(*begin_);
}

Result<void> Bench::check(Variant& variant) {
  const std::int64_t count = out_.view().numel();
  std::vector<std::uint16_t> got(static_cast<std::size_t>(count), 0xffff);
  TANDEM_TRY(device_->copy_from_host(got.data(), out_.view()));
  TANDEM_TRY(run(variant));
  TANDEM_TRY(stream_->synchronize());
  TANDEM_TRY(waits_->status());
  TANDEM_TRY(device_->copy_to_host(out_.view(), got.data()));
  if (reference_.empty()) reference_ = got;
  // cuBLASLt adds in an order of its own: a last place of 8 bits, or what is lost of f8 sums.
  const double tolerance = shape_.is_f8() ? 0.05 : 0.01;
  variant.wrong = bench::count_wrong(got, reference_, shape_.k, variant.kernel == nullptr ? tolerance : 0);
  return {};
}

Result<nlohmann::json> Bench::measure(int rounds) {
  gemm::Product product = bench::product_of(shape_.m, shape_.n, shape_.k, kChunks, true);
  if (shape_.is_f8()) {
    product.a = product.b = DType::kF8E4M3;
    product.fast_accum = shape_.mode == Mode::kF8;
  }
  constexpr Way kWays[] = {Way::kThere, Way::kSignals};
  std::vector<Variant> all =
      bench::variants_of(product, 0, kWays, [&](const Variant& vendor) { return run(vendor).has_value(); });
  for (Variant& variant : all) TANDEM_TRY(check(variant));
  TANDEM_TRY(bench::time_in_turns(all, kWarmup, rounds,
                                  [&](const Variant& variant, int round) { return time(variant, round); }));
  nlohmann::json row = {
      {"mode", kModes[static_cast<int>(shape_.mode)]},
      {"m", shape_.m},
      {"n", shape_.n},
      {"k", shape_.k},
      {"gpu", device_->description()},
      {"commit", TANDEM_COMMIT},
      {"command", fmt::format("bench_native_kernels {} {}:{}x{}x{}", rounds,
                              kModes[static_cast<int>(shape_.mode)], shape_.m, shape_.n, shape_.k)},
      {"rounds", rounds}};
  for (const auto& [kernel, us] : bench::kernels_for(product, 0)) row["predicted_us"][kernel->name] = us;
  bench::put_medians(all, row);
  return row;
}

Result<void> measure_all(int rounds, const std::vector<Shape>& shapes) {
  for (const Shape& shape : shapes) {
    TANDEM_ASSIGN(Bench bench, Bench::make(shape));
    TANDEM_ASSIGN(const nlohmann::json row, bench.measure(rounds));
    std::printf("%s\n", row.dump().c_str());
    std::fflush(stdout);
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 30;
  std::vector<Shape> shapes;
  for (int i = 2; i < argc; ++i) {
    long long m = 0, n = 0, k = 0;
    const std::string_view argument = argv[i];
    const std::size_t colon = argument.find(':');
    const std::string_view named = colon == argument.npos ? "bf16" : argument.substr(0, colon);
    const auto* const mode = std::find(std::begin(kModes), std::end(kModes), named);
    const char* const sizes = argv[i] + (colon == argument.npos ? 0 : colon + 1);
    if (mode == std::end(kModes) || std::sscanf(sizes, "%lldx%lldx%lld", &m, &n, &k) != 3) {
      std::fprintf(stderr, "got '%s', need [bf16|f8|f8exact|f8block:]MxNxK\n", argv[i]);
      return 2;
    }
    shapes.push_back({m, n, k, static_cast<Mode>(mode - std::begin(kModes))});
  }
  if (shapes.empty()) {
    shapes = {{512, 3584, 8192},  {1024, 3584, 8192}, {2048, 3584, 8192}, {4096, 3584, 8192},
              {8192, 3584, 8192}, {512, 7168, 8192},  {1024, 7168, 8192}, {2048, 7168, 8192},
              {4096, 7168, 8192}, {4096, 6656, 16384}};
  }
  if (const auto done = measure_all(rounds, shapes); !done) {
    std::fprintf(stderr, "%s\n", done.error().to_string().c_str());
    return 1;
  }
  return 0;
}
