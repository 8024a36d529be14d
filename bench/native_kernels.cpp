// The native kernels by themselves, each on every shape it takes, beside cuBLASLt's first eight heuristics on
// the same operands: with all of a in place, and with half of it behind signals that are there. One GPU.
//   bench_native_kernels [ROUNDS] [[MODE:]MxNxK ...]   prints a JSON row for each shape; times in us
// MODE: bf16 or f16, or bf16n or f16n with b row-major; f8, by rows and columns with fast sums; f8exact, the
//       same with exact sums; f8block, scaled 1x128 by 128x128. Behind it +bias, and +addend (of out's type)
//       or +addend32 (f32), as in bf16n+bias+addend.
// Samples of the first kernel's output are compared with float64, and every other output with the first one:
// of kernels bit by bit.

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
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
#include "harness/reference.hpp"
#include "product_table.hpp"

namespace {

using namespace tandem;
using bench::Variant;
using bench::Way;
using gemm::cuda::AsyncInputLaunch;
using tandem::cuda::check_cuda;

struct Mode {
  std::string name = "bf16";
  DType factors = DType::kBF16;
  bool b_is_column_major = true;
  bool is_fast = false;       ///< of f8
  bool is_by_blocks = false;  ///< of f8
  bool has_bias = false;      ///< of out's type
  std::optional<DType> addend = {};

  [[nodiscard]] bool is_f8() const { return factors == DType::kF8E4M3; }
  [[nodiscard]] DType out() const { return is_f8() ? DType::kBF16 : factors; }
};

std::optional<Mode> mode_of(std::string_view text) {
  Mode mode;
  mode.name = text;
  const auto ends_with = [&](std::string_view what) {
    if (!text.ends_with(what)) return false;
    text.remove_suffix(what.size());
    return true;
  };
  const bool adds_wide = ends_with("+addend32");
  const bool adds = ends_with("+addend");
  mode.has_bias = ends_with("+bias");
  if (text == "f8" || text == "f8exact" || text == "f8block") {
    mode.factors = DType::kF8E4M3;
    mode.is_fast = text == "f8";
    mode.is_by_blocks = text == "f8block";
  } else {
    mode.b_is_column_major = !ends_with("n");
    if (text != "bf16" && text != "f16") return std::nullopt;
    mode.factors = text == "f16" ? DType::kF16 : DType::kBF16;
  }
  if (adds) mode.addend = mode.out();
  if (adds_wide) mode.addend = DType::kF32;
  return mode;
}

struct Shape {
  std::int64_t m = 0, n = 0, k = 0;
  Mode mode = {};

  [[nodiscard]] bool is_f8() const { return mode.is_f8(); }
  [[nodiscard]] bool is_by_blocks() const { return mode.is_by_blocks; }
  [[nodiscard]] std::int64_t k_blocks() const { return (k + 127) / 128; }
};

double value_of(DType dtype, std::uint16_t bits) {
  if (dtype == DType::kBF16) return to_f32(BF16{bits});
  return dtype == DType::kF16 ? to_f32(F16{bits}) : to_f32(F8E4M3{static_cast<std::uint8_t>(bits)});
}
double f16_value(std::uint16_t bits) {
  return value_of(DType::kF16, bits);
}

class Bench {
 public:
  static Result<Bench> make(const Shape& shape);
  Result<nlohmann::json> measure(int rounds);

 private:
  Result<void> run(const Variant& variant);
  Result<void> run_vendor(int heuristic);
  Result<double> time(const Variant& variant, int round);
  Result<void> check(Variant& variant);
  [[nodiscard]] std::int64_t count_wrong_samples() const;
  Result<void> fill();

