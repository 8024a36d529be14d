#include "conformance/fused_harness.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <tandem/base/numeric.hpp>

namespace tandem::test {
namespace {

constexpr std::int64_t kGuardBytes = 64;
constexpr std::byte kGuard{0x5a};
constexpr std::byte kPoison{0xff};  // a NaN in every floating type

void store(std::byte* to, DType dtype, double value) {
  const auto narrow = static_cast<float>(value);
  if (dtype == DType::kF32) std::memcpy(to, &narrow, 4);
  if (dtype == DType::kBF16) {
    const BF16 bits = to_bf16(narrow);
    std::memcpy(to, &bits, 2);
  }
  if (dtype == DType::kF16) {
    const F16 bits = to_f16(narrow);
    std::memcpy(to, &bits, 2);
  }
}

double load(const std::byte* from, DType dtype) {
  float value = 0;
  if (dtype == DType::kF32) std::memcpy(&value, from, 4);
  if (dtype == DType::kBF16) {
    BF16 bits{};
    std::memcpy(&bits, from, 2);
    value = to_f32(bits);
  }
  if (dtype == DType::kF16) {
    F16 bits{};
    std::memcpy(&bits, from, 2);
    value = to_f32(bits);
  }
  return value;
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
  return std::ldexp(1.0, -24);
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
