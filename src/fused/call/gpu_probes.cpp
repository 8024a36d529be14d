#include "fused/call/gpu_probes.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <tandem/coll/collectives.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/symm/symmetric_memory.hpp>
#include <vector>

#include "base/function_ref.hpp"
#include "base/try.hpp"
#include "bootstrap/told_by_all.hpp"
#include "gemm/operand_checks.hpp"
#include "gemm/product.hpp"

namespace tandem::fused {
namespace {

using cost::GpuProbe;

constexpr std::int64_t kDeeper = 4;
constexpr std::int64_t kLonger = 8;

/// A product of a probe.
struct ProbeProduct {
  std::int64_t m, n, k;
  DType dtype = DType::kBF16;
  bool b_is_column_major = true;
  bool is_native = false;
};

/// None for probes of something else.
std::optional<ProbeProduct> product_of(GpuProbe probe, const ProbeSizes& sizes) {
  const auto of_wave = [&](bool is_long, DType dtype, bool by_columns, bool is_native) {
    return ProbeProduct{.m = sizes.rows,
                        .n = sizes.columns,
                        .k = sizes.short_k * (is_long ? kDeeper : 1),
                        .dtype = dtype,
                        .b_is_column_major = by_columns,
                        .is_native = is_native};
  };
  switch (probe) {
    case GpuProbe::kVendorShort:
    case GpuProbe::kVendorLong:
      return of_wave(probe == GpuProbe::kVendorLong, DType::kBF16, true, false);
    case GpuProbe::kVendorFewRows:
      return ProbeProduct{.m = sizes.few_rows, .n = sizes.large, .k = sizes.large};
    case GpuProbe::kVendorLarge:
      return ProbeProduct{.m = sizes.large_rows, .n = sizes.large, .k = sizes.large};
    case GpuProbe::kNativeBF16Short:
    case GpuProbe::kNativeBF16Long:
      return of_wave(probe == GpuProbe::kNativeBF16Long, DType::kBF16, true, true);
    case GpuProbe::kNativeBF16RowsShort:
    case GpuProbe::kNativeBF16RowsLong:
      return of_wave(probe == GpuProbe::kNativeBF16RowsLong, DType::kBF16, false, true);
    case GpuProbe::kNativeF16Short:
    case GpuProbe::kNativeF16Long:
      return of_wave(probe == GpuProbe::kNativeF16Long, DType::kF16, true, true);
    case GpuProbe::kNativeF16RowsShort:
    case GpuProbe::kNativeF16RowsLong:
      return of_wave(probe == GpuProbe::kNativeF16RowsLong, DType::kF16, false, true);
    case GpuProbe::kNativeF8Short:
    case GpuProbe::kNativeF8Long:
      return of_wave(probe == GpuProbe::kNativeF8Long, DType::kF8E4M3, true, true);
    default:
      return std::nullopt;
  }
}

gemm::Product asked_of(const ProbeProduct& probe) {
  const bool is_scaled = is_f8(probe.dtype);
  gemm::Product product = {.m = probe.m,
                           .n = probe.n,
                           .k = probe.k,
                           .a = probe.dtype,
                           .b = probe.dtype,
                           .out = is_scaled ? DType::kBF16 : probe.dtype,
                           .a_scale = is_scaled ? gemm::Scale::kTensor : gemm::Scale::kNone,
                           .b_scale = is_scaled ? gemm::Scale::kTensor : gemm::Scale::kNone,
                           .fast_accum = is_scaled,
                           .b_is_column_major = probe.b_is_column_major};
  if (probe.is_native) product.arrival = gemm::Chunks{.count = 1, .complete = 1};
  return product;
}

/// On one rank, with the memory that all probes use one after the other.
class Probes {
 public:
  Probes(const ProbeSizes& sizes, Group& group, Device& device)
      : sizes_(sizes), group_(group), device_(device) {}
  /// Errors: kOutOfMemory.
  Result<void> allocate();
  /// Collective.
  Result<void> connect();
  /// Its median. Collective.
  Result<double> time_us(GpuProbe probe);

 private:
  using Bytes = std::int64_t;
  Result<void> fill(const TensorView& bytes);
  /// Of the operands' memory.
  [[nodiscard]] TensorView matrix(const Tensor& memory, const Dims& sizes, DType dtype) const {
    return TensorView::contiguous(memory.view().data, sizes, dtype, device_.id());
  }
  [[nodiscard]] TensorView bytes(const Tensor& memory, Bytes begin, Bytes size) const {
    return memory.view().narrow(0, begin, size);
  }
  Result<void> enqueue(GpuProbe probe);
  Result<void> multiply(const ProbeProduct& product);
  Result<void> copy(bool pushes, Bytes size);
  Result<void> gather(Bytes part);
  Result<void> sum(Bytes part);

