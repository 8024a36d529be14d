#include "bench_4bit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <tandem/backend/backend.hpp>
#include <tandem/base/time_text.hpp>
#include <tandem/gemm/matmul_4bit.hpp>
#include <tandem/gemm/mm.hpp>

#include "device/cpu/core_peaks.hpp"
#include "failure.hpp"
#include "harness/operands.hpp"
#include "harness/stopwatch.hpp"
#include "measure_flags.hpp"
#include "memory_need.hpp"
#include "row_file.hpp"

namespace tandem::cli {
namespace {

/// A product of a model, and how often a token needs it.
struct Linear {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t count = 1;
};

/// A model by its products, and what PyTorch's change that brought 4-bit products says of it.
struct Model {
  std::string_view name;
  std::vector<Linear> linears;
  double seed_prefill = 0;  ///< tokens a second
  double seed_decode = 0;
};

Model model_of(const std::string& name) {
  if (name == "7b") {  // 32 layers of Llama 2 7B, and its head
    return {
        "7b", {{4096, 4096, 4 * 32}, {11008, 4096, 2 * 32}, {4096, 11008, 32}, {32000, 4096, 1}}, 340, 40};
  }
  if (name == "2b") {  // 18 layers of Gemma 2B, and its head
    return {"2b",
            {{2048, 2048, 2 * 18},
             {256, 2048, 2 * 18},
             {16384, 2048, 2 * 18},
             {2048, 16384, 18},
             {256000, 2048, 1}},
            747,
            80};
  }
  bad_input(fmt::format("--preset '{}': need 7b or 2b for matmul_4bit", name));
}

struct Medians {
  double us = 0;
  double cpu_us = 0;
  Medians() = default;
  explicit Medians(const harness::CallTimes& times)
      : us(harness::median(times.us)), cpu_us(harness::median(times.cpu_us)) {}
};

/// One size in one process, with all that it needs.
class Product {
 public:
  Product(std::int64_t m, const Linear& linear, std::int64_t group, Stream& stream, const Peers& peers)
      : m_(m), n_(linear.n), k_(linear.k), group_(group == 0 ? linear.k : group), stream_(stream) {
    fill(input_, m_ * k_, 1);
    fill(weight_, n_ * k_, 2);
    out_.resize(static_cast<std::size_t>(m_ * n_));
    auto rounded = take_input(gemm::quantize_weight_4bit(view(weight_, n_, k_), group_), "--group-size");
    for (const auto& peer : peers)
      add_peer(*peer, {m_, n_, k_, group_, input_.data(), rounded.nibbles.data(), rounded.scales.data(),
                       out_.data()});
    const auto count = static_cast<std::int64_t>(rounded.scales.size());
    packed_.emplace(take(gemm::pack_4bit_weight(
        {.weight = TensorView::contiguous(rounded.nibbles.data(), {n_, k_ / 2}, DType::kU8),
         .scales = TensorView::contiguous(rounded.scales.data(), {count}, DType::kF32),
         .group_size = group_,
         .in_features = k_,
         .out_features = n_})));
  }

  /// Times of all variants in turn, in a new order each round.
  void measure(int warmup, int iterations) {
    check_peers();
    std::vector<std::function<void()>> variants = {[&] { multiply(); }, [&] { multiply_f32(); },
                                                   [&] { read_bytes(); }};
    for (const PeerTimes& peer : peers_) {
      if (peer.why_not.empty()) variants.emplace_back([&peer] { peer.product->run(); });
    }
    std::vector<harness::CallTimes> times(variants.size());
    for (int round = 0; round < warmup + iterations; ++round) {
      for (std::size_t i = 0; i < variants.size(); ++i) {
        const std::size_t at = (i + static_cast<std::size_t>(round)) % variants.size();
        if (round == warmup && i == 0) times.assign(variants.size(), {});
        times[at].time(variants[at]);
      }
    }
    fused_ = Medians(times[0]);
    f32_ = Medians(times[1]);
    read_ = Medians(times[2]);
    std::size_t next = 3;
    for (PeerTimes& peer : peers_) {
      if (peer.why_not.empty()) peer.times = Medians(times[next++]);
    }
  }

  void print_peers() const {
    for (const PeerTimes& peer : peers_) {
      fmt::print(
          "# {}: {}\n", peer.name,
          peer.why_not.empty()
              ? fmt::format(
                    "{}, {:.2f} of tandem's time, {:.2f} by processor time; its result differs by {:.4f}",
                    time_text(peer.times.us), peer.times.us / fused_.us, peer.times.cpu_us / fused_.cpu_us,
                    peer.difference)
              : "not measured: " + peer.why_not);
    }
  }

