#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <tandem/device/device.hpp>
#include <thread>
#include <vector>

namespace tandem::test {

/// Opened by the test, waited for by a stream. Opens by itself after a while, so that a failed test ends.
class Gate {
 public:
  void open() { open_ = true; }
  void wait() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!open_ && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  std::atomic<bool> open_{false};
};

/// What the suite needs of a backend beyond the public interface. One entry in device_backends() makes every
/// device test run on it.
struct DeviceBackend {
  std::string name;
  Result<std::unique_ptr<Device>> (*open)(const Config& config);
  /// Enqueues work that lasts until `gate` opens.
  Result<void> (*hold)(Stream& stream, std::shared_ptr<Gate> gate);
  /// Enqueues work that fails with `error`; null where what is enqueued behind a fault runs all the same, as
  /// on a GPU (then those tests are skipped).
  Result<void> (*fault)(Stream& stream, const Error& error);
};

/// For the line of a failed test.
inline void PrintTo(const DeviceBackend& backend, std::ostream* out) {
  *out << backend.name;
}

/// All backends of this build that this machine can open: the CPU's at least.
[[nodiscard]] const std::vector<DeviceBackend>& device_backends();

/// A device, two streams and the memory helpers; tests touch memory only through the device's own copies.
class DeviceTest : public ::testing::TestWithParam<DeviceBackend> {
 protected:
  void SetUp() override;
  void TearDown() override;

  [[nodiscard]] std::unique_ptr<Event> make_event();
  [[nodiscard]] std::unique_ptr<Stream> make_stream(int priority = 0);
  /// u32 words on the device.
  [[nodiscard]] Tensor make_words(const std::vector<std::uint32_t>& values);
  [[nodiscard]] std::vector<std::uint32_t> read_words(const TensorView& words);
  [[nodiscard]] std::vector<std::uint8_t> read_bytes(const TensorView& bytes);
  /// Holds `stream` until the gate opens. Gates left closed are opened at the end of the test.
  [[nodiscard]] std::shared_ptr<Gate> hold(Stream& stream);
  void fail_on(Stream& stream, ErrorCode code, const std::string& text);
  [[nodiscard]] bool has_faults() const { return GetParam().fault != nullptr; }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Stream> other_;

 private:
  std::vector<std::shared_ptr<Gate>> gates_;
};

[[nodiscard]] ::testing::AssertionResult succeeds(const Result<void>& result);
/// Whether `result` is an error of this code whose text has all the fragments.
[[nodiscard]] ::testing::AssertionResult fails(const Result<void>& result, ErrorCode code,
                                               const std::vector<std::string>& fragments = {});

inline std::string backend_name(const ::testing::TestParamInfo<DeviceBackend>& backend) {
  return backend.param.name;
}

/// Long enough for any machine, short enough to end a hung test.
[[nodiscard]] inline Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}

}  // namespace tandem::test

#define TANDEM_ON_ALL_DEVICES(suite)                                                               \
  INSTANTIATE_TEST_SUITE_P(Backend, suite, ::testing::ValuesIn(::tandem::test::device_backends()), \
                           ::tandem::test::backend_name)
