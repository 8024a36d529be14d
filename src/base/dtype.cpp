#include <array>
#include <tandem/base/dtype.hpp>

namespace tandem {
namespace {
constexpr std::array<std::string_view, kNumDTypes> kNames = {
    "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "u8", "u32", "i8", "i32", "i64", "f64", "bool"};
}  // namespace

std::string_view to_string(DType dtype) {
  return kNames.at(static_cast<std::size_t>(dtype));
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace tandem