  [[nodiscard]] double us() const { return fused_.us; }
  [[nodiscard]] double f32_us() const { return f32_.us; }
  [[nodiscard]] double read_us() const { return read_.us; }
  /// What f32 takes of tandem's time with 4-bit weights, by processor time.
  [[nodiscard]] double cpu_ratio() const { return f32_.cpu_us / fused_.cpu_us; }
  [[nodiscard]] std::int64_t num_bytes() const { return packed_->num_bytes(); }
  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(m_) * static_cast<double>(n_) * static_cast<double>(k_);
  }
  [[nodiscard]] nlohmann::json row() const {
    nlohmann::json peers = nlohmann::json::object();
    for (const PeerTimes& peer : peers_) {
      if (peer.why_not.empty()) {
        peers[peer.name] = {{"t_us", peer.times.us},
                            {"t_cpu_us", peer.times.cpu_us},
                            {"times_tandem", peer.times.us / fused_.us},
                            {"times_tandem_cpu", peer.times.cpu_us / fused_.cpu_us},
                            {"difference", peer.difference},
                            {"library", peer.description}};
      } else {
        peers[peer.name] = {{"why_not", peer.why_not}};
      }
    }
    return {{"op", "matmul_4bit"},
            {"m", m_},
            {"n", n_},
            {"k", k_},
            {"group_size", group_},
            {"t_us", fused_.us},
            {"t_f32_us", f32_.us},
            {"t_read_us", read_.us},
            {"t_cpu_us", fused_.cpu_us},
            {"t_f32_cpu_us", f32_.cpu_us},
            {"t_read_cpu_us", read_.cpu_us},
            {"bytes", num_bytes()},
            {"gops", flops() / fused_.us / 1e3},
            {"peers", peers}};
  }

 private:
  /// Another library's product of the same operands.
  struct PeerTimes {
    std::string name;
    std::string description;
    std::unique_ptr<PeerProduct> product;
    std::string why_not;    ///< why it has no time
    double difference = 0;  ///< of its result from tandem's, by their norms
    Medians times;
  };

  void add_peer(Peer& peer, const PeerFourBitOperands& operands) {
    PeerTimes& added = peers_.emplace_back();
    added.name = peer.name();
    added.description = peer.description();
    try {
      peer.use_threads(1);
      added.product = peer.prepare(operands);
    } catch (const Failure& failure) {
      added.why_not = failure.what();
    }
  }
  /// Both round rows to int8, each by a rule of its own: their results are close, not equal.
  void check_peers() {
    constexpr double kMostDifference = 0.02;
    multiply();
    const std::vector<float> own = out_;
    for (PeerTimes& peer : peers_) {
      if (!peer.why_not.empty()) continue;
      std::fill(out_.begin(), out_.end(), std::numeric_limits<float>::quiet_NaN());
      peer.product->run();
      double squares = 0;
      double errors = 0;
      for (std::size_t i = 0; i < own.size(); ++i) {
        squares += static_cast<double>(own[i]) * own[i];
        errors += std::pow(static_cast<double>(out_[i]) - own[i], 2);
      }
      peer.difference = std::sqrt(errors / squares);
      if (!(peer.difference <= kMostDifference))
        peer.why_not = fmt::format("its result differs from tandem's by {}", peer.difference);
    }
  }

  static void fill(std::vector<float>& values, std::int64_t count, int seed) {
    values.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i)
      values[static_cast<std::size_t>(i)] = harness::generated_value(seed, i);
  }
  static TensorView view(std::vector<float>& values, std::int64_t rows, std::int64_t columns) {
    return TensorView::contiguous(values.data(), {rows, columns}, DType::kF32);
  }
  void multiply() {
    take(gemm::matmul_4bit({.input = view(input_, m_, k_), .out = view(out_, m_, n_)}, *packed_, stream_));
    take(stream_.synchronize());
  }
  void multiply_f32() {
    const TensorView b = view(weight_, n_, k_).movedim(0, 1);
    take(gemm::mm({.a = view(input_, m_, k_), .b = b, .out = view(out_, m_, n_), .bias = {}}, stream_));
    take(stream_.synchronize());
  }
  void read_bytes() {
    constexpr std::size_t kUnit = 512;  // what is behind the last one makes no difference
    const std::span<const std::byte> bytes = packed_->bytes();
    sink_ = tandem::cpu::sum_of_words(bytes.first(bytes.size() / kUnit * kUnit));
  }

  std::int64_t m_;
  std::int64_t n_;
  std::int64_t k_;
  std::int64_t group_;
  Stream& stream_;
  std::vector<float> input_;
  std::vector<float> weight_;
  std::vector<float> out_;
  std::optional<gemm::Packed4bitWeight> packed_;
  std::vector<PeerTimes> peers_;
  Medians fused_;
  Medians f32_;
  Medians read_;
  volatile std::uint64_t sink_ = 0;
};

class Bench {
 public:
  Bench(const FourBitBench& flags, const Invocation& invocation, const JobPlace& place)
      : flags_(flags),
        invocation_(invocation),
        place_(place),
        file_(flags.json),
        device_(take(open_device({DeviceKind::kCpu, 0}, invocation.config))),
        stream_(take(device_->create_stream())),
        peers_(load_peers(flags.peers, missing_)) {}

