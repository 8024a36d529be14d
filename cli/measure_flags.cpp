#include "measure_flags.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>
#include <tandem/base/time_text.hpp>

#include "failure.hpp"
#include "timing.hpp"
#include "version.hpp"

namespace tandem::cli {
namespace {

constexpr std::string_view kRandom = "random:";

/// Sizes of random:N, the same in every run: each spread evenly over its powers of two.
std::vector<harness::ProductSizes> random_sizes(const std::string& name) {
  const std::string digits = name.substr(kRandom.size());
  int count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc() || end != digits.data() + digits.size() || count < 1 || count > 1000)
    bad_input(fmt::format("--preset '{}': need random:1 to random:1000", name));
  std::mt19937 random(1);
  const auto between = [&](std::int64_t least, double doublings) {
    const double fraction = static_cast<double>(random()) / static_cast<double>(std::mt19937::max());
    return std::llround(static_cast<double>(least) * std::exp2(doublings * fraction) / 64) * 64;
  };
  std::vector<harness::ProductSizes> sizes;
  for (int i = 0; i < count; ++i) {
    const std::int64_t m = between(512, 4.5);
    const std::int64_t n = between(512, 4);
    sizes.push_back({m, n, between(1024, 3.5)});
  }
  return sizes;
}

// One rank's slice of Llama 3 under 8-way tensor parallelism, 4096 tokens: query/key/value and gate+up for
// the gather, attention output and down for the scatter.
std::vector<harness::ProductSizes> preset_sizes(const std::string& name, bool gathers) {
  if (name == "seed") return {{4096, 6656, 16384}};
  if (name.starts_with(kRandom)) return random_sizes(name);
  if (name == "llama3-8b") {
    return gathers ? std::vector<harness::ProductSizes>{{4096, 768, 4096}, {4096, 3584, 4096}}
                   : std::vector<harness::ProductSizes>{{4096, 4096, 512}, {4096, 4096, 1792}};
  }
  if (name == "llama3-70b") {
    return gathers ? std::vector<harness::ProductSizes>{{4096, 1280, 8192}, {4096, 7168, 8192}}
                   : std::vector<harness::ProductSizes>{{4096, 8192, 1024}, {4096, 8192, 3584}};
  }
  bad_input(fmt::format("--preset '{}': need seed, llama3-8b, llama3-70b or random:N", name));
}

}  // namespace

void check_sizes(const harness::ProductSizes& sizes) {
  const auto& [m, n, k] = sizes;
  if (std::min({m, n, k}) >= 1 && std::max({m, n, k}) <= (1 << 24)) return;
  bad_input(fmt::format("--m {} --n {} --k {}: each needs to be from 1 to {}", m, n, k, 1 << 24));
}

void MeasureFlags::define(CLI::App& app) {
  const auto add_sizes = [&](const char* name, std::vector<std::int64_t>& list, const char* text) {
    app.add_option(name, list, text)->delimiter(',');
  };
  add_sizes("--m", m, "rows of the product that one rank computes (list)");
  add_sizes("--n", n, "its columns (list)");
  add_sizes("--k", k, "its inner size (list)");
  app.add_option("--dtype", dtypes, "f32, bf16, f16, f8e4m3, f8e5m2 (list)")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--scales", scales, "of f8 operands: tensor, row or block (list)")->delimiter(',');
  app.add_flag("--fast-accum", fast_accum, "of f8 operands: sums over all of k in the tensor cores");
  app.add_option(
         "--b-order", b_orders,
         "how b lies in memory: row or column (major; list); default: column with --preset, as models "
         "store weights, else row")
      ->delimiter(',');
  app.add_option("--preset", preset, "seed, llama3-8b, llama3-70b, or random:N for N random ones");
  app.add_option("--scale", scale, "shrinks m, n and k of a preset; default 1/8 on CPUs")->type_name("X");
  app.add_option("--iterations", counts.iterations, "timed rounds")->capture_default_str();
  app.add_option("--warmup", counts.warmup, "rounds before them")->capture_default_str();
  app.add_flag("--check-samples", counts.by_samples,
               "check samples of each result in the first round, not every element in every round");
  app.add_option("--link-delay-us", link_delay_us,
                 "simulated link: each copy from a peer takes so long first");
  job.define(app);
}

void MeasureFlags::check() const {
  if (counts.iterations < 1 || counts.warmup < 0) {
    bad_input(
        fmt::format("--iterations {} --warmup {}: need at least 1 and 0", counts.iterations, counts.warmup));
  }
  if (link_delay_us < -1 || link_delay_us > 10'000'000) {
    bad_input(fmt::format("--link-delay-us {}: need 0 to 10000000", link_delay_us));
  }
  if (!scale.empty() && preset.empty()) bad_input("--scale shrinks a --preset; give --m --n --k as they are");
}

