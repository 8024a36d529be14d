#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "conformance/device_backends.hpp"

// Every refusal of the device module: its code, its text, and that nothing was enqueued.

namespace tandem::test {
namespace {

constexpr std::int64_t kWordLimit = std::int64_t{1} << 32;
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr auto kInvalid = ErrorCode::kInvalidArgument;

class DeviceArgumentsTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    words_ = make_words({10, 11, 12, 13});
  }
  void TearDown() override {
    EXPECT_TRUE(succeeds(stream_->synchronize(soon())));
    EXPECT_EQ(read_words(words_.view()), (std::vector<std::uint32_t>{10, 11, 12, 13}))
        << "a refused call wrote";
    DeviceTest::TearDown();
  }
  [[nodiscard]] TensorView view(const Dims& sizes, DType dtype) const {
    return TensorView::contiguous(words_.view().data, sizes, dtype, device_->id());
  }
  [[nodiscard]] DeviceId elsewhere() const {
    return {device_->id().kind == DeviceKind::kCpu ? DeviceKind::kCuda : DeviceKind::kCpu, 77};
  }

  Tensor words_;
};

TEST_P(DeviceArgumentsTest, WriteValue) {
  const auto write = [&](const TensorView& words, std::int64_t offset, std::int64_t value) {
    return stream_->stream_write_value32(words, offset, value);
  };
  const std::string op = "stream_write_value32";
  EXPECT_TRUE(fails(write(view({4}, DType::kI32), 0, 1), kInvalid, {op, "i32 [4]", "u32"}));
  EXPECT_TRUE(fails(write(view({4}, DType::kF32), 0, 1), kInvalid, {op, "f32 [4]"}));
  EXPECT_TRUE(fails(write(view({2, 2}, DType::kU32), 0, 1), kInvalid, {op, "[2, 2]", "1-D"}));
  EXPECT_TRUE(fails(write(view({}, DType::kU32), 0, 1), kInvalid, {op, "[]", "1-D"}));
  TensorView strided = view({2}, DType::kU32);
  strided.strides = {2};
  EXPECT_TRUE(fails(write(strided, 0, 1), kInvalid, {op, "strides [2]", "contiguous"}));
  EXPECT_TRUE(fails(write(words_.view(), -1, 1), kInvalid, {op, "offset -1", "[0, 4)"}));
  EXPECT_TRUE(fails(write(words_.view(), 4, 1), kInvalid, {op, "offset 4", "[0, 4)"}));
  EXPECT_TRUE(fails(write(words_.view(), kMax, 1), kInvalid, {op, "offset 9223372036854775807"}));
  EXPECT_TRUE(fails(write(words_.view(), kMin, 1), kInvalid, {op, "offset -9223372036854775808"}));
  EXPECT_TRUE(fails(write(view({0}, DType::kU32), 0, 1), kInvalid, {op, "offset 0", "[0, 0)"}));
  EXPECT_TRUE(fails(write(words_.view(), 0, -1), kInvalid, {op, "value -1", "[0, 4294967295]"}));
  EXPECT_TRUE(fails(write(words_.view(), 0, kWordLimit), kInvalid, {op, "value 4294967296"}));
  TensorView misaligned = view({2}, DType::kU32);
  misaligned.data = static_cast<std::byte*>(misaligned.data) + 2;
  EXPECT_TRUE(fails(write(misaligned, 0, 1), kInvalid, {op, "multiple of 4"}));
  TensorView far = words_.view();
  far.device = elsewhere();
  EXPECT_TRUE(fails(write(far, 0, 1), kInvalid, {op, to_string(elsewhere()), "cannot reach"}));
  EXPECT_TRUE(fails(write(TensorView::contiguous(nullptr, {4}, DType::kU32, device_->id()), 0, 1), kInvalid,
                    {op, "no memory"}));
}