  Shape shape_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  cudaStream_t native_ = nullptr;
  Result<Tensor> scale(const Dims& sizes);
  Tensor a_, b_, out_, flush_, signals_;
  Tensor a_scale_, b_scale_, bias_, addend_;
  TensorView b_view_, b_scale_view_;
  std::vector<std::uint16_t> a_values_, b_values_;  ///< bits, as b lies
  std::vector<std::uint16_t> bias_values_;
  std::vector<float> addend_values_;
  std::shared_ptr<gemm::cuda::LoneWaits> waits_;
  std::unique_ptr<Event> begin_, end_;
  std::vector<std::uint16_t> reference_;
};

constexpr int kChunks = 2;
constexpr int kWarmup = 2;

/// As `dtype` has them.
std::vector<std::uint16_t> random_values(std::int64_t count, unsigned seed, DType dtype) {
  auto values = bench::random_bf16(count, seed);
  if (dtype == DType::kBF16) return values;
  for (std::uint16_t& value : values) {
    const float wide = to_f32(BF16{value});
    value = dtype == DType::kF16 ? to_f16(wide).bits : std::uint16_t{to_f8e4m3(wide).bits};
  }
  return values;
}

Result<void> Bench::fill() {
  const DType dtype = shape_.mode.factors;
  a_values_ = random_values(a_.view().numel(), 7, dtype);
  b_values_ = random_values(b_.view().numel(), 8, dtype);
  for (const auto& [tensor, values] : {std::pair{&a_, &a_values_}, std::pair{&b_, &b_values_}}) {
    if (!shape_.is_f8()) {
      TANDEM_TRY(device_->copy_from_host(values->data(), tensor->view()));
      continue;
    }
    const std::vector<std::uint8_t> narrow(values->begin(), values->end());
    TANDEM_TRY(device_->copy_from_host(narrow.data(), tensor->view()));
  }
  const DType out = shape_.mode.out();
  if (shape_.mode.has_bias) {
    TANDEM_ASSIGN(bias_, device_->allocate_tensor({shape_.n}, out));
    bias_values_ = random_values(shape_.n, 9, out);
    TANDEM_TRY(device_->copy_from_host(bias_values_.data(), bias_.view()));
  }
  if (const auto addend = shape_.mode.addend) {
    TANDEM_ASSIGN(addend_, device_->allocate_tensor({shape_.m, shape_.n}, *addend));
    const auto values = random_values(shape_.m * shape_.n, 10, out);
    for (const std::uint16_t value : values)
      addend_values_.push_back(static_cast<float>(value_of(out, value)));
    const void* const from = *addend == DType::kF32 ? static_cast<const void*>(addend_values_.data())
                                                    : static_cast<const void*>(values.data());
    TANDEM_TRY(device_->copy_from_host(from, addend_.view()));
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
  const DType factors = shape.mode.factors;
  const bool is_column_major = shape.mode.b_is_column_major;
  TANDEM_ASSIGN(bench.a_, device.allocate_tensor({shape.m, shape.k}, factors));
  TANDEM_ASSIGN(bench.b_, device.allocate_tensor(
                              is_column_major ? Dims{shape.n, shape.k} : Dims{shape.k, shape.n}, factors));
  bench.b_view_ = is_column_major ? bench.b_.view().movedim(0, 1) : bench.b_.view();
  const std::int64_t blocks = shape.is_by_blocks() ? shape.k_blocks() : 1;
  const std::int64_t columns = shape.is_by_blocks() ? (shape.n + 127) / 128 : shape.n;
  TANDEM_ASSIGN(bench.a_scale_, bench.scale({shape.m, blocks}));
  TANDEM_ASSIGN(bench.b_scale_, bench.scale({columns, blocks}));
  bench.b_scale_view_ = bench.b_scale_.view().movedim(0, 1);
  TANDEM_ASSIGN(bench.out_, device.allocate_tensor({shape.m, shape.n}, shape.mode.out()));
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
  const TensorView bias = bias_.view();
  const TensorView addend = addend_.view();
  gemm::ProductArgs args{.a = &a, .b = &b_view_, .out = &out};
  if (shape_.mode.has_bias) args.bias = &bias;
  if (shape_.mode.addend) args.addend = &addend;
  if (shape_.is_f8()) {
    args.a_scale = &a_scale;
    args.b_scale = &b_scale_view_;
    args.fast_accum = shape_.mode.is_fast;
  }
  args.heuristic = heuristic;
  const bool is_plain = !shape_.is_f8() && (!shape_.mode.addend || *shape_.mode.addend == shape_.mode.out());
  TANDEM_ASSIGN(const gemm::Product product, is_plain ? gemm::mm_product(args) : gemm::scaled_product(args));
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
  if (shape_.mode.has_bias)
    launch.epilogue.bias = {.data = bias_.view().data, .dtype = shape_.mode.out(), .stride = 1};
  if (shape_.mode.addend) {
    launch.epilogue.addend = addend_.view().data;
    launch.epilogue.addend_dtype = *shape_.mode.addend;
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
  if (reference_.empty()) {
    reference_ = got;
    variant.wrong = count_wrong_samples();
    return {};
  }
  // cuBLASLt adds in an order of its own: a last place of 8 bits, or what is lost of f8 sums.
  const double tolerance = shape_.is_f8() ? 0.05 : 0.01;
  variant.wrong = bench::count_wrong(got, reference_, shape_.k, variant.kernel == nullptr ? tolerance : 0,
                                     shape_.mode.out() == DType::kF16 ? f16_value : bench::bf16_value);
  return {};
}

/// Of the reference, against float64. Of f8 only what the vendor's library makes is compared with it.
std::int64_t Bench::count_wrong_samples() const {
  if (shape_.is_f8()) return 0;
  const DType out = shape_.mode.out();
  std::mt19937_64 random(5);
  std::int64_t wrong = 0;
  constexpr int kSamples = 1000;
  for (int i = 0; i < kSamples; ++i) {
    // Every tenth is in the last row, and every tenth in the last column.
    const auto any = [&](std::int64_t size) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size));
    };
    const std::int64_t row = i % 10 == 0 ? shape_.m - 1 : any(shape_.m);
    const std::int64_t column = i % 10 == 1 ? shape_.n - 1 : any(shape_.n);
    double sum = 0;
    double size = 0;
    for (std::int64_t k = 0; k < shape_.k; ++k) {
      const std::int64_t of_b = shape_.mode.b_is_column_major ? column * shape_.k + k : k * shape_.n + column;
      const double product =
          value_of(shape_.mode.factors, a_values_[static_cast<std::size_t>(row * shape_.k + k)]) *
          value_of(shape_.mode.factors, b_values_[static_cast<std::size_t>(of_b)]);
      sum += product;
      size += std::abs(product);
    }
    const auto at = static_cast<std::size_t>(row * shape_.n + column);
    if (shape_.mode.has_bias) sum += value_of(out, bias_values_[static_cast<std::size_t>(column)]);
    if (shape_.mode.addend) sum += addend_values_[at];
    const double bound = 0x1p-20 * size + harness::rounding_error(out, sum);
    if (!(std::abs(value_of(out, reference_[at]) - sum) <= bound)) ++wrong;
  }
  return wrong;
}

