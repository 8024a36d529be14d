#include "conformance/device_backends.hpp"

#include <tandem/backend/backend.hpp>
#include <tandem/cpu/launch.hpp>
#include <utility>
#ifdef TANDEM_HAS_CUDA
#include <cuda_runtime_api.h>

#include <tandem/cuda/native_stream.hpp>
#endif

namespace tandem::test {
namespace {

DeviceBackend cpu_backend() {
  return {"cpu",
          [](const Config& config) {
            return open_device({DeviceKind::kCpu, 0}, config);
          },
          [](Stream& stream, std::shared_ptr<Gate> gate) {
            return cpu::launch(stream, cpu::Task([gate = std::move(gate)]() -> Result<void> {
                                 gate->wait();
                                 return {};
                               }));
          },
          [](Stream& stream, const Error& error) {
            return cpu::launch(
                stream, cpu::Task([error = error]() -> Result<void> { return tl::unexpected(error); }));
          }};
}

#ifdef TANDEM_HAS_CUDA
Result<void> hold_cuda_stream(Stream& stream, std::shared_ptr<Gate> gate) {
  const auto native = cuda::native_stream(stream);
  if (!native) return tl::unexpected(native.error());
  auto shared = std::make_unique<std::shared_ptr<Gate>>(std::move(gate));
  const cudaError_t code = cudaLaunchHostFunc(
      *native,
      [](void* data) {
        const std::unique_ptr<std::shared_ptr<Gate>> own(static_cast<std::shared_ptr<Gate>*>(data));
        (*own)->wait();
      },
      shared.get());
  if (code != cudaSuccess)
    return fail(ErrorCode::kDriver, std::string("cudaLaunchHostFunc: ") + cudaGetErrorString(code), code);
  static_cast<void>(shared.release());  // now the host function's
  return {};
}

DeviceBackend cuda_backend() {
  return {"cuda",
          [](const Config& config) {
            return open_device({DeviceKind::kCuda, 0}, config);
          },
          hold_cuda_stream, nullptr};
}
#endif

std::vector<DeviceBackend> usable_backends() {
  std::vector<DeviceBackend> backends = {cpu_backend()};
#ifdef TANDEM_HAS_CUDA
  if (count_cuda_devices() > 0) backends.push_back(cuda_backend());
#endif
  return backends;
}

}  // namespace

const std::vector<DeviceBackend>& device_backends() {
  static const std::vector<DeviceBackend> backends = usable_backends();
  return backends;
}

void DeviceTest::SetUp() {
  Config config;
  config.log_level = LogLevel::kOff;
  auto device = GetParam().open(config);
  ASSERT_TRUE(device.has_value()) << device.error().to_string();
  device_ = std::move(*device);
  stream_ = make_stream();
  other_ = make_stream();
}

void DeviceTest::TearDown() {
  for (const auto& gate : gates_) gate->open();
}

std::unique_ptr<Event> DeviceTest::make_event() {
  auto event = device_->create_event();
  EXPECT_TRUE(event.has_value());
  return std::move(event).value();
}

std::unique_ptr<Stream> DeviceTest::make_stream(int priority) {
  auto stream = device_->create_stream(priority);
  EXPECT_TRUE(stream.has_value());
  return std::move(stream).value();
}

Tensor DeviceTest::make_words(const std::vector<std::uint32_t>& values) {
  auto words = device_->allocate_tensor({static_cast<std::int64_t>(values.size())}, DType::kU32);
  EXPECT_TRUE(words.has_value());
  EXPECT_TRUE(succeeds(device_->copy_from_host(values.data(), words->view())));
  return std::move(words).value();
}

std::vector<std::uint32_t> DeviceTest::read_words(const TensorView& words) {
  std::vector<std::uint32_t> values(static_cast<std::size_t>(words.numel()));
  EXPECT_TRUE(succeeds(device_->copy_to_host(words, values.data())));
  return values;
}

std::vector<std::uint8_t> DeviceTest::read_bytes(const TensorView& bytes) {
  std::vector<std::uint8_t> values(static_cast<std::size_t>(bytes.size_bytes()));
  EXPECT_TRUE(succeeds(device_->copy_to_host(bytes, values.data())));
  return values;
}

std::shared_ptr<Gate> DeviceTest::hold(Stream& stream) {
  gates_.push_back(std::make_shared<Gate>());
  EXPECT_TRUE(succeeds(GetParam().hold(stream, gates_.back())));
  return gates_.back();
}

void DeviceTest::fail_on(Stream& stream, ErrorCode code, const std::string& text) {
  EXPECT_TRUE(succeeds(GetParam().fault(stream, Error(code, text))));
}

::testing::AssertionResult succeeds(const Result<void>& result) {
  if (result) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result.error().to_string();
}

::testing::AssertionResult fails(const Result<void>& result, ErrorCode code,
                                 const std::vector<std::string>& fragments) {
  if (result) return ::testing::AssertionFailure() << "succeeded, expected " << to_string(code);
  if (result.error().code() != code) {
    return ::testing::AssertionFailure()
           << "expected " << to_string(code) << ", got " << result.error().to_string();
  }
  for (const std::string& fragment : fragments) {
    if (result.error().text().find(fragment) == std::string::npos) {
      return ::testing::AssertionFailure()
             << "no \"" << fragment << "\" in \"" << result.error().text() << '"';
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tandem::test
