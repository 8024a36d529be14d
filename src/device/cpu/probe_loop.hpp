#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/cpu/core_peaks.hpp"

namespace tandem::cpu {

template <class Instruction>
double total_of(const typename Instruction::Sum (&sums)[Instruction::kSums]) {
  typename Instruction::Lane lanes[Instruction::kSums * Instruction::kLanes];
  static_assert(sizeof(lanes) == sizeof(sums));
  std::memcpy(lanes, sums, sizeof(sums));
  double total = 0;
  for (const auto lane : lanes) total += static_cast<double>(lane);
  return total;
}

/// Adds products of 1 to independent sums, as many as an instruction's latency asks for. Returns what these
/// grew by. The compiler knows neither the factors nor the first sums, so it can neither fold the products
/// nor make one of several sums.
template <class Instruction>
double run_probe(std::int64_t rounds) {
  volatile typename Instruction::Lane unknown = 0;
  typename Instruction::Sum sums[Instruction::kSums];
  for (auto& sum : sums) sum = Instruction::sum_of(unknown);
  const auto x = Instruction::ones(static_cast<int>(unknown));
  const auto y = Instruction::ones(static_cast<int>(unknown));
  const double before = total_of<Instruction>(sums);
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (auto& sum : sums) sum = Instruction::step(sum, x, y);
  }
  return total_of<Instruction>(sums) - before;
}

template <class Instruction>
constexpr ProbeLoop kProbeLoop = {2.0 * Instruction::kSums* Instruction::kLanes* Instruction::kProducts,
                                  run_probe<Instruction>};

using WordSum = std::uint64_t (*)(const std::byte* bytes, std::size_t size);

/// Eight sums, so that none of them waits for the one before.
template <class Instruction>
std::uint64_t word_sum(const std::byte* bytes, std::size_t size) {
  using Words = typename Instruction::Words;
  Words sums[8] = {};
  for (std::size_t at = 0; at < size; at += sizeof(sums)) {
#pragma GCC unroll 8
    for (std::size_t i = 0; i < 8; ++i)
      sums[i] = Instruction::add(sums[i], Instruction::load(bytes + at + i * sizeof(Words)));
  }
  std::uint64_t words[sizeof(sums) / 8];
  std::memcpy(words, sums, sizeof(sums));
  std::uint64_t total = 0;
  for (const std::uint64_t word : words) total += word;
  return total;
}

extern const ProbeLoop kFma512;
extern const ProbeLoop kDotBf16In512;
extern const ProbeLoop kDotBf16In256;
extern const ProbeLoop kDotU8s8In512;
extern const ProbeLoop kDotU8s8In256;
extern const ProbeLoop kFma256;
extern const WordSum kWordSum512;
extern const WordSum kWordSum256;

}  // namespace tandem::cpu
