#include "run_4bit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tandem/backend/backend.hpp>
#include <tandem/base/convert.hpp>
#include <tandem/gemm/matmul_4bit.hpp>
#include <vector>

#include "failure.hpp"
#include "memory_need.hpp"
#include "shell_words.hpp"
#include "tensor_file.hpp"

namespace tandem::cli {
namespace {

/// A floating tensor of a file as contiguous f32 values, and its type there.
struct Values {
  Dims sizes;
  std::vector<float> values;
  DType dtype = DType::kF32;

  [[nodiscard]] TensorView view() { return TensorView::contiguous(values.data(), sizes, DType::kF32); }
};

Values read(const std::string& file, const std::string& flag, bool is_turned = false) {
  const Tensor tensor = read_tensor_file(file, flag);
  TensorView view = tensor.view();
  if (!is_floating(view.dtype)) {
    bad_input(fmt::format("{} {}: its type {} is no floating type; store it as f16, bf16, f32 or f64", flag,
                          file, to_string(view.dtype)));
  }
  if (is_turned) view = view.movedim(0, 1);
  Values made{view.sizes, std::vector<float>(static_cast<std::size_t>(view.numel())), view.dtype};
  take(convert(view, made.view()));
  return made;
}

/// What is multiplied: a [..., k], the weight [n, k], and a bias [n].
struct Operands {
  Values a;
  Values weight;
  std::optional<Values> bias;

  [[nodiscard]] std::int64_t k() const { return weight.sizes[1]; }
  [[nodiscard]] std::int64_t n() const { return weight.sizes[0]; }
  [[nodiscard]] std::int64_t m() const {
    return k() == 0 ? 0 : static_cast<std::int64_t>(a.values.size()) / k();
  }
};

Operands read_operands(const FourBitRun& flags) {
  if (flags.a.empty() || flags.b.empty() || flags.out.empty())
    bad_input("run matmul_4bit needs --a FILE, --b FILE and --out FILE");
  const Tensor b = read_tensor_file(flags.b, "--b");
  if (b.view().dim() != 2) {
    bad_input(fmt::format("--b {} has sizes {}: need two dimensions {}", flags.b, to_string(b.view().sizes),
                          flags.transpose_b ? "[n, k], as --transpose-b says" : "[k, n]"));
  }
  Dims result = read_tensor_file(flags.a, "--a").sizes();
  const std::int64_t num_bytes =
      sum_of_bytes({bytes_of(result, DType::kF32), bytes_of(b.sizes(), DType::kF32)});
  if (!result.empty()) result[result.size() - 1] = b.view().size(flags.transpose_b ? 0 : 1);
  check_memory_need("run matmul_4bit", sum_of_bytes({num_bytes, bytes_of(result, DType::kF32)}));
  Operands operands{read(flags.a, "--a"), read(flags.b, "--b", !flags.transpose_b), std::nullopt};
  const Dims& a = operands.a.sizes;
  if (a.size() < 1 || a.back() != operands.k()) {
    const bool fits_turned = a.size() > 0 && a.back() == operands.n();
    bad_input(fmt::format("--b {} has {} rows{}, but --a {} has sizes {}: they must be its last size{}",
                          flags.b, operands.k(), flags.transpose_b ? " when it is transposed" : "", flags.a,
                          to_string(a),
                          !fits_turned        ? ""
                          : flags.transpose_b ? "; it fits as it is: leave out --transpose-b"
                                              : "; it fits as [n, k]: pass --transpose-b"));
  }
  if (!flags.bias.empty()) {
    operands.bias = read(flags.bias, "--bias");
    if (operands.bias->sizes != Dims{operands.n()}) {
      bad_input(fmt::format("--bias {} has sizes {}: need [{}], the columns of --b {}", flags.bias,
                            to_string(operands.bias->sizes), operands.n(), flags.b));
    }
  }
  return operands;
}

/// ||out - product|| / ||product|| in f64, with the weights as they were and as they are stored.
struct Errors {
  double of_stored = 0;
  double of_original = 0;
  std::int64_t columns = 0;  ///< that were compared
};

class Comparison {
 public:
  Comparison(const Operands& operands, const gemm::Weight4bit& weight, std::int64_t group,
             const std::vector<float>& out)
      : operands_(operands), weight_(weight), group_(group), out_(out) {}

  Errors run() {
    constexpr std::int64_t kMost = std::int64_t{1} << 29;  // products that take about a second
    const std::int64_t work = std::max<std::int64_t>(1, operands_.m() * operands_.k());
    const std::int64_t columns = std::clamp<std::int64_t>(kMost / work, 1, operands_.n());
    const std::int64_t step = std::max<std::int64_t>(1, operands_.n() / columns);
    Errors errors;
    for (std::int64_t column = 0; column < operands_.n(); column += step, ++errors.columns) add(column);
    errors.of_stored = ratio(stored_);
    errors.of_original = ratio(original_);
    return errors;
  }

