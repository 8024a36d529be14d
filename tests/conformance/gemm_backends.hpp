#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <tandem/backend/backend.hpp>
#include <vector>

#include "support/test_devices.hpp"

namespace tandem::test {

/// What computes the products of a test.
struct GemmBackend {
  std::string name;
  DeviceKind kind = DeviceKind::kCpu;
  Config config;
  /// Each element is one chain of sums, in ascending k or, of bf16 on CPUs, in pairs.
  /// A vendor's library adds in an order of its own.
  bool adds_in_order = true;
};

/// For the line of a failed test.
inline void PrintTo(const GemmBackend& backend, std::ostream* out) {
  *out << backend.name;
}

[[nodiscard]] inline std::vector<GemmBackend> gemm_backends() {
  std::vector<GemmBackend> backends = {{"cpu", DeviceKind::kCpu, {}}};
  if (testing::num_test_gpus() == 0) return backends;
  backends.push_back({"cuda", DeviceKind::kCuda, {}, false});
  Config plain;
  plain.cublaslt_library = "none";
  plain.native_kernel = "none";
  backends.push_back({"cuda_reference", DeviceKind::kCuda, plain});
  return backends;
}

inline std::string gemm_backend_name(const ::testing::TestParamInfo<GemmBackend>& backend) {
  return backend.param.name;
}

/// A device of the backend, and a stream.
class GemmTest : public ::testing::TestWithParam<GemmBackend> {
 protected:
  void SetUp() override {
    auto device = open_device({GetParam().kind, 0}, GetParam().config);
    ASSERT_TRUE(device) << device.error().to_string();
    device_ = *std::move(device);
    stream_ = device_->create_stream().value();
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace tandem::test
