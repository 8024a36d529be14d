#pragma once

#include <cstdint>
#include <string_view>

namespace tandem::graph::interpreter {

/// Numbers of a stream that (seed, rank, name) picks; the same on every machine.
class Numbers {
 public:
  Numbers(std::uint64_t seed, int rank, std::string_view name) : state_(seed) {
    absorb(static_cast<std::uint64_t>(rank));
    for (const char c : name) absorb(static_cast<unsigned char>(c));
  }
  /// In [0, 1).
  double next() { return static_cast<double>(step() >> 11) * 0x1p-53; }

 private:
  // splitmix64
  std::uint64_t step() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
    return mixed ^ (mixed >> 31);
  }
  void absorb(std::uint64_t value) {
    state_ ^= value;
    state_ = step();
  }

  std::uint64_t state_;
};

}  // namespace tandem::graph::interpreter
