#include <tandem/gemm/matmul_4bit.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <new>

#include "base/convert_elements.hpp"
#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "base/with_last.hpp"
#include "gemm/operand_checks.hpp"
#include "gemm/packed_weight.hpp"

namespace tandem::gemm {
namespace {

constexpr std::string_view kQuantize = "quantize_weight_4bit";
constexpr std::string_view kPack = "pack_4bit_weight";
constexpr std::string_view kMultiply = kMatmul4bit.who;
constexpr std::int64_t kLeastGroup = 32;

Result<void> check_group(std::string_view who, std::int64_t k, std::int64_t group) {
  if (k < 0 || k % kLeastGroup != 0) {
    return failf(ErrorCode::kInvalidArgument, "{}: in_features is {}, need a multiple of {}: pad with zeros",
                 who, k, kLeastGroup);
  }
  if (group > PackedWeight::kMostGroup) {
    return failf(ErrorCode::kInvalidArgument, "{}: group_size is {}, need at most {}", who, group,
                 PackedWeight::kMostGroup);
  }
  const bool is_part = group > 0 && group % kLeastGroup == 0 && k % group == 0;
  if (is_part || (k == 0 && group >= 0)) return {};
  return failf(ErrorCode::kInvalidArgument,
               "{}: group_size is {}, need {} (in_features), or a multiple of {} that divides it", who, group,
               k, kLeastGroup);
}

Result<void> check_on_cpu(std::string_view who, std::string_view name, const TensorView& view) {
  if (view.device.kind == DeviceKind::kCpu) return {};
  return failf(ErrorCode::kUnsupported, "{}: {} is on {}, need a CPU: GPUs have no 4-bit products here", who,
               name, to_string(view.device));
}

/// All elements, row-major, as f32.
std::vector<float> floats_of(const TensorView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.numel()));
  convert_elements(view, TensorView::contiguous(values.data(), view.sizes, DType::kF32));
  return values;
}

std::vector<std::uint8_t> bytes_of(const TensorView& view) {
  std::vector<std::uint8_t> values(static_cast<std::size_t>(view.numel()));
  convert_elements(view, TensorView::contiguous(values.data(), view.sizes, DType::kU8));
  return values;
}

/// Whether a tensor has one of these types, and so many elements of each group: by rows, by groups, or flat.
Result<void> check_elements(std::string_view name, const TensorView& view, std::initializer_list<DType> types,
                            const Pack4bitArgs& args, std::int64_t each_group) {
  const std::int64_t n = args.out_features;
  const std::int64_t groups = args.in_features == 0 ? 0 : args.in_features / args.group_size;
  const Dims shapes[] = {{n, groups * each_group}, {n * groups, each_group}, {n * groups * each_group}};
  const bool has_type = std::find(types.begin(), types.end(), view.dtype) != types.end();
  if (has_type && std::find(std::begin(shapes), std::end(shapes), view.sizes) != std::end(shapes)) return {};
  std::string need;
  for (const DType type : types) need += fmt::format("{}{}", need.empty() ? "" : " or ", to_string(type));
  need += fmt::format(" {}", to_string(shapes[0]));
  if (shapes[1] != shapes[0]) need += fmt::format(" or {}", to_string(shapes[1]));
  return failf(ErrorCode::kInvalidArgument, "{}: {} is {} {}, need {} or {}", kPack, name,
               to_string(view.dtype), to_string(view.sizes), need, to_string(shapes[2]));
}

Result<void> check_operands(const Pack4bitArgs& args) {
  const std::int64_t n = args.out_features;
  const std::int64_t k = args.in_features;
  if (n < 0) return failf(ErrorCode::kInvalidArgument, "{}: out_features is {}", kPack, n);
  TANDEM_TRY(check_group(kPack, k, args.group_size));
  TANDEM_TRY(check_on_cpu(kPack, "weight", args.weight));
  TANDEM_TRY(check_on_cpu(kPack, "scales", args.scales));
  TANDEM_TRY(check_elements("weight", args.weight, {DType::kU8}, args, args.group_size / 2));
  TANDEM_TRY(check_elements("scales", args.scales, {DType::kF32, DType::kBF16}, args, 1));
  if (!args.bias) return {};
  TANDEM_TRY(check_on_cpu(kPack, "bias", *args.bias));
  if (args.bias->dtype != DType::kF32 || args.bias->dim() != 1 || args.bias->size(0) != n) {
    return failf(ErrorCode::kInvalidArgument, "{}: bias is {} {}, need f32 [{}]", kPack,
                 to_string(args.bias->dtype), to_string(args.bias->sizes), n);
  }
  return {};
}

