#pragma once

#include <cstdint>

namespace tandem::gemm::cuda {

/// What the vendor's library (cuBLASLt 13, November 2026) takes for a product of 16-bit elements on an H200,
/// in microseconds: whole waves of the tiles that are best for it, cut along k too where that fills them.
/// Within 6 % on average of 81 shapes from 10 us to 2.4 ms (bench/results/h200_*.json), a quarter of each.
[[nodiscard]] double vendor_us(std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace tandem::gemm::cuda
