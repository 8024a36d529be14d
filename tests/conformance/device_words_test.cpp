#include <cstdint>
#include <limits>
#include <vector>

#include "conformance/device_backends.hpp"

// stream_write_value32 and memset32. Their refusals are in error/device_arguments_test.cpp.

namespace tandem::test {
namespace {

using Words = std::vector<std::uint32_t>;
constexpr std::uint32_t kGuard = 0xa5a5a5a5;
constexpr std::int64_t kLargest = std::numeric_limits<std::uint32_t>::max();

class DeviceWordsTest : public DeviceTest {
 protected:
  /// Four words between guards: [guard, 0, 0, 0, 0, guard].
  [[nodiscard]] Tensor make_guarded() { return make_words({kGuard, 0, 0, 0, 0, kGuard}); }
  [[nodiscard]] static TensorView inner(const Tensor& guarded) { return guarded.view().narrow(0, 1, 4); }
};

TEST_P(DeviceWordsTest, WriteAtEachOffset) {
  for (std::int64_t offset = 0; offset < 4; ++offset) {
    for (const std::int64_t value : {std::int64_t{0}, std::int64_t{1}, std::int64_t{0x80000000}, kLargest}) {
      const Tensor words = make_guarded();
      ASSERT_TRUE(succeeds(stream_->stream_write_value32(inner(words), offset, value)));
      ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
      Words expected = {kGuard, 0, 0, 0, 0, kGuard};
      expected[static_cast<std::size_t>(1 + offset)] = static_cast<std::uint32_t>(value);
      EXPECT_EQ(read_words(words.view()), expected) << "offset " << offset << " value " << value;
    }
  }
}

TEST_P(DeviceWordsTest, MemsetOfEachRange) {
  for (std::int64_t offset = 0; offset < 4; ++offset) {
    for (std::int64_t count = 1; offset + count <= 4; ++count) {
      const Tensor words = make_guarded();
      ASSERT_TRUE(succeeds(stream_->memset32(inner(words), offset, kLargest - 1, count)));
      ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
      Words expected = {kGuard, 0, 0, 0, 0, kGuard};
      for (std::int64_t i = offset; i < offset + count; ++i) {
        expected[static_cast<std::size_t>(1 + i)] = static_cast<std::uint32_t>(kLargest - 1);
      }
      EXPECT_EQ(read_words(words.view()), expected) << "offset " << offset << " count " << count;
    }
  }
}

TEST_P(DeviceWordsTest, MemsetSetsOneWordUnlessToldOtherwise) {
  const Tensor words = make_guarded();
  ASSERT_TRUE(succeeds(stream_->memset32(inner(words), 2, 7)));
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({kGuard, 0, 0, 7, 0, kGuard}));
}

TEST_P(DeviceWordsTest, MemsetOfALargeRange) {
  constexpr std::size_t kNumWords = 100'003;
  const Tensor words = make_words(Words(kNumWords, 1));
  ASSERT_TRUE(succeeds(stream_->memset32(words.view(), 1, 0xdeadbeef, kNumWords - 2)));
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  Words expected(kNumWords, 0xdeadbeef);
  expected.front() = expected.back() = 1;
  EXPECT_EQ(read_words(words.view()), expected);
}

TEST_P(DeviceWordsTest, WriteComesAfterEarlierWorkOfTheStream) {
  const Tensor words = make_words({0, 0});
  const auto gate = hold(*stream_);
  ASSERT_TRUE(succeeds(stream_->memset32(words.view(), 0, 5)));
  ASSERT_TRUE(succeeds(stream_->stream_write_value32(words.view(), 1, 1)));
  ASSERT_TRUE(succeeds(stream_->memset32(words.view(), 0, 6)));
  EXPECT_EQ(read_words(words.view()), Words({0, 0})) << "written before its turn";
  gate->open();
  ASSERT_TRUE(succeeds(stream_->synchronize(soon())));
  EXPECT_EQ(read_words(words.view()), Words({6, 1}));
}

TANDEM_ON_ALL_DEVICES(DeviceWordsTest);

}  // namespace
}  // namespace tandem::test
