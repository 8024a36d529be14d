#include "conformance/fused_harness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <tandem/base/numeric.hpp>

namespace tandem::test {
namespace {

constexpr std::int64_t kGuardBytes = 64;
constexpr std::byte kGuard{0x5a};
constexpr std::byte kPoison{0xff};  // a NaN in every floating type

template <class T>
void put(std::byte* to, T bits) {
  std::memcpy(to, &bits, sizeof bits);
}
template <class T>
T get(const std::byte* from) {
  T bits{};
  std::memcpy(&bits, from, sizeof bits);
  return bits;
}

void store(std::byte* to, DType dtype, double value) {
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::kF32) put(to, narrow);
  if (dtype == DType::kBF16) put(to, to_bf16(narrow));
  if (dtype == DType::kF16) put(to, to_f16(narrow));
  if (dtype == DType::kF8E4M3) put(to, to_f8e4m3(narrow));
  if (dtype == DType::kF8E5M2) put(to, to_f8e5m2(narrow));
}

double load(const std::byte* from, DType dtype) {
  if (dtype == DType::kF32) return get<float>(from);
  if (dtype == DType::kBF16) return to_f32(get<BF16>(from));
  if (dtype == DType::kF16) return to_f32(get<F16>(from));
  if (dtype == DType::kF8E4M3) return to_f32(get<F8E4M3>(from));
  if (dtype == DType::kF8E5M2) return to_f32(get<F8E5M2>(from));
  return 0;
}

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().to_string());
  return *std::move(result);
}

}  // namespace

Guarded::Guarded(Device& device, const Layout& layout, DType dtype) : device_(device) {
  std::int64_t elements = numel(layout.sizes) == 0 ? 0 : 1;
  for (int d = 0; d < layout.sizes.size() && elements > 0; ++d) {
    elements += (layout.sizes[d] - 1) * layout.strides[d];
  }
  used_bytes_ = elements * size_bytes(dtype);
  block_ = must(device.allocate_tensor({used_bytes_ + 2 * kGuardBytes}, DType::kU8));
  view_ = {block_.view().data_as<std::byte>() + kGuardBytes, layout.sizes, layout.strides, dtype,
           device.id()};
  poison();
}

Guarded::Guarded(Device& device, const Dims& sizes, DType dtype) : Guarded(device, dense(sizes), dtype) {}

void Guarded::poison() {
  image_.assign(static_cast<std::size_t>(used_bytes_ + 2 * kGuardBytes), kPoison);
  std::fill(image_.begin(), image_.begin() + kGuardBytes, kGuard);
  std::fill(image_.end() - kGuardBytes, image_.end(), kGuard);
  upload();
}

void Guarded::fill(const std::function<double(std::int64_t)>& value) {
  for (std::int64_t idx = 0; idx < view_.numel(); ++idx)
    store(image_.data() + byte_of(idx), view_.dtype, value(idx));
  upload();
}

void Guarded::upload() {
  const auto result = device_.copy_from_host(image_.data(), block_.view());
  if (!result) throw std::runtime_error(result.error().to_string());
}

void Guarded::download() {
  const auto result = device_.copy_to_host(block_.view(), image_.data());
  if (!result) throw std::runtime_error(result.error().to_string());
}

std::int64_t Guarded::byte_of(std::int64_t idx) const {
  const Dims at = position(view_.sizes, idx);
  std::int64_t offset = 0;
  for (int d = 0; d < at.size(); ++d) offset += at[d] * view_.strides[d];
  return kGuardBytes + offset * size_bytes(view_.dtype);
}

double Guarded::at(std::int64_t idx) const {
  return load(image_.data() + byte_of(idx), view_.dtype);
}

bool Guarded::guards_are_whole() const {
  for (std::int64_t i = 0; i < kGuardBytes; ++i) {
    if (image_[static_cast<std::size_t>(i)] != kGuard || *(image_.end() - 1 - i) != kGuard) return false;
  }
  return true;
}

Layout dense(const Dims& sizes) {
  return {sizes, contiguous_strides(sizes)};
}

Layout spread_out(const Dims& sizes) {
  Layout layout = dense(sizes);
  for (int d = 0; d < sizes.size(); ++d) layout.strides[d] *= 2;
  return layout;
}

Dims with_last(Dims sizes, std::int64_t last) {
  sizes[sizes.size() - 1] = last;
  return sizes;
}

double value_of(int id, std::int64_t idx, DType dtype) {
  std::uint64_t x = static_cast<std::uint64_t>(idx) * 0x9e3779b97f4a7c15ULL +
                    static_cast<std::uint64_t>(id) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 31)) * 0x94d049bb133111ebULL;
  x ^= x >> 29;
  const double value = static_cast<double>(x % 2001) / 1000.0 - 1.0;
  std::byte element[4];
  store(element, dtype, value);
  return load(element, dtype);
}

double epsilon_of(DType dtype) {
  if (dtype == DType::kBF16) return std::ldexp(1.0, -8);
  if (dtype == DType::kF16) return std::ldexp(1.0, -11);
  if (dtype == DType::kF8E4M3) return std::ldexp(1.0, -4);
  if (dtype == DType::kF8E5M2) return std::ldexp(1.0, -3);
  return std::ldexp(1.0, -24);
}

double rounding_error(DType dtype, double value) {
  // Half the smallest number above 0.
  const double floor = dtype == DType::kF8E4M3   ? std::ldexp(1.0, -10)
                       : dtype == DType::kF8E5M2 ? std::ldexp(1.0, -17)
                       : dtype == DType::kF16    ? std::ldexp(1.0, -25)
                                                 : 0.0;
  return std::max(epsilon_of(dtype) * std::abs(value) * 1.01, floor);
}

