#include "bench_products.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <tandem/backend/backend.hpp>
#include <tandem/base/convert.hpp>
#include <tandem/base/shard.hpp>
#include <tandem/base/time_text.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/packed_b.hpp>
#include <thread>

#include "device/cpu/core_peaks.hpp"
#include "failure.hpp"
#include "harness/operands.hpp"
#include "harness/reference.hpp"
#include "harness/stopwatch.hpp"
#include "memory_need.hpp"
#include "pinned.hpp"
#include "row_file.hpp"
#include "timing.hpp"

namespace tandem::cli {
namespace {

/// The operands of one problem, which all libraries read, and a result, which each of them writes.
class ProductData {
 public:
  ProductData(const harness::Problem& problem, Device& device)
      : problem_(problem),
        m_(problem.a[0]),
        n_(problem.n[0]),
        k_(problem.a[1]),
        a_(take(device.allocate_tensor({m_, k_}, problem.dtype))),
        b_(take(
            device.allocate_tensor(problem.b_is_column_major ? Dims{n_, k_} : Dims{k_, n_}, problem.dtype))),
        out_(take(device.allocate_tensor({m_, n_}, problem.dtype))) {
    harness::generate({.seed = 1, .sizes = {m_, k_}}, a());
    harness::generate({.seed = 2, .sizes = {k_, n_}}, b());
  }

  [[nodiscard]] const harness::Problem& problem() const { return problem_; }
  [[nodiscard]] const TensorView& a() const { return a_.view(); }
  [[nodiscard]] TensorView b() const {
    return problem_.b_is_column_major ? b_.view().movedim(0, 1) : b_.view();
  }
  [[nodiscard]] const TensorView& out() const { return out_.view(); }
  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(k_);
  }
  [[nodiscard]] PeerOperands for_peer() const {
    return {problem_.dtype, m_, n_, k_, problem_.b_is_column_major, a().data, b_.view().data, out().data};
  }

  void poison() const {
    std::memset(out().data, 0xff, static_cast<std::size_t>(out().size_bytes()));  // NaN in each of the types
  }
  /// Looks at samples of the result, of the last row and the last column too. Says which one is wrong; empty
  /// where none is.
  [[nodiscard]] std::string wrong_sample() const {
    constexpr std::int64_t kSamples = 61;
    const auto at = [](std::int64_t i, std::int64_t size) {
      return (size * (i + 1) + kSamples - 1) / kSamples - 1;
    };
    for (std::int64_t i = 0; i < kSamples; ++i) {
      const std::int64_t row = at(i, m_);
      const std::int64_t column = at(i * 7 % kSamples, n_);
      std::vector<double> of_a(static_cast<std::size_t>(k_));
      std::vector<double> of_b(static_cast<std::size_t>(k_));
      const TensorView a_row = a().narrow(0, row, 1);
      const TensorView b_column = b().narrow(1, column, 1);
      for (std::int64_t k = 0; k < k_; ++k) {
        of_a[static_cast<std::size_t>(k)] = element_as_f64(a_row, k);
        of_b[static_cast<std::size_t>(k)] = element_as_f64(b_column, k);
      }
      const harness::Expected expected = expect(problem_, of_a, of_b, 0);
      const double got = element_as_f64(out(), row * n_ + column);
      if (!is_right(got, expected)) {
        return fmt::format("out[{}, {}]: got {}, need {} +- {}", row, column, got, expected.value,
                           expected.tolerance);
      }
    }
    return {};
  }

 private:
  harness::Problem problem_;
  std::int64_t m_;
  std::int64_t n_;
  std::int64_t k_;
  Tensor a_;
  Tensor b_;
  Tensor out_;
};

/// tandem's product on some cores: each multiplies by as many columns of b, on a stream of its own. b is
/// packed beforehand, or in each call.
class OwnProduct {
 public:
  OwnProduct(const ProductData& data, Device& device, const std::vector<int>& cores, bool is_packed) {
    for (std::size_t i = 0; i < cores.size(); ++i) {
      const Shard columns = shard_of(data.out().size(1), static_cast<int>(cores.size()), static_cast<int>(i));
      if (columns.size == 0) continue;
      const Pinned here({cores[i]});  // the stream's thread stays there
      Part& part = parts_.emplace_back();
      part.stream = take(device.create_stream());
      part.args = {.a = data.a(),
                   .b = data.b().narrow(1, columns.offset, columns.size),
                   .out = data.out().narrow(1, columns.offset, columns.size),
                   .bias = {}};
      if (!is_packed) continue;
      part.b = take(gemm::pack_b(part.args.b, device));
      part.args.b = {};
    }
  }
  void run() const {
    for (const Part& part : parts_)
      take(part.b ? mm(part.args, *part.b, *part.stream) : mm(part.args, *part.stream));
    for (const Part& part : parts_) take(part.stream->synchronize());
  }