TEST_P(DeviceArgumentsTest, Memset) {
  const auto set = [&](const TensorView& words, std::int64_t offset, std::int64_t value, std::int64_t count) {
    return stream_->memset32(words, offset, value, count);
  };
  EXPECT_TRUE(fails(set(view({4}, DType::kU8), 0, 1, 1), kInvalid, {"memset32", "u8 [4]", "u32"}));
  EXPECT_TRUE(fails(set(view({2, 2}, DType::kU32), 0, 1, 1), kInvalid, {"memset32", "[2, 2]", "1-D"}));
  TensorView strided = view({2}, DType::kU32);
  strided.strides = {2};
  EXPECT_TRUE(fails(set(strided, 0, 1, 1), kInvalid, {"memset32", "contiguous"}));
  EXPECT_TRUE(fails(set(words_.view(), -1, 1, 1), kInvalid, {"memset32", "offset -1"}));
  EXPECT_TRUE(fails(set(words_.view(), 4, 1, 1), kInvalid, {"memset32", "offset 4 and count 1", "4 words"}));
  EXPECT_TRUE(fails(set(words_.view(), 0, 1, 0), kInvalid, {"memset32", "count 0"}));
  EXPECT_TRUE(fails(set(words_.view(), 0, 1, -3), kInvalid, {"memset32", "count -3"}));
  EXPECT_TRUE(fails(set(words_.view(), 0, 1, 5), kInvalid, {"memset32", "offset 0 and count 5"}));
  EXPECT_TRUE(fails(set(words_.view(), 3, 1, 2), kInvalid, {"memset32", "offset 3 and count 2"}));
  EXPECT_TRUE(fails(set(words_.view(), 1, 1, kMax), kInvalid, {"memset32", "count 9223372036854775807"}));
  EXPECT_TRUE(fails(set(words_.view(), kMax, 1, kMax), kInvalid, {"memset32"}));
  EXPECT_TRUE(fails(set(words_.view(), 0, -1, 1), kInvalid, {"memset32", "value -1"}));
  EXPECT_TRUE(fails(set(words_.view(), 0, kWordLimit, 1), kInvalid, {"memset32", "value 4294967296"}));
}

TEST_P(DeviceArgumentsTest, Copy) {
  const TensorView words = words_.view();
  EXPECT_TRUE(
      fails(stream_->copy(words, view({4}, DType::kI32)), kInvalid, {"copy", "types differ", "u32 to i32"}));
  EXPECT_TRUE(
      fails(stream_->copy(words, view({3}, DType::kU32)), kInvalid, {"copy", "sizes differ", "[4] to [3]"}));
  EXPECT_TRUE(fails(stream_->copy(words, view({4, 1}, DType::kU32)), kInvalid, {"copy", "sizes differ"}));
  TensorView far = words;
  far.device = elsewhere();
  EXPECT_TRUE(fails(stream_->copy(far, words), kInvalid, {"copy: from is on", "cannot reach"}));
  EXPECT_TRUE(fails(stream_->copy(words, far), kInvalid, {"copy: to is on", "cannot reach"}));
  const TensorView nowhere = TensorView::contiguous(nullptr, {4}, DType::kU32, device_->id());
  EXPECT_TRUE(fails(stream_->copy(words, nowhere), kInvalid, {"copy: to", "no memory"}));
  EXPECT_TRUE(fails(stream_->copy(nowhere, words), kInvalid, {"copy: from", "no memory"}));
  const TensorView negative = view({-1}, DType::kU32);
  EXPECT_TRUE(fails(stream_->copy(negative, negative), kInvalid, {"negative size", "[-1]"}));
  TensorView lopsided = words;
  lopsided.strides = {};
  EXPECT_TRUE(fails(stream_->copy(words, lopsided), kInvalid, {"1 sizes but 0 strides"}));
}

TEST_P(DeviceArgumentsTest, Sleep) {
  EXPECT_TRUE(fails(stream_->sleep(std::chrono::nanoseconds(-1)), kInvalid, {"sleep", "-1 ns"}));
}