double largest_of(DType dtype) {
  if (dtype == DType::kF8E4M3) return 448;
  if (dtype == DType::kF8E5M2) return 57344;
  return std::numeric_limits<double>::infinity();
}

double scale_of(int id, std::int64_t idx) {
  return static_cast<float>(0.75 + 0.25 * value_of(id, idx, DType::kF32));
}

std::int64_t flat_index(const Dims& sizes, const Dims& at) {
  std::int64_t idx = 0;
  for (int d = 0; d < sizes.size(); ++d) idx = idx * sizes[d] + at[d];
  return idx;
}

Dims position(const Dims& sizes, std::int64_t idx) {
  Dims at = sizes;
  for (int d = sizes.size() - 1; d >= 0; --d) {
    at[d] = idx % sizes[d];
    idx /= sizes[d];
  }
  return at;
}

void Complaints::add(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (lines_.size() < 12) lines_.push_back(text);
}

std::string Complaints::text() const {
  const std::lock_guard lock(mutex_);
  std::string all;
  for (const std::string& line : lines_) all += line + "\n";
  return all;
}

void check_elements(const Guarded& got, const std::string& name, Complaints& complaints,
                    const std::function<Expected(const Dims& at)>& need_at) {
  const Dims& sizes = got.view().sizes;
  for (std::int64_t idx = 0; idx < got.view().numel(); ++idx) {
    const Dims at = position(sizes, idx);
    const Expected need = need_at(at);
    // What is rounded may be off itself: f8 rounds by up to 1/8 of what it is given.
    const double bound = need.error * 1.13 + rounding_error(got.view().dtype, need.value);
    if (std::abs(got.at(idx) - need.value) <= bound) continue;
    complaints.add(
        fmt::format("{} at {} is {}, need {} +- {}", name, to_string(at), got.at(idx), need.value, bound));
    return;
  }
  if (!got.guards_are_whole()) complaints.add(name + ": a guard byte was written");
}

std::string to_string(const JobCase& job) {
  return testing::to_string(job.ranks) + (job.vendor_products ? "_vendor" : "");
}

void PrintTo(const JobCase& job, std::ostream* out) {
  *out << to_string(job);
}

std::string job_name(const ::testing::TestParamInfo<JobCase>& info) {
  return to_string(info.param);
}

std::vector<JobCase> exact_cases(const std::vector<int>& sizes) {
  std::vector<JobCase> cases;
  for (const testing::RankCase& ranks : testing::rank_cases(sizes)) cases.push_back({ranks});
  return cases;
}

std::vector<JobCase> all_cases(const std::vector<int>& sizes) {
  std::vector<JobCase> cases = exact_cases(sizes);
  for (const testing::RankCase& ranks : testing::rank_cases(sizes)) {
    if (ranks.placement.kind == DeviceKind::kCuda) cases.push_back({ranks, true});
  }
  return cases;
}

std::vector<JobCase> cpu_cases(const std::vector<int>& sizes) {
  std::vector<JobCase> cases;
  for (const int size : sizes) cases.push_back({{{DeviceKind::kCpu}, size}});
  return cases;
}

Config with_own_products(Config config) {
  config.cublaslt_library = "none";  // no such file
  return config;
}

void on_ranks(const JobCase& job, const Config& config, Complaints& complaints,
              const std::function<Result<void>(RankContextOfTest&)>& body) {
  const Config used = job.vendor_products ? config : with_own_products(config);
  const auto result = run_thread_ranks(job.ranks.size, used, [&](Group& group) -> Result<void> {
    const auto device = must(open_device(job.ranks.placement.device_of(group.rank()), used));
    const auto stream = must(device->create_stream());
    RankContextOfTest rank{group, *device, *stream};
    return body(rank);
  });
  if (!result) complaints.add(result.error().to_string());
}

Result<std::unique_ptr<Group>> subgroup_of_all(Group& group, std::string_view name) {
  std::vector<int> ranks(static_cast<std::size_t>(group.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return group.subgroup(ranks, name);
}

Result<void> gather_and_multiply(const Guarded& a, const Guarded& b, const Guarded& out, Algorithm algorithm,
                                 Group& group, Stream& stream) {
  const std::vector<TensorView> bs = {b.view()};
  const std::vector<TensorView> outs = {out.view()};
  const auto report = fused_all_gather_matmul({.a = a.view(),
                                               .b = bs,
                                               .gather_dim = 0,
                                               .gather_size = a.view().size(0) * group.size(),
                                               .out = outs,
                                               .algorithm = algorithm},
                                              group, stream);
  if (!report) return tl::unexpected(report.error());
  return {};
}

Result<void> check_pads(RankContextOfTest& rank, Complaints& complaints) {
  auto handle = symm::workspace(rank.group, rank.device, 1);
  if (!handle) return tl::unexpected(handle.error());
  const auto pad = (*handle)->get_signal_pad(rank.group.rank());
  if (!pad) return tl::unexpected(pad.error());
  std::vector<std::uint32_t> words(static_cast<std::size_t>(pad->numel()));
  if (auto copied = rank.device.copy_to_host(*pad, words.data()); !copied) return copied;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] != 0) complaints.add(fmt::format("pad word {} is {}", i, words[i]));
  }
  return {};
}

Config quick_config() {
  Config config;
  config.log_level = LogLevel::kOff;
  config.op_timeout = std::chrono::seconds(20);
  config.rendezvous_timeout = std::chrono::seconds(20);
  return config;
}

}  // namespace tandem::test