 private:
  struct Part {
    gemm::MmArgs args;
    std::optional<gemm::PackedB> b;
    std::unique_ptr<Stream> stream;
  };
  std::vector<Part> parts_;
};

/// What the cores reach together in a burst of an instruction; 0 where they lack it.
double peak_of(std::string_view name, const std::vector<int>& cores) {
  constexpr int kBursts = 16;
  const auto probes = tandem::cpu::peak_probes();
  const auto probe = std::find_if(probes.begin(), probes.end(), [&](const tandem::cpu::PeakProbe& each) {
    return each.name == name && each.why_not.empty();
  });
  if (probe == probes.end()) return 0;
  std::vector<double> gops(cores.size());
  run_at_once(cores, [&](std::size_t i) {
    for (int burst = 0; burst < kBursts; ++burst) gops[i] = std::max(gops[i], burst_gops(*probe));
  });
  return std::accumulate(gops.begin(), gops.end(), 0.0);
}

struct Contender {
  std::string name;
  std::string description;
  std::string why_not;  ///< why it has no times
  std::function<void()> run;
  harness::CallTimes times;
};

class ProductsRun {
 public:
  ProductsRun(const ProductsBench& flags, const Invocation& invocation, const JobPlace& place)
      : flags_(flags),
        invocation_(invocation),
        place_(place),
        file_(flags.json),
        device_(take(open_device({DeviceKind::kCpu, 0}, invocation.config))) {}

  int run() {
    fmt::print("# tandem bench mm --peers, {}, {}; medians of {}, in turns\n", date_utc(),
               invocation_.machine.cpu_model, flags_.iterations);
    peers_ = load_peers(flags_.peers, missing_);
    const std::vector<int> cores = allowed_cores();
    fmt::print("#{:>6} {:>6} {:>6} {:>5} {:>6} {:>5} {:>14} {:>9} {:>8} {:>7} {:>7} {:>8} {:>7}\n", "m", "n",
               "k", "dtype", "b", "cores", "who", "time", "GFLOP/s", "of peak", "by cpu", "/tandem",
               "by cpu");
    for (const harness::Problem& problem : flags_.problems) {
      measure(problem, {cores.back()});
      if (flags_.all_cores && cores.size() > 1) measure(problem, cores);
    }
    return kOk;
  }

 private:
  /// One peer's part in a row; without times where it refuses or errs.
  static Contender contender_of(Peer& peer, const ProductData& data, int threads,
                                std::vector<std::unique_ptr<PeerProduct>>& products) {
    Contender contender{peer.name(), peer.description(), {}, {}, {}};
    try {
      peer.use_threads(threads);
      PeerProduct& product = *products.emplace_back(peer.prepare(data.for_peer()));
      data.poison();
      product.run();
      contender.why_not = data.wrong_sample();
      contender.run = [&peer, &product, threads] {
        peer.use_threads(threads);
        product.run();
      };
    } catch (const Failure& failure) {
      contender.why_not = failure.what();
    }
    return contender;
  }

  void measure(const harness::Problem& problem, const std::vector<int>& cores) {
    const Pinned here(cores);
    const ProductData data(problem, *device_);
    const OwnProduct own(data, *device_, cores, false);
    const OwnProduct packed(data, *device_, cores, true);
    std::vector<std::unique_ptr<PeerProduct>> products;
    std::vector<Contender> contenders{{"tandem", {}, {}, [&] { own.run(); }, {}},
                                      {"tandem_packed", {}, {}, [&] { packed.run(); }, {}}};
    for (const Contender& each : contenders) check_own(each, data);
    for (const auto& peer : peers_)
      contenders.push_back(contender_of(*peer, data, static_cast<int>(cores.size()), products));
    double fma = 0;
    double dot = 0;
    for (int round = -flags_.warmup; round < flags_.iterations; ++round) {
      fma = std::max(fma, peak_of("fma_f32", cores));
      dot = std::max(dot, peak_of("dot_bf16", cores));
      for (std::size_t i = 0; i < contenders.size(); ++i)
        time_once(contenders[(i + static_cast<std::size_t>(round + flags_.warmup)) % contenders.size()],
                  cores, round);
    }
    report(data, cores, contenders, fma, dot);
  }

  static void check_own(const Contender& own, const ProductData& data) {
    data.poison();
    own.run();
    const std::string wrong = data.wrong_sample();
    if (wrong.empty()) return;
    throw Failure(kFailed, Error(ErrorCode::kNumeric,
                                 fmt::format("bench mm: wrong result of {}: {}", own.name, wrong)));
  }

