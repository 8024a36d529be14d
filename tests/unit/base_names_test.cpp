#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <tandem/base/deadline.hpp>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/log.hpp>
#include <tandem/base/support.hpp>
#include <tandem/base/unique_fd.hpp>
#include <utility>

#include "base/format.hpp"
#include "base/function_ref.hpp"
#include "base/try.hpp"

namespace tandem {
namespace {

TEST(Error, EveryCodeHasItsName) {
  constexpr std::string_view kNames[] = {"InvalidArgument", "Mismatch", "Unsupported", "OutOfMemory",
                                         "Timeout",         "PeerLost", "Numeric",     "Driver",
                                         "Parse",           "Internal"};
  int code = 0;
  for (const std::string_view name : kNames) EXPECT_EQ(to_string(static_cast<ErrorCode>(code++)), name);
}

TEST(Error, TextHasCodeAndNativeCode) {
  EXPECT_EQ(Error(ErrorCode::kTimeout, "rank 1 waited").to_string(), "Timeout: rank 1 waited");
  EXPECT_EQ(Error(ErrorCode::kDriver, "open failed", 2).to_string(), "Driver: open failed (code 2)");
  const Result<int> result = failf(ErrorCode::kParse, "got {}, need {}", 1, "two");
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), ErrorCode::kParse);
  EXPECT_EQ(result.error().text(), "got 1, need two");
  EXPECT_EQ(result.error().native_code(), 0);
}

Result<int> half(int value) {
  if (value % 2 != 0) return failf(ErrorCode::kInvalidArgument, "{} is odd", value);
  return value / 2;
}

Result<int> quarter(int value) {
  TANDEM_TRY(half(value));
  TANDEM_ASSIGN(const int first, half(value));
  TANDEM_ASSIGN(const int second, half(first));
  return second;
}

TEST(Error, TryAndAssignReturnEarly) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(3).error().text(), "3 is odd");
  EXPECT_EQ(quarter(6).error().text(), "3 is odd");
}

TEST(DType, NamesSizesAndKinds) {
  struct Row {
    DType dtype;
    std::string_view name;
    std::int64_t bytes;
    bool floating;
  };
  constexpr Row kRows[] = {{DType::kF32, "f32", 4, true},       {DType::kF16, "f16", 2, true},
                           {DType::kBF16, "bf16", 2, true},     {DType::kF8E4M3, "f8e4m3", 1, true},
                           {DType::kF8E5M2, "f8e5m2", 1, true}, {DType::kU8, "u8", 1, false},
                           {DType::kU32, "u32", 4, false},      {DType::kI8, "i8", 1, false},
                           {DType::kI32, "i32", 4, false},      {DType::kI64, "i64", 8, false},
                           {DType::kF64, "f64", 8, true},       {DType::kBool, "bool", 1, false}};
  static_assert(std::size(kRows) == kNumDTypes);
  std::set<DType> seen;
  for (const Row& row : kRows) {
    EXPECT_EQ(to_string(row.dtype), row.name);
    EXPECT_EQ(parse_dtype(row.name), row.dtype) << row.name;
    EXPECT_EQ(size_bytes(row.dtype), row.bytes) << row.name;
    EXPECT_EQ(is_floating(row.dtype), row.floating) << row.name;
    seen.insert(row.dtype);
  }
  EXPECT_EQ(seen.size(), std::size_t{kNumDTypes});
  for (const std::string_view name : {"", "F32", "f32 ", "f", "float", "u16"}) {
    EXPECT_EQ(parse_dtype(name), std::nullopt) << name;
  }
}

TEST(Support, SaysWhyNot) {
  EXPECT_TRUE(Support::yes());
  const Support no = Support::no("needs a GPU");
  EXPECT_FALSE(no);
  EXPECT_EQ(no.why_not, "needs a GPU");
}

std::string logged(LogLevel threshold, LogLevel level, std::string_view text) {
  testing::internal::CaptureStderr();
  log(threshold, level, text);
  return testing::internal::GetCapturedStderr();
}

TEST(Log, WritesOneLineFromTheThresholdOn) {
  const std::string line = logged(LogLevel::kWarning, LogLevel::kWarning, "rank {} is\nlate\r\n%s");
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_TRUE(line.ends_with("[tandem] [warning] rank {} is late  %s\n")) << line;
  EXPECT_NE(logged(LogLevel::kDebug, LogLevel::kDebug, "x").find("[debug] x"), std::string::npos);
  EXPECT_NE(logged(LogLevel::kInfo, LogLevel::kInfo, "x").find("[info] x"), std::string::npos);
  EXPECT_NE(logged(LogLevel::kWarning, LogLevel::kError, "x").find("[error] x"), std::string::npos);
}

TEST(Log, IsSilentBelowTheThreshold) {
  EXPECT_EQ(logged(LogLevel::kWarning, LogLevel::kInfo, "x"), "");
  EXPECT_EQ(logged(LogLevel::kOff, LogLevel::kError, "x"), "");
  EXPECT_EQ(logged(LogLevel::kOff, LogLevel::kOff, "x"), "");
}

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

TEST(UniqueFd, ClosesOnce) {
  const int first = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int second = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_TRUE(is_open(first) && is_open(second));
  {
    UniqueFd x(first);
    UniqueFd y = std::move(x);
    EXPECT_FALSE(x.valid());  // NOLINT(bugprone-use-after-move): what is promised of it
    EXPECT_EQ(y.get(), first);
    y = UniqueFd(second);
    EXPECT_FALSE(is_open(first));
    EXPECT_TRUE(is_open(second));
    UniqueFd& self = y;
    y = std::move(self);
    EXPECT_TRUE(is_open(second)) << "assigned to itself";
    UniqueFd z(y.release());
    EXPECT_FALSE(y.valid());
  }
  EXPECT_FALSE(is_open(second));
  EXPECT_FALSE(UniqueFd().valid());
}

TEST(Deadline, Passes) {
  using std::chrono::nanoseconds;
  const Deadline past = Deadline::after(nanoseconds(0));
  EXPECT_TRUE(past.expired());
  EXPECT_EQ(past.remaining(), nanoseconds(0));
  const Deadline later = Deadline::after(std::chrono::hours(1));
  EXPECT_FALSE(later.expired());
  EXPECT_GT(later.remaining(), std::chrono::minutes(59));
  EXPECT_LE(later.remaining(), std::chrono::hours(1));
  EXPECT_EQ(Deadline::earlier(past, later).at(), past.at());
  EXPECT_EQ(Deadline::earlier(later, past).at(), past.at());
}

TEST(Deadline, AnyDurationIsFine) {
  EXPECT_FALSE(Deadline::never().expired());
  EXPECT_FALSE(Deadline::after(std::chrono::nanoseconds::max()).expired());
  EXPECT_EQ(Deadline::after(std::chrono::nanoseconds::max()).at(), Deadline::never().at());
}

TEST(FunctionRef, CallsTheOriginal) {
  int calls = 0;
  auto add = [&](int by) { return calls += by; };
  const FunctionRef<int(int)> ref = add;
  const FunctionRef<int(int)> copy = ref;
  EXPECT_EQ(ref(2), 2);
  EXPECT_EQ(copy(3), 5);
  EXPECT_EQ(calls, 5);
}

}  // namespace
}  // namespace tandem