TEST_P(DeviceArgumentsTest, ElapsedTimeNeedsTwoMarksThatAreDone) {
  const auto recorded = make_event();
  const auto pending = make_event();
  const auto never = make_event();
  ASSERT_TRUE(succeeds(stream_->record(*recorded)));
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  const auto gate = hold(*stream_);
  ASSERT_TRUE(succeeds(stream_->record(*pending)));
  const auto code_of = [](const Result<double>& elapsed_us) {
    return elapsed_us ? std::string("none") : std::string(to_string(elapsed_us.error().code()));
  };
  EXPECT_EQ(code_of(pending->elapsed_us(*recorded)), "InvalidArgument");
  EXPECT_EQ(code_of(recorded->elapsed_us(*pending)), "InvalidArgument");
  EXPECT_EQ(code_of(never->elapsed_us(*recorded)), "InvalidArgument");
  EXPECT_EQ(code_of(recorded->elapsed_us(*never)), "InvalidArgument");
  EXPECT_EQ(code_of(recorded->elapsed_us(*recorded)), "none");
  gate->open();
}

TEST_P(DeviceArgumentsTest, HostCopies) {
  std::uint32_t host[4] = {};
  TensorView strided = view({2}, DType::kU32);
  strided.strides = {2};
  EXPECT_TRUE(fails(device_->copy_from_host(host, strided), kInvalid, {"copy_from_host", "contiguous"}));
  EXPECT_TRUE(fails(device_->copy_to_host(strided, host), kInvalid, {"copy_to_host", "contiguous"}));
  EXPECT_TRUE(fails(device_->copy_from_host(nullptr, words_.view()), kInvalid,
                    {"copy_from_host", "null", "16 bytes"}));
  EXPECT_TRUE(
      fails(device_->copy_to_host(words_.view(), nullptr), kInvalid, {"copy_to_host", "null", "16 bytes"}));
  TensorView far = words_.view();
  far.device = elsewhere();
  EXPECT_TRUE(fails(device_->copy_from_host(host, far), kInvalid, {"cannot reach"}));
  EXPECT_TRUE(fails(device_->copy_to_host(far, host), kInvalid, {"cannot reach"}));
}

template <class T>
::testing::AssertionResult refuses(const Result<T>& result, ErrorCode code,
                                   const std::vector<std::string>& fragments) {
  if (result) return ::testing::AssertionFailure() << "succeeded, expected " << to_string(code);
  return fails(tl::unexpected(result.error()), code, fragments);
}

TEST_P(DeviceArgumentsTest, Allocate) {
  EXPECT_TRUE(refuses(device_->allocate(-1), kInvalid, {"allocate", "-1 bytes"}));
  for (const std::int64_t absurd : {std::int64_t{1} << 60, kMax - 70, kMax - 1, kMax}) {
    EXPECT_TRUE(
        refuses(device_->allocate(absurd), ErrorCode::kOutOfMemory, {"allocate", std::to_string(absurd)}));
  }
  EXPECT_TRUE(refuses(device_->allocate_tensor({4, -2}, DType::kF32), kInvalid, {"[4, -2]"}));
  EXPECT_TRUE(refuses(device_->allocate_tensor({kMax}, DType::kU8), kInvalid, {std::to_string(kMax)}));
  const Dims overflowing = {std::int64_t{1} << 32, std::int64_t{1} << 32};
  EXPECT_TRUE(refuses(device_->allocate_tensor(overflowing, DType::kF32), kInvalid,
                      {"[4294967296, 4294967296] of f32: more than 2^62 bytes"}));
  EXPECT_TRUE(refuses(device_->allocate_tensor({kMax / 2}, DType::kF32), kInvalid, {"f32"}));
}

TANDEM_ON_ALL_DEVICES(DeviceArgumentsTest);

}  // namespace
}  // namespace tandem::test