Result<nlohmann::json> Bench::measure(int rounds) {
  gemm::Product product = bench::product_of(shape_.m, shape_.n, shape_.k, kChunks, true);
  product.a = product.b = shape_.mode.factors;
  product.out = shape_.mode.out();
  product.b_is_column_major = shape_.mode.b_is_column_major;
  product.fast_accum = shape_.mode.is_fast;
  constexpr Way kWays[] = {Way::kThere, Way::kSignals};
  std::vector<Variant> all =
      bench::variants_of(product, 0, kWays, [&](const Variant& vendor) { return run(vendor).has_value(); });
  for (Variant& variant : all) TANDEM_TRY(check(variant));
  TANDEM_TRY(bench::time_in_turns(all, kWarmup, rounds,
                                  [&](const Variant& variant, int round) { return time(variant, round); }));
  nlohmann::json row = {{"mode", shape_.mode.name},
                        {"m", shape_.m},
                        {"n", shape_.n},
                        {"k", shape_.k},
                        {"gpu", device_->description()},
                        {"commit", TANDEM_COMMIT},
                        {"command", fmt::format("bench_native_kernels {} {}:{}x{}x{}", rounds,
                                                shape_.mode.name, shape_.m, shape_.n, shape_.k)},
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
    const auto mode = mode_of(colon == argument.npos ? "bf16" : argument.substr(0, colon));
    const char* const sizes = argv[i] + (colon == argument.npos ? 0 : colon + 1);
    if (!mode || std::sscanf(sizes, "%lldx%lldx%lld", &m, &n, &k) != 3) {
      std::fprintf(stderr,
                   "got '%s', need [MODE:]MxNxK, MODE of bf16, f16, bf16n, f16n, f8, f8exact, f8block, "
                   "then +bias, then +addend or +addend32\n",
                   argv[i]);
      return 2;
    }
    shapes.push_back({m, n, k, *mode});
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