void MeasureFlags::print_heading(const Invocation& invocation, const JobPlace& place) const {
  const Machine& machine = invocation.machine;
  const bool on_gpus = place.placement.kind == DeviceKind::kCuda;
  fmt::print("{}\n", place.heading);
  fmt::print("# tandem {}{}{}, {}\n", kVersion, *kCommit ? " commit " : "", kCommit, date_utc());
  if (on_gpus) fmt::print("# GPUs: {}\n", fmt::join(gpu_states(), "; "));
  fmt::print("# {}, {} cores, Linux {}\n", machine.cpu_model, machine.usable_cores(), machine.kernel_release);
  if (!preset.empty()) fmt::print("# preset {} at scale {}\n", preset, scale_text(on_gpus));
  if (const auto link = link_of(invocation.config); link.count() > 0)
    fmt::print("# simulated link: {} for each copy from a peer\n", time_text(link));
  fmt::print("# times: median over {} rounds of the slowest rank; m, n, k: the product one rank computes\n",
             counts.iterations);
}

std::vector<harness::ProductSizes> MeasureFlags::listed_sizes() const {
  std::vector<harness::ProductSizes> sizes;
  for (const auto rows : m) {
    for (const auto columns : n) {
      for (const auto inner : k) {
        sizes.push_back({rows, columns, inner});
        check_sizes(sizes.back());
      }
    }
  }
  return sizes;
}

std::vector<harness::ProductSizes> MeasureFlags::sizes(bool gathers, bool on_gpus) const {
  if (preset.empty()) {
    if (m.empty() || n.empty() || k.empty()) bad_input("need --m, --n and --k, or --preset");
    return listed_sizes();
  }
  if (!m.empty() || !n.empty() || !k.empty())
    bad_input("--preset already says the sizes: leave out --m, --n and --k");
  std::vector<harness::ProductSizes> sizes = preset_sizes(preset, gathers);
  const double factor = parse_scale(scale_text(on_gpus));
  const auto shrink = [&](std::int64_t& size) {
    size = std::max<std::int64_t>(1, std::llround(static_cast<double>(size) * factor));
  };
  for (harness::ProductSizes& size : sizes) {
    shrink(size.m);
    shrink(size.n);
    shrink(size.k);
  }
  return sizes;
}

std::vector<std::pair<DType, harness::Scales>> MeasureFlags::types() const {
  std::vector<std::pair<DType, harness::Scales>> types;
  bool has_f8 = false;
  for (const std::string& name : dtypes) {
    const DType dtype = harness::parse_product_dtype(name);
    has_f8 = has_f8 || is_f8(dtype);
    if (!is_f8(dtype) || scales.empty()) types.emplace_back(dtype, harness::Scales::kNone);
    for (const std::string& each : scales) {
      if (is_f8(dtype)) types.emplace_back(dtype, harness::parse_scales(each));
    }
  }
  if (!has_f8 && fast_accum) bad_input("--fast-accum: need --dtype f8e4m3 or f8e5m2");
  if (!has_f8 && !scales.empty())
    bad_input(fmt::format("--scales {}: need --dtype f8e4m3 or f8e5m2", fmt::join(scales, ",")));
  return types;
}

std::vector<harness::Problem> MeasureFlags::problems(harness::Op op, int ranks, bool on_gpus) const {
  const bool gathers = op == harness::Op::kAllGatherMatmul;
  const std::vector<std::string> orders =
      !b_orders.empty() ? b_orders : std::vector<std::string>{preset.empty() ? "row" : "column"};
  const std::vector<std::pair<DType, harness::Scales>> types = this->types();
  std::vector<harness::Problem> problems;
  for (const harness::ProductSizes& size : sizes(gathers, on_gpus)) {
    for (const auto& [dtype, scaling] : types) {
      for (const std::string& order : orders) {
        harness::Problem problem;
        problem.op = op;
        problem.a = {size.m, gathers ? size.k : size.k * ranks};
        problem.n = {gathers ? size.n * ranks : size.n};
        problem.dtype = dtype;
        problem.scales = scaling;
        problem.fast_accum = fast_accum && is_f8(dtype);
        problem.ranks = ranks;
        problem.b_is_column_major = harness::parse_b_order(order);
        check_problem(problem);
        problems.push_back(problem);
      }
    }
  }
  return problems;
}

}  // namespace tandem::cli