/// Puts one row of the weight where the panels have it.
class RowPacker {
 public:
  RowPacker(PackedWeight& weight, std::int64_t row)
      : weight_(weight),
        panel_(weight.panel(row / PackedWeight::kPanel)),
        column_(row % PackedWeight::kPanel) {}

  void pack(const std::uint8_t* nibbles, const float* scales) {
    for (std::int64_t j = 0; j < weight_.num_groups(); ++j) {
      std::byte* const group = panel_ + j * weight_.group_bytes();
      const std::int32_t sum = pack_nibbles(nibbles + j * weight_.group() / 2, group);
      std::byte* const of_scales = group + weight_.nibble_bytes();
      std::memcpy(of_scales + column_ * 4, scales + j, 4);
      std::byte* const sums = of_scales + PackedWeight::kPanel * 4;
      if (weight_.has_small_groups()) {
        const auto small = static_cast<std::int16_t>(sum);
        std::memcpy(sums + column_ * 2, &small, 2);
      } else {
        std::memcpy(sums + column_ * 4, &sum, 4);
      }
    }
  }

 private:
  /// Returns the sum of (q - 8).
  std::int32_t pack_nibbles(const std::uint8_t* nibbles, std::byte* group) const {
    std::int32_t sum = 0;
    for (std::int64_t step = 0; step < weight_.group() / 8; ++step) {
      std::byte* const to = group + step * PackedWeight::kStepBytes + column_ * 4;
      const auto at = [&](std::int64_t k) {  // of the eight
        const std::uint8_t byte = nibbles[step * 4 + k / 2];
        return static_cast<std::uint8_t>(k % 2 == 0 ? byte & 15 : byte >> 4);
      };
      for (std::int64_t k = 0; k < 4; ++k) {
        to[k] = static_cast<std::byte>(at(k) | (at(k + 4) << 4));
        sum += at(k) + at(k + 4) - 16;
      }
    }
    return sum;
  }

  PackedWeight& weight_;
  std::byte* panel_;
  std::int64_t column_;
};

ProductArgs product_args(const Matmul4bitArgs& args, const Packed4bitWeight& packed) {
  return {.a = &args.input, .packed = &packed.packed(), .out = &args.out};
}

}  // namespace

void PackedWeight::Free::operator()(std::byte* memory) const {
  std::free(memory);
}

Result<PackedWeight> PackedWeight::make(std::int64_t n, std::int64_t k, std::int64_t group) {
  PackedWeight weight;
  weight.n_ = n;
  weight.k_ = k;
  weight.group_ = k == 0 ? kLeastGroup : group;
  constexpr std::size_t kAlignment = 64;
  const auto num_bytes = static_cast<std::size_t>(weight.num_panels() * weight.panel_bytes());
  if (num_bytes == 0) return weight;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kAlignment, num_bytes));
  if (memory == nullptr) {
    return failf(ErrorCode::kOutOfMemory, "{}: no {} bytes for a weight of {} x {}", kPack, num_bytes, n, k);
  }
  weight.memory_.reset(memory);
  std::memset(memory, 0, num_bytes);
  return weight;
}

std::int64_t Packed4bitWeight::in_features() const {
  return packed_->k();
}
std::int64_t Packed4bitWeight::out_features() const {
  return packed_->n();
}
std::int64_t Packed4bitWeight::group_size() const {
  return packed_->group();
}
std::int64_t Packed4bitWeight::num_bytes() const {
  return packed_->num_bytes();
}

std::span<const std::byte> Packed4bitWeight::bytes() const {
  return {packed_->panel(0), static_cast<std::size_t>(packed_->num_panels() * packed_->panel_bytes())};
}

Result<Weight4bit> quantize_weight_4bit(const TensorView& weight, std::int64_t group_size) {
  if (weight.dtype != DType::kF32 || weight.dim() != 2) {
    return failf(ErrorCode::kInvalidArgument, "{}: weight is {} {}, need f32 [n, k]", kQuantize,
                 to_string(weight.dtype), to_string(weight.sizes));
  }
  const std::int64_t k = weight.size(1);
  TANDEM_TRY(check_group(kQuantize, k, group_size));
  TANDEM_TRY(check_on_cpu(kQuantize, "weight", weight));
  const std::vector<float> values = floats_of(weight);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return failf(ErrorCode::kNumeric, "{}: weight[{}, {}] is {}, need a finite number", kQuantize,
                 static_cast<std::int64_t>(i) / k, static_cast<std::int64_t>(i) % k, values[i]);
  }
  Weight4bit made;
  made.nibbles.resize(values.size() / 2);
  for (std::size_t begin = 0; begin < values.size(); begin += static_cast<std::size_t>(group_size)) {
    const std::span group(values.data() + begin, static_cast<std::size_t>(group_size));
    float largest = 0;
    for (const float value : group) largest = std::max(largest, std::fabs(value));
    const float scale = std::max(largest / 7.0F, std::numeric_limits<float>::min());
    made.scales.push_back(scale);
    const auto rounded = [&](std::size_t i) {
      return static_cast<std::uint8_t>(std::min(group[i] / scale + 8.5F, 15.0F));
    };
    for (std::size_t i = 0; i < group.size(); i += 2)
      made.nibbles[(begin + i) / 2] = static_cast<std::uint8_t>(rounded(i) | (rounded(i + 1) << 4));
  }
  return made;
}