  static void time_once(Contender& contender, const std::vector<int>& cores, int round) {
    // So long others' idle threads keep looking for work, and so keep a core from the next contender.
    constexpr std::chrono::milliseconds kIdleThreadsSleep{50};
    if (!contender.why_not.empty()) return;
    if (cores.size() > 1) std::this_thread::sleep_for(kIdleThreadsSleep);
    harness::CallTimes warmup;
    (round < 0 ? warmup : contender.times).time(contender.run);
  }

  /// Times of one contender beside tandem's. Processor time is that of one thread's work on one core only:
  /// threads that wait for others use it too.
  static nlohmann::json figures_of(const Contender& contender, const harness::CallTimes& own, double flops,
                                   double peak, bool is_one_core) {
    const double us = harness::median(contender.times.us);
    const double cpu_us = harness::median(contender.times.cpu_us);
    const auto gflops = [&](double took) { return flops / took * 1e-3; };
    nlohmann::json figures = {{"t_us", us},
                              {"gflops", gflops(us)},
                              {"share_of_peak", gflops(us) / peak},
                              {"times_tandem", us / harness::median(own.us)},
                              {"t_cpu_us", nullptr},
                              {"share_of_peak_cpu", nullptr},
                              {"times_tandem_cpu", nullptr}};
    if (!is_one_core) return figures;
    figures["t_cpu_us"] = cpu_us;
    figures["share_of_peak_cpu"] = gflops(cpu_us) / peak;
    figures["times_tandem_cpu"] = cpu_us / harness::median(own.cpu_us);
    return figures;
  }

  static void print_line(const std::string& begin, const nlohmann::json& figures) {
    const auto figure = [&](const char* key) {
      return figures.at(key).is_null() ? std::string("-")
                                       : fmt::format("{:.3f}", figures.at(key).get<double>());
    };
    fmt::print("{} {:>9} {:>8.1f} {:>7} {:>7} {:>8} {:>7}\n", begin,
               time_text(figures.at("t_us").get<double>()), figures.at("gflops").get<double>(),
               figure("share_of_peak"), figure("share_of_peak_cpu"), figure("times_tandem"),
               figure("times_tandem_cpu"));
  }

  void report(const ProductData& data, const std::vector<int>& cores,
              const std::vector<Contender>& contenders, double fma, double dot) const {
    const harness::Problem& problem = data.problem();
    const bool by_dot = problem.dtype == DType::kBF16 && dot > fma;
    const double peak = by_dot ? dot : fma;
    const std::string order = problem.b_is_column_major ? "column" : "row";
    nlohmann::json row = {{"op", "mm"},
                          {"m", problem.a[0]},
                          {"n", problem.n[0]},
                          {"k", problem.a[1]},
                          {"dtype", to_string(problem.dtype)},
                          {"b_order", order},
                          {"on_cores", cores},
                          {"peak", by_dot ? "dot_bf16" : "fma_f32"},
                          {"peak_gflops", peak},
                          {"fma_f32_gflops", fma},
                          {"dot_bf16_gflops", dot},
                          {"peers", nlohmann::json::object()}};
    for (const auto& [name, why_not] : missing_) row["peers"][name] = {{"why_not", why_not}};
    for (const Contender& contender : contenders) {
      const std::string begin =
          fmt::format(" {:>6} {:>6} {:>6} {:>5} {:>6} {:>5} {:>14}", problem.a[0], problem.n[0], problem.a[1],
                      to_string(problem.dtype), order, cores.size(), contender.name);
      if (!contender.why_not.empty()) {
        fmt::print("{} not measured: {}\n", begin, contender.why_not);
        row["peers"][contender.name] = {{"why_not", contender.why_not}};
        continue;
      }
      nlohmann::json figures =
          figures_of(contender, contenders.front().times, data.flops(), peak, cores.size() == 1);
      print_line(begin, figures);
      if (&contender == &contenders.front()) {
        row.update(figures);
      } else {
        figures["library"] = contender.description;
        row["peers"][contender.name] = figures;
      }
    }
    std::fflush(stdout);
    add_circumstances(row, invocation_, place_);
    file_.append(row);
  }

  const ProductsBench& flags_;
  const Invocation& invocation_;
  const JobPlace& place_;
  RowFile file_;
  std::unique_ptr<Device> device_;
  Peers peers_;
  MissingPeers missing_;
};

}  // namespace

int bench_products(const ProductsBench& flags, const Invocation& invocation, const JobPlace& place) {
  for (const harness::Problem& problem : flags.problems)
    check_memory_need("bench mm --peers", bytes_of_product(product_of_a_rank(problem), problem.dtype));
  return ProductsRun(flags, invocation, place).run();
}

}  // namespace tandem::cli