  const ProbeSizes& sizes_;
  Group& group_;
  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Event>> events_;  ///< the start and end of each round
  Tensor a_, b_, out_, signal_, scale_;
  Tensor larger_than_cache_;
  Tensor shared_;  ///< symmetric
  std::shared_ptr<symm::Handle> handle_;
};

Result<void> Probes::allocate() {
  TANDEM_ASSIGN(stream_, device_.create_stream());
  for (int i = 0; i < 2 * sizes_.rounds; ++i) {
    TANDEM_ASSIGN(auto event, device_.create_event());
    events_.push_back(std::move(event));
  }
  const Bytes deep_k = sizes_.short_k * kDeeper;
  const Bytes long_bytes = sizes_.short_bytes * kLonger;
  const Bytes a_bytes = 2 * std::max(sizes_.rows * deep_k, sizes_.large_rows * sizes_.large);
  const Bytes b_bytes = 2 * std::max(sizes_.columns * deep_k, sizes_.large * sizes_.large);
  const Bytes out_bytes = 2 * std::max(sizes_.rows * sizes_.columns, sizes_.large_rows * sizes_.large);
  // Collectives gather into out's memory and sum what is in b's.
  const auto allocate = [&](Tensor& tensor, Bytes size) -> Result<void> {
    TANDEM_ASSIGN(tensor, device_.allocate_tensor({size}, DType::kU8));
    return {};
  };
  TANDEM_TRY(allocate(a_, std::max(a_bytes, long_bytes)));
  TANDEM_TRY(allocate(b_, std::max(b_bytes, long_bytes * group_.size())));
  TANDEM_TRY(allocate(out_, std::max(out_bytes, long_bytes * group_.size())));
  TANDEM_TRY(allocate(larger_than_cache_, 2 * sizes_.memory_bytes));
  TANDEM_ASSIGN(signal_, device_.allocate_tensor({1}, DType::kU32));
  TANDEM_ASSIGN(scale_, device_.allocate_tensor({1}, DType::kF32));
  const float one = 1;
  TANDEM_TRY(device_.copy_from_host(&one, scale_.view()));
  TANDEM_ASSIGN(shared_, symm::empty({long_bytes}, DType::kU8, device_));
  TANDEM_TRY(fill(a_.view()));
  return fill(b_.view());
}

Result<void> Probes::connect() {
  TANDEM_ASSIGN(handle_, symm::rendezvous(shared_, group_));
  return {};
}

// Zeros would be multiplied faster than values: they cost less power. Bytes of these are finite numbers of
// either sign in every type.
Result<void> Probes::fill(const TensorView& bytes) {
  constexpr Bytes kPatternBytes = 1 << 20;
  const Bytes size = bytes.size(0);
  std::vector<std::uint8_t> pattern(static_cast<std::size_t>(std::min(size, kPatternBytes)));
  std::uint32_t state = 1;
  for (std::uint8_t& byte : pattern) {
    state = state * 1664525u + 1013904223u;
    byte = static_cast<std::uint8_t>(0x30u | (state >> 24 & 0x8fu));
  }
  Bytes filled = static_cast<Bytes>(pattern.size());
  TANDEM_TRY(device_.copy_from_host(pattern.data(), bytes.narrow(0, 0, filled)));
  while (filled < size) {
    const Bytes more = std::min(filled, size - filled);
    TANDEM_TRY(stream_->copy(bytes.narrow(0, 0, more), bytes.narrow(0, filled, more)));
    filled += more;
  }
  return {};
}

Result<void> Probes::multiply(const ProbeProduct& product) {
  const TensorView a = matrix(a_, {product.m, product.k}, product.dtype);
  TensorView b = matrix(
      b_, product.b_is_column_major ? Dims{product.n, product.k} : Dims{product.k, product.n}, product.dtype);
  if (product.b_is_column_major) b = b.movedim(0, 1);
  const bool is_scaled = is_f8(product.dtype);
  const TensorView out = matrix(out_, {product.m, product.n}, is_scaled ? DType::kBF16 : product.dtype);
  gemm::ProductArgs args = {.a = &a, .b = &b, .out = &out};
  if (!product.is_native) return gemm::run(gemm::kMm, args, *stream_);
  const TensorView scale = scale_.view();
  const gemm::Arrival there = {.signals = signal_.view(),
                               .complete = gemm::CompleteChunks{.rows = a, .first = 0, .count = 1}};
  args.arrival = &there;
  if (is_scaled) {
    args.a_scale = &scale;
    args.b_scale = &scale;
    args.fast_accum = true;
  }
  return gemm::run(is_scaled ? gemm::kScaledAsyncInputMm : gemm::kAsyncInputMm, args, *stream_);
}

Result<void> Probes::copy(bool pushes, Bytes size) {
  const int peer = (group_.rank() + 1) % group_.size();
  return pushes ? handle_->put(*stream_, bytes(a_, 0, size), peer)
                : handle_->get(*stream_, bytes(a_, 0, size), peer);
}

Result<void> Probes::gather(Bytes part) {
  return coll::all_gather({bytes(a_, 0, part), bytes(out_, 0, part * group_.size())}, group_, *stream_);
}

Result<void> Probes::sum(Bytes part) {
  const std::int64_t elements = part / size_bytes(DType::kBF16);
  return coll::reduce_scatter({.input = matrix(b_, {elements * group_.size()}, DType::kBF16),
                               .output = matrix(out_, {elements}, DType::kBF16),
                               .bias = std::nullopt},
                              group_, *stream_);
}

Result<void> Probes::enqueue(GpuProbe probe) {
  const Bytes long_bytes = sizes_.short_bytes * kLonger;
  switch (probe) {
    case GpuProbe::kPushShort:
      return copy(true, sizes_.short_bytes);
    case GpuProbe::kPushLong:
      return copy(true, long_bytes);
    case GpuProbe::kPullShort:
      return copy(false, sizes_.short_bytes);
    case GpuProbe::kPullLong:
      return copy(false, long_bytes);
    case GpuProbe::kBarrier:
      return handle_->barrier(*stream_, symm::kFirstUserChannel);
    case GpuProbe::kMemory:
      return stream_->copy(bytes(larger_than_cache_, 0, sizes_.memory_bytes),
                           bytes(larger_than_cache_, sizes_.memory_bytes, sizes_.memory_bytes));
    case GpuProbe::kMailboxes:
      return gather(sizes_.few_bytes);
    case GpuProbe::kGatherShort:
      return gather(sizes_.short_bytes);
    case GpuProbe::kGatherLong:
      return gather(long_bytes);
    case GpuProbe::kSumShort:
      return sum(sizes_.short_bytes);
    case GpuProbe::kSumLong:
      return sum(long_bytes);
    default:
      return multiply(*product_of(probe, sizes_));
  }
}

Result<double> Probes::time_us(GpuProbe probe) {
  // The host has time to enqueue what is timed, and ranks begin together.
  constexpr std::chrono::microseconds kTimeToEnqueue{300};
  TANDEM_TRY(enqueue(probe));  // what is new to the ranks, and to the driver, comes here
  TANDEM_TRY(stream_->synchronize());
  const TensorView cache = matrix(larger_than_cache_, {2 * sizes_.memory_bytes / 4}, DType::kU32);
  std::vector<double> us;
  for (int round = 0; round < sizes_.rounds; ++round) {
    Event& start = *events_[static_cast<std::size_t>(2 * round)];
    Event& end = *events_[static_cast<std::size_t>(2 * round + 1)];
    TANDEM_TRY(stream_->memset32(cache, 0, 1, cache.numel()));
    TANDEM_TRY(stream_->sleep(kTimeToEnqueue));
    TANDEM_TRY(handle_->barrier(*stream_, symm::kFirstUserChannel));
    TANDEM_TRY(stream_->record(start));
    TANDEM_TRY(enqueue(probe));
    TANDEM_TRY(stream_->record(end));
    TANDEM_TRY(stream_->synchronize());
    TANDEM_ASSIGN(const double taken_us, end.elapsed_us(start));
    us.push_back(taken_us);
  }
  const auto middle = us.begin() + static_cast<std::ptrdiff_t>(us.size() / 2);
  std::nth_element(us.begin(), middle, us.end());
  return *middle;
}

}  // namespace

ProbeSet probes_of(const Device& device, const ProbeSizes& sizes) {
  ProbeSet probes;
  for (std::size_t i = 0; i < cost::kNumGpuProbes; ++i) {
    const auto probe = product_of(static_cast<GpuProbe>(i), sizes);
    const gemm::Implementation* const chosen = probe ? gemm::choose(asked_of(*probe), device) : nullptr;
    // A model is of these two alone.
    probes[i] = !probe || (chosen != nullptr && gemm::predicted_us(asked_of(*probe), device));
  }
  return probes;
}

Result<cost::GpuTimes> run_probes(const ProbeSet& wanted, const ProbeSizes& sizes, Group& group,
                                  Device& device) {
  Probes probes(sizes, group, device);
  const auto allocated = probes.allocate();
  if (!allocated && allocated.error().code() != ErrorCode::kOutOfMemory)
    return tl::unexpected(allocated.error());
  TANDEM_ASSIGN(const auto have_memory,
                bootstrap::told_by_all<int>(allocated ? 1 : 0, group, "measure GPUs: memory"));
  cost::GpuTimes times;
  if (std::count(have_memory.begin(), have_memory.end(), 0) > 0) return times;
  TANDEM_TRY(probes.connect());
  for (std::size_t i = 0; i < cost::kNumGpuProbes; ++i) {
    if (!wanted[i]) continue;
    TANDEM_ASSIGN(const double us, probes.time_us(static_cast<GpuProbe>(i)));
    times.set(static_cast<GpuProbe>(i), us);
  }
  return times;
}

}  // namespace tandem::fused