Result<Packed4bitWeight> pack_4bit_weight(const Pack4bitArgs& args) {
  TANDEM_TRY(check_operands(args));
  const std::int64_t n = args.out_features;
  TANDEM_ASSIGN(PackedWeight made, PackedWeight::make(n, args.in_features, args.group_size));
  auto weight = std::make_shared<PackedWeight>(std::move(made));
  const std::vector<std::uint8_t> nibbles = bytes_of(args.weight);
  const std::vector<float> scales = floats_of(args.scales);
  for (std::int64_t row = 0; row < n && args.in_features > 0; ++row) {
    RowPacker(*weight, row)
        .pack(nibbles.data() + row * (args.in_features / 2), scales.data() + row * weight->num_groups());
  }
  if (args.bias) {
    weight->bias() = floats_of(*args.bias);
    weight->bias().resize(static_cast<std::size_t>(weight->num_panels() * PackedWeight::kPanel));
  }
  return Packed4bitWeight(std::move(weight));
}

std::string to_string(const Matmul4bitProblem& problem) {
  return to_string(product_of(problem));
}

Product product_of(const Matmul4bitProblem& problem) {
  return {.m = problem.m,
          .n = problem.n,
          .k = problem.k,
          .a = problem.input,
          .b = DType::kU8,
          .out = problem.out,
          .b_scale = Scale::kGroup,
          .group = problem.group_size,
          .epilogue = {.bias = problem.bias ? std::optional(DType::kF32) : std::nullopt}};
}

Result<Product> matmul_4bit_product(const ProductArgs& args) {
  const PackedWeight& weight = *args.packed;
  const auto is_type = [](DType dtype) { return dtype == DType::kF32 || dtype == DType::kBF16; };
  const TensorView& input = *args.a;
  if (input.dim() < 1 || !is_type(input.dtype) || input.sizes.back() != weight.k()) {
    return failf(ErrorCode::kInvalidArgument, "{}: input is {} {}, need f32 or bf16 [..., {}]", kMultiply,
                 to_string(input.dtype), to_string(input.sizes), weight.k());
  }
  const Dims sizes = with_last(input.sizes, weight.n());
  if (!is_type(args.out->dtype) || args.out->sizes != sizes) {
    return failf(ErrorCode::kInvalidArgument, "{}: out is {} {}, need f32 or bf16 {}", kMultiply,
                 to_string(args.out->dtype), to_string(args.out->sizes), to_string(sizes));
  }
  TANDEM_TRY(check_writable(kMultiply, {"out", -1, args.out}));
  return product_of(Matmul4bitProblem{.m = numel(with_last(input.sizes, 1)),
                                      .n = weight.n(),
                                      .k = weight.k(),
                                      .group_size = weight.group(),
                                      .input = input.dtype,
                                      .out = args.out->dtype,
                                      .bias = !weight.bias().empty()});
}

Result<Matmul4bitProblem> problem_of(const Matmul4bitArgs& args, const Packed4bitWeight& packed) {
  TANDEM_ASSIGN(const Product product, matmul_4bit_product(product_args(args, packed)));
  return Matmul4bitProblem{.m = product.m,
                           .n = product.n,
                           .k = product.k,
                           .group_size = product.group,
                           .input = product.a,
                           .out = product.out,
                           .bias = product.epilogue.bias.has_value()};
}

Support can_run(const Matmul4bitProblem& problem, const Device& device) {
  return can_run(product_of(problem), device);
}

Result<Matmul4bitPlan> plan(const Matmul4bitProblem& problem, const Device& device) {
  return plan_of(problem, device);
}

Result<void> run(const Matmul4bitPlan& plan, const Matmul4bitArgs& args, const Packed4bitWeight& packed,
                 Stream& stream) {
  return run_planned(kMatmul4bit, plan, product_args(args, packed), stream);
}

Result<void> matmul_4bit(const Matmul4bitArgs& args, const Packed4bitWeight& packed, Stream& stream) {
  return run(kMatmul4bit, product_args(args, packed), stream);
}

}  // namespace tandem::gemm
