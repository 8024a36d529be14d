#include "base/nan_rule.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <tandem/base/numeric.hpp>
#include <vector>

// Which bits are NaN, against the conversions to f32, which are tested by themselves.

namespace tandem {
namespace {

constexpr DType kFloating[] = {DType::kF64,  DType::kF32,    DType::kF16,
                               DType::kBF16, DType::kF8E4M3, DType::kF8E5M2};

bool is_nan(std::uint64_t bits, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return std::isnan(std::bit_cast<double>(bits));
    case DType::kF32:
      return std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    case DType::kF16:
      return std::isnan(to_f32(F16{static_cast<std::uint16_t>(bits)}));
    case DType::kBF16:
      return std::isnan(to_f32(BF16{static_cast<std::uint16_t>(bits)}));
    case DType::kF8E4M3:
      return std::isnan(to_f32(F8E4M3{static_cast<std::uint8_t>(bits)}));
    default:
      return std::isnan(to_f32(F8E5M2{static_cast<std::uint8_t>(bits)}));
  }
}

/// All bits of 8 and 16, and of wider types what lies around every border of the exponent and the payload.
std::vector<std::uint64_t> patterns_of(DType dtype) {
  const std::int64_t num_bits = 8 * size_bytes(dtype);
  std::vector<std::uint64_t> all;
  if (num_bits <= 16) {
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << num_bits; ++bits) all.push_back(bits);
    return all;
  }
  const std::uint64_t mask = num_bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << num_bits) - 1;
  const std::uint64_t infinity = dtype == DType::kF64 ? 0x7ff0'0000'0000'0000U : 0x7f80'0000U;
  for (int bit = 0; bit < num_bits; ++bit) {
    for (const std::uint64_t base : {std::uint64_t{0}, infinity, infinity >> 1U, mask}) {
      for (const std::uint64_t sign : {std::uint64_t{0}, std::uint64_t{1} << (num_bits - 1)}) {
        const std::uint64_t one = std::uint64_t{1} << bit;
        for (const std::uint64_t bits : {base ^ one, base + one, base - one, base})
          all.push_back((bits ^ sign) & mask);
      }
    }
  }
  return all;
}

/// How often a rule is wrong of an element at each of its places in a word, among `beside`, all other ones.
int count_wrong(const NanRule& rule, DType dtype, std::uint64_t beside) {
  const std::int64_t num_bits = 8 * size_bytes(dtype);
  const std::uint64_t mask = num_bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << num_bits) - 1;
  int wrong = 0;
  for (const std::uint64_t bits : patterns_of(dtype)) {
    for (std::int64_t at = 0; at < 64; at += num_bits) {
      std::uint64_t word = 0;
      std::uint64_t expected = 0;
      for (std::int64_t place = 0; place < 64; place += num_bits) {
        const std::uint64_t element = place == at ? bits : beside & mask;
        word |= element << place;
        if (is_nan(element, dtype)) expected |= std::uint64_t{1} << (place + num_bits - 1);
      }
      wrong += rule.nans_in(word) == expected ? 0 : 1;
    }
  }
  return wrong;
}

int count_wrong(const NanRule& rule, DType dtype) {
  return count_wrong(rule, dtype, 0) + count_wrong(rule, dtype, ~std::uint64_t{0});
}

TEST(BaseNanRule, is_right_of_every_type) {
  for (const DType dtype : kFloating) EXPECT_EQ(count_wrong(nan_rule(dtype), dtype), 0) << to_string(dtype);
}

TEST(BaseNanRule, types_without_nan_have_none) {
  for (const DType dtype : {DType::kU8, DType::kI8, DType::kI32, DType::kU32, DType::kI64, DType::kBool})
    EXPECT_EQ(nan_rule(dtype).nans_in(~std::uint64_t{0}), 0U) << to_string(dtype);
}

// Each of them takes infinity for NaN, or misses the smallest one, or a sign's.
TEST(BaseNanRule, mutants_fail) {
  for (const DType dtype : kFloating) {
    const NanRule rule = nan_rule(dtype);
    const std::uint64_t lowest = rule.sign >> (8 * size_bytes(dtype) - 1);  // the lowest bit of each element
    NanRule larger = rule;
    larger.addend += lowest;
    EXPECT_GT(count_wrong(larger, dtype), 0) << to_string(dtype);
    NanRule smaller = rule;
    smaller.addend -= lowest;
    EXPECT_GT(count_wrong(smaller, dtype), 0) << to_string(dtype);
    NanRule with_signs = rule;
    with_signs.magnitude |= rule.sign;
    EXPECT_GT(count_wrong(with_signs, dtype), 0) << to_string(dtype);
  }
}

}  // namespace
}  // namespace tandem
