#include <gtest/gtest.h>

#include "cost/products.hpp"

namespace tandem::cost {
namespace {

// cuBLASLt's first choice on H200s: bench/results/h200_x4_native.json, h200_x2_random_preset.json.
TEST(VendorModel, IsNearWhatWasMeasured) {
  struct Measured {
    std::int64_t m, n, k;
    double us;
  };
  for (const auto& [m, n, k, us] :
       {Measured{512, 3584, 8192, 45}, Measured{2048, 3584, 8192, 172}, Measured{8192, 3584, 8192, 603},
        Measured{4096, 6656, 16384, 1133}, Measured{1088, 640, 2688, 15.6}, Measured{640, 5824, 5184, 54.7},
        Measured{4160, 1536, 9920, 171}, Measured{960, 1728, 8640, 44.9}, Measured{9408, 512, 1408, 27.4}}) {
    EXPECT_NEAR(vendor_us(m, n, k) / us, 1, 0.25) << m << " x " << n << " x " << k;
  }
}

TEST(VendorModel, TakesLongerForMore) {
  for (const std::int64_t size : {64, 500, 4096}) {
    const double us = vendor_us(size, size, size);
    EXPECT_GT(us, 0);
    EXPECT_GE(vendor_us(2 * size, size, size), us);
    EXPECT_GE(vendor_us(size, 2 * size, size), us);
    EXPECT_GT(vendor_us(size, size, 2 * size), us);
  }
}

}  // namespace
}  // namespace tandem::cost