 private:
  struct Sums {
    double error = 0;
    double whole = 0;
  };
  static double ratio(const Sums& sums) { return sums.whole == 0 ? 0 : std::sqrt(sums.error / sums.whole); }

  void add(std::int64_t column) {
    const std::int64_t k = operands_.k();
    std::vector<double> stored;
    for (std::int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<std::size_t>(column * k + i);
      const int byte = weight_.nibbles[at / 2];
      const int nibble = at % 2 == 0 ? byte & 15 : byte >> 4;
      stored.push_back((nibble - 8) *
                       static_cast<double>(weight_.scales[at / static_cast<std::size_t>(group_)]));
    }
    const double bias = operands_.bias ? operands_.bias->values[static_cast<std::size_t>(column)] : 0;
    const float* const original = operands_.weight.values.data() + column * k;
    for (std::int64_t row = 0; row < operands_.m(); ++row) {
      const float* const a = operands_.a.values.data() + row * k;
      double of_stored = bias;
      double of_original = bias;
      for (std::int64_t i = 0; i < k; ++i) {
        of_stored += static_cast<double>(a[i]) * stored[static_cast<std::size_t>(i)];
        of_original += static_cast<double>(a[i]) * static_cast<double>(original[i]);
      }
      const auto got = static_cast<double>(out_[static_cast<std::size_t>(row * operands_.n() + column)]);
      note(stored_, got, of_stored);
      note(original_, got, of_original);
    }
  }

  static void note(Sums& sums, double got, double want) {
    sums.error += (got - want) * (got - want);
    sums.whole += want * want;
  }

  const Operands& operands_;
  const gemm::Weight4bit& weight_;
  std::int64_t group_;
  const std::vector<float>& out_;
  Sums stored_;
  Sums original_;
};

gemm::Packed4bitWeight pack(Operands& operands, gemm::Weight4bit& weight, std::int64_t group) {
  const std::int64_t n = operands.n();
  const std::int64_t k = operands.k();
  gemm::Pack4bitArgs args{
      .weight = TensorView::contiguous(weight.nibbles.data(), {n, k / 2}, DType::kU8),
      .scales = TensorView::contiguous(weight.scales.data(),
                                       {static_cast<std::int64_t>(weight.scales.size())}, DType::kF32),
      .group_size = group,
      .in_features = k,
      .out_features = n};
  if (operands.bias) args.bias = operands.bias->view();
  return take(gemm::pack_4bit_weight(args));
}

void print_again(const FourBitRun& flags, std::int64_t group) {
  std::vector<std::string> again{"tandem", "run", "matmul_4bit", "--a", flags.a, "--b", flags.b};
  if (flags.transpose_b) again.emplace_back("--transpose-b");
  if (!flags.bias.empty()) again.insert(again.end(), {"--bias", flags.bias});
  again.insert(again.end(), {"--group-size", std::to_string(group), "--out", flags.out});
  fmt::print("again: {}\n", shell_words(again));
}

}  // namespace

int run_4bit(const FourBitRun& flags, const Invocation& invocation) {
  Operands operands = read_operands(flags);
  claim_tensor_file(flags.out);
  Dims sizes = operands.a.sizes;
  sizes[sizes.size() - 1] = operands.n();
  const std::int64_t group = flags.group_size.value_or(32);
  gemm::Weight4bit weight =
      take_input(gemm::quantize_weight_4bit(operands.weight.view(), group), "--b " + flags.b);
  const gemm::Packed4bitWeight packed = pack(operands, weight, group);
  const auto device = take(open_device({DeviceKind::kCpu, 0}, invocation.config));
  const auto stream = take(device->create_stream());
  std::vector<float> out(static_cast<std::size_t>(numel(sizes)));
  const TensorView result = TensorView::contiguous(out.data(), sizes, DType::kF32);
  const gemm::Matmul4bitArgs args{.input = operands.a.view(), .out = result};
  const auto plan = take(gemm::plan(take(gemm::problem_of(args, packed)), *device));
  fmt::print("{}: {} x {} weights in groups of {}, {} bytes\n", plan.implementation(), operands.n(),
             operands.k(), group, packed.num_bytes());

  take(gemm::run(plan, args, packed, *stream));
  take(stream->synchronize());
  write_tensor_file(flags.out, result);
  fmt::print("wrote {}: f32 {}\n", flags.out, to_string(sizes));
  const Errors errors = Comparison(operands, weight, group, out).run();
  fmt::print("error against float64: {:.4f} with the 4-bit weights, {:.4f} with those of {}{}\n",
             errors.of_stored, errors.of_original, flags.b,
             errors.columns < operands.n() ? fmt::format(" ({} columns)", errors.columns) : "");
  print_again(flags, group);
  return kOk;
}

}  // namespace tandem::cli