  int run() {
    check_memory();
    const auto plan = take(gemm::plan({.group_size = 32}, *device_));
    fmt::print("{}, {}; times are medians of {}, in turn\n", place_.heading, plan.implementation(),
               flags_.iterations);
    fmt::print("{:>6} {:>6} {:>6} {:>6} {:>10} {:>10} {:>8} {:>8} {:>8} {:>10} {:>8}\n", "m", "n", "k",
               "group", "4-bit", "f32", "f32/4bit", "by cpu", "GOP/s", "read", "of read");
    const std::vector<std::int64_t> groups =
        flags_.group_sizes.empty() ? std::vector<std::int64_t>{32} : flags_.group_sizes;
    for (const std::int64_t group : groups) {
      if (flags_.preset.empty()) {
        run_sizes(group);
      } else {
        run_model(model_of(flags_.preset), group);
      }
    }
    return kOk;
  }

 private:
  void check_memory() const {
    const auto check = [](const harness::ProductSizes& sizes) {
      check_memory_need("bench matmul_4bit", bytes_of_product(sizes, DType::kF32));
    };
    if (!flags_.preset.empty()) {
      for (const Linear& linear : model_of(flags_.preset).linears) check({kPrompt, linear.n, linear.k});
      return;
    }
    for (const std::int64_t m : flags_.m) {
      for (const std::int64_t n : flags_.n) {
        for (const std::int64_t k : flags_.k) {
          check_sizes({m, n, k});
          check({m, n, k});
        }
      }
    }
  }

  Product measured(std::int64_t m, const Linear& linear, std::int64_t group) {
    Product product(m, linear, group, *stream_, peers_);
    product.measure(flags_.warmup, flags_.iterations);
    nlohmann::json row = product.row();
    for (const auto& [name, why_not] : missing_) row["peers"][name] = {{"why_not", why_not}};
    fmt::print("{:>6} {:>6} {:>6} {:>6} {:>10} {:>10} {:>8.2f} {:>8.2f} {:>8.0f} {:>10} {:>8.2f}\n", m,
               linear.n, linear.k, row.at("group_size").get<std::int64_t>(), time_text(product.us()),
               time_text(product.f32_us()), product.f32_us() / product.us(), product.cpu_ratio(),
               product.flops() / product.us() / 1e3, time_text(product.read_us()),
               product.read_us() / product.us());
    product.print_peers();
    std::fflush(stdout);
    add_circumstances(row, invocation_, place_);
    file_.append(row);
    return product;
  }

  void run_sizes(std::int64_t group) {
    if (flags_.m.empty() || flags_.n.empty() || flags_.k.empty())
      bad_input("bench matmul_4bit needs --m, --n and --k, or --preset 7b or 2b");
    for (const std::int64_t m : flags_.m) {
      for (const std::int64_t n : flags_.n) {
        for (const std::int64_t k : flags_.k) (void)measured(m, {n, k}, group);
      }
    }
  }

  /// Tokens a second of all products of a model; attention and the rest are not in it.
  void run_model(const Model& model, std::int64_t group) {
    double prompt_us = 0;
    double token_us = 0;
    double read_us = 0;
    for (const Linear& linear : model.linears) {
      const auto count = static_cast<double>(linear.count);
      prompt_us += count * measured(kPrompt, linear, group).us();
      const Product one = measured(1, linear, group);
      token_us += count * one.us();
      read_us += count * one.read_us();
    }
    const double prefill = kPrompt * 1e6 / prompt_us;
    const double decode = 1e6 / token_us;
    const double roof = 1e6 / read_us;
    fmt::print(
        "# {}: prefill {:.1f} tokens/s ({} at once), decode {:.2f} tokens/s, {:.2f} if only reading; the "
        "change "
        "that brought 4-bit products to PyTorch names {} and {} for another machine\n",
        model.name, prefill, kPrompt, decode, roof, model.seed_prefill, model.seed_decode);
    nlohmann::json row = {{"op", "matmul_4bit"},
                          {"preset", model.name},
                          {"group_size", group},
                          {"prefill_tokens_s", prefill},
                          {"decode_tokens_s", decode},
                          {"read_tokens_s", roof},
                          {"seed_prefill", model.seed_prefill},
                          {"seed_decode", model.seed_decode}};
    add_circumstances(row, invocation_, place_);
    file_.append(row);
  }

  static constexpr std::int64_t kPrompt = 128;  ///< tokens
  const FourBitBench& flags_;
  const Invocation& invocation_;
  const JobPlace& place_;
  RowFile file_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  MissingPeers missing_;  ///< before peers_, which fills it
  Peers peers_;
};

}  // namespace

int bench_4bit(const FourBitBench& flags, const Invocation& invocation, const JobPlace& place) {
  return Bench(flags, invocation, place).run();
}

}  // namespace tandem::cli
