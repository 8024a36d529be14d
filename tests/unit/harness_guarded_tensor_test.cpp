#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tandem/backend/backend.hpp>

#include "harness/guarded_tensor.hpp"

namespace tandem::harness {
namespace {

class GuardedTensorTest : public testing::TestWithParam<HostImage> {
 protected:
  std::unique_ptr<Device> device_ = open_device({DeviceKind::kCpu, 0}, Config{}).value();
};

TEST_P(GuardedTensorTest, IsNaNUntilItIsFilled) {
  const GuardedTensor tensor(*device_, Dims{2, 3}, DType::kBF16, GetParam());
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(std::isnan(tensor.at(i)));
  tensor.fill([](std::int64_t idx) { return static_cast<double>(idx) / 2; });
  tensor.download();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(tensor.at(i), i / 2.0);
  EXPECT_TRUE(tensor.guards_are_whole());
  tensor.poison();
  EXPECT_TRUE(std::isnan(tensor.at(5)));
}

TEST_P(GuardedTensorTest, HolesStayAsTheyAre) {
  const GuardedTensor tensor(*device_, Layout{{2, 2}, {6, 2}}, DType::kF32, GetParam());
  const std::vector<std::byte> before = tensor.bytes();
  tensor.fill([](std::int64_t idx) { return static_cast<double>(idx); });
  EXPECT_EQ(tensor.view().data_as<const float>()[6 + 2], 3.0F);
  int changed = 0;
  const std::vector<std::byte> after = tensor.bytes();
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < after.size(); ++i) changed += after[i] == before[i] ? 0 : 1;
  EXPECT_EQ(changed, 4 * 4);
}

TEST_P(GuardedTensorTest, OneByteBesideItIsSeen) {
  const GuardedTensor tensor(*device_, Dims{5}, DType::kU8, GetParam());
  for (const std::int64_t beside : {-1, 5}) {
    tensor.poison();
    tensor.view().data_as<std::uint8_t>()[beside] ^= 1;
    tensor.download();
    EXPECT_FALSE(tensor.guards_are_whole()) << beside;
  }
  tensor.poison();
  EXPECT_TRUE(tensor.guards_are_whole());
}

TEST_P(GuardedTensorTest, OneByteInAHoleIsSeen) {
  const GuardedTensor tensor(*device_, Layout{{2, 2}, {6, 2}}, DType::kU8, GetParam());
  tensor.fill([](std::int64_t) { return 7.0; });
  tensor.download();
  EXPECT_TRUE(tensor.guards_are_whole());
  tensor.view().data_as<std::uint8_t>()[3] = 7;
  tensor.download();
  EXPECT_FALSE(tensor.guards_are_whole());
}

// Streams may write while the host looks at what it downloaded.
TEST_F(GuardedTensorTest, AnImageStaysAsItIs) {
  const GuardedTensor tensor(*device_, Dims{1}, DType::kF32, HostImage::kAlways);
  tensor.fill([](std::int64_t) { return 1.0; });
  *tensor.view().data_as<float>() = 2;
  EXPECT_EQ(tensor.at(0), 1);
  tensor.download();
  EXPECT_EQ(tensor.at(0), 2);
}

INSTANTIATE_TEST_SUITE_P(Images, GuardedTensorTest,
                         testing::Values(HostImage::kWhereNeeded, HostImage::kAlways),
                         [](const testing::TestParamInfo<HostImage>& image) {
                           return image.param == HostImage::kAlways ? "always" : "where_needed";
                         });

}  // namespace
}  // namespace tandem::harness
