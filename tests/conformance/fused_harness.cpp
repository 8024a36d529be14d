#include "conformance/fused_harness.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tandem/base/numeric.hpp>

#include "harness/failure.hpp"
#include "harness/operands.hpp"
#include "harness/reference.hpp"

namespace tandem::test {
namespace {

double rounded(float value, DType dtype) {
  if (dtype == DType::kBF16) return to_f32(to_bf16(value));
  if (dtype == DType::kF16) return to_f32(to_f16(value));
  if (dtype == DType::kF8E4M3) return to_f32(to_f8e4m3(value));
  if (dtype == DType::kF8E5M2) return to_f32(to_f8e5m2(value));
  return value;
}

}  // namespace

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
  return rounded(harness::generated_value(static_cast<std::uint64_t>(id), idx), dtype);
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
    const double bound = need.error * 1.13 + harness::rounding_error(got.view().dtype, need.value);
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
    const auto device = harness::take(open_device(job.ranks.placement.device_of(group.rank()), used));
    const auto stream = harness::take(device->create_stream());
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
