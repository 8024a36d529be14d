#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "conformance/device_backends.hpp"

// Memory of a device and the services attached to it.

namespace tandem::test {
namespace {

class DeviceMemoryTest : public DeviceTest {};

TEST_P(DeviceMemoryTest, SaysWhatItIs) {
  EXPECT_FALSE(device_->description().empty());
  EXPECT_TRUE(device_->can_reach(device_->id()));
  EXPECT_EQ(device_->config().log_level, LogLevel::kOff);
}

TEST_P(DeviceMemoryTest, AllocatesAlignedBuffersOfAnySize) {
  for (const std::int64_t num_bytes : {0, 1, 63, 64, 65, 4096, 1 << 20}) {
    const auto buffer = device_->allocate(num_bytes);
    ASSERT_TRUE(buffer.has_value()) << buffer.error().to_string();
    EXPECT_EQ(buffer->size_bytes(), num_bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % 64, 0U) << num_bytes << " bytes";
    EXPECT_TRUE(num_bytes == 0 || buffer->data() != nullptr) << num_bytes << " bytes";
  }
}

TEST_P(DeviceMemoryTest, MemoryLivesAsLongAsItsLastOwner) {
  const TensorView view = TensorView::contiguous(nullptr, {16}, DType::kU8, device_->id());
  const std::vector<std::uint8_t> values(16, 0x5a);
  std::shared_ptr<void> owner;
  TensorView words = view;
  {
    auto buffer = device_->allocate(16);
    ASSERT_TRUE(buffer.has_value());
    words.data = buffer->data();
    owner = buffer->owner();
  }
  ASSERT_TRUE(succeeds(device_->copy_from_host(values.data(), words)));
  EXPECT_EQ(read_bytes(words), values);
}

TEST_P(DeviceMemoryTest, TensorsAreContiguousAndZeroed) {
  // The second allocation may get the memory of the first: it must be cleared again.
  for (int round = 0; round < 2; ++round) {
    const auto tensor = device_->allocate_tensor({3, 5, 7}, DType::kF64);
    ASSERT_TRUE(tensor.has_value());
    EXPECT_TRUE(tensor->view().is_contiguous());
    EXPECT_EQ(tensor->view().sizes, Dims({3, 5, 7}));
    EXPECT_EQ(tensor->dtype(), DType::kF64);
    EXPECT_EQ(tensor->view().device, device_->id());
    EXPECT_EQ(read_bytes(tensor->view()), std::vector<std::uint8_t>(3 * 5 * 7 * 8, 0));
    const std::vector<std::uint8_t> dirt(3 * 5 * 7 * 8, 0xff);
    ASSERT_TRUE(succeeds(device_->copy_from_host(dirt.data(), tensor->view())));
  }
}

TEST_P(DeviceMemoryTest, EmptyAndZeroDimTensors) {
  const auto empty = device_->allocate_tensor({4, 0, 1'000'000'000'000}, DType::kF32);
  ASSERT_TRUE(empty.has_value()) << empty.error().to_string();
  EXPECT_EQ(empty->view().numel(), 0);
  const auto scalar = device_->allocate_tensor({}, DType::kF32);
  ASSERT_TRUE(scalar.has_value());
  EXPECT_EQ(read_bytes(scalar->view()), std::vector<std::uint8_t>(4, 0));
}

TEST_P(DeviceMemoryTest, HostCopiesTouchTheirRangeOnly) {
  const auto tensor = device_->allocate_tensor({96}, DType::kU8);
  ASSERT_TRUE(tensor.has_value());
  std::vector<std::uint8_t> values(32);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i + 1);
  const TensorView middle = tensor->view().narrow(0, 32, 32);
  ASSERT_TRUE(succeeds(device_->copy_from_host(values.data(), middle)));
  std::vector<std::uint8_t> expected(96, 0);
  std::memcpy(&expected[32], values.data(), 32);
  EXPECT_EQ(read_bytes(tensor->view()), expected);
  EXPECT_EQ(read_bytes(middle), values);
}

TEST_P(DeviceMemoryTest, HostReadsItByPointerIfItSaysSo) {
  if (!device_->is_host_accessible()) GTEST_SKIP() << "this device's memory is its own";
  const Tensor words = make_words({1, 2, 3});
  EXPECT_EQ(words.view().data_as<const std::uint32_t>()[2], 3U);
}

TEST_P(DeviceMemoryTest, MemoryMayOutliveItsDevice) {
  auto tensor = device_->allocate_tensor({8}, DType::kU32);
  ASSERT_TRUE(tensor.has_value());
  stream_.reset();
  other_.reset();
  device_.reset();
}

struct Greeter {
  int number = 0;
};
struct Stranger : Greeter {};

TEST_P(DeviceMemoryTest, ServicesAreFoundByTypeAndGoWithTheDevice) {
  EXPECT_EQ(device_->service<Greeter>(), nullptr);
  const auto greeter = std::make_shared<Greeter>();
  greeter->number = 42;
  device_->attach<Greeter>(greeter);
  ASSERT_EQ(device_->service<Greeter>(), greeter.get());
  EXPECT_EQ(device_->service<Greeter>()->number, 42);
  EXPECT_EQ(device_->service<Stranger>(), nullptr) << "another type, though it is a Greeter too";
  const auto stranger = std::make_shared<Stranger>();
  device_->attach<Stranger>(stranger);
  EXPECT_EQ(device_->service<Greeter>(), greeter.get());
  EXPECT_EQ(device_->service<Stranger>(), stranger.get());
  stream_.reset();
  other_.reset();
  device_.reset();
  EXPECT_EQ(greeter.use_count(), 1);
}

TANDEM_ON_ALL_DEVICES(DeviceMemoryTest);

}  // namespace
}  // namespace tandem::test
