#include "conformance/fused_harness.hpp"

#include <fmt/format.h>

#include <numeric>

#include "harness/failure.hpp"
#include "harness/operands.hpp"

namespace tandem::test {
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

Tensor generated(const Dims& sizes, DType dtype, int seed) {
  Tensor tensor = Tensor::host(sizes, dtype);
  const Dims flat = {tensor.view().numel()};
  harness::generate({.seed = static_cast<std::uint64_t>(seed), .sizes = flat},
                    TensorView::contiguous(tensor.view().data, flat, dtype));
  return tensor;
}

Tensor generated_scale(const Dims& sizes, int seed, float magnitude) {
  Tensor tensor = Tensor::host(sizes, DType::kF32);
  const Dims flat = {tensor.view().numel()};
  harness::generate({.seed = static_cast<std::uint64_t>(seed),
                     .sizes = flat,
                     .scale = 0.25F * magnitude,
                     .shift = 0.75F * magnitude},
                    TensorView::contiguous(tensor.view().data, flat, DType::kF32));
  return tensor;
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

void Complaints::add(const std::string& name, const harness::GuardedTensor& tensor,
                     const harness::Wrong& wrong) {
  if (wrong.count > 0) add(name + ": " + wrong.first);
  if (!tensor.guards_are_whole()) add(name + ": a byte beside the tensor was written");
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
