#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <tandem/base/config.hpp>
#include <vector>

namespace tandem {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr const char* kVariables[] = {
    "TANDEM_LOG",           "TANDEM_OP_TIMEOUT_MS",    "TANDEM_RENDEZVOUS_TIMEOUT_MS",
    "TANDEM_SPIN_US",       "TANDEM_LINK_DELAY_US",    "TANDEM_ISA",
    "TANDEM_FAULT",         "TANDEM_CUBLASLT_LIBRARY", "TANDEM_NCCL_LIBRARY",
    "TANDEM_NATIVE_PIECES", "TANDEM_RECORD_AFTER",     "TANDEM_RATES",
    "TANDEM_MAX_PLANS",     "TANDEM_BATCH_INVARIANT",  "TANDEM_MEASURE_GPUS",
    "TANDEM_NAN_CHECK",     "TANDEM_RECORDER_FOLDER",  "TANDEM_MPI_LIBRARY",
    "TANDEM_HOST"};

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() { clear(); }
  ~ConfigTest() override { clear(); }

  static Result<Config> with(const char* name, const char* value) {
    clear();
    ::setenv(name, value, 1);
    return Config::from_environment();
  }
  static Config good(const char* name, const char* value) {
    const auto config = with(name, value);
    EXPECT_TRUE(config.has_value()) << config.error().to_string();
    return config.value_or(Config());
  }
  static void expect_refused(const char* name, const char* value, const std::string& need) {
    const auto config = with(name, value);
    ASSERT_FALSE(config.has_value()) << name << "=" << value;
    EXPECT_EQ(config.error().to_string(),
              std::string("InvalidArgument: ") + name + "='" + value + "': need " + need);
  }

 private:
  static void clear() {
    for (const char* name : kVariables) ::unsetenv(name);
  }
};

TEST_F(ConfigTest, DefaultsAreFiniteWithoutVariables) {
  for (const char* name :
       {"TANDEM_UNRELATED", "TANDEM_LOG", "TANDEM_SPIN_US", "TANDEM_FAULT", "TANDEM_ISA"}) {
    const Config config = good(name, "");  // an empty variable counts as unset
    EXPECT_EQ(config.log_level, LogLevel::kWarning);
    EXPECT_EQ(config.op_timeout, milliseconds(30'000));
    EXPECT_EQ(config.rendezvous_timeout, milliseconds(60'000));
    EXPECT_EQ(config.spin, std::nullopt);
    EXPECT_EQ(config.link_delay, microseconds(0));
    EXPECT_EQ(config.isa, std::nullopt);
    EXPECT_EQ(config.fault, "");
    EXPECT_EQ(config.record_after, 3);
    EXPECT_EQ(config.max_plans, 4096);
    EXPECT_FALSE(config.batch_invariant);
    EXPECT_FALSE(config.nan_check);
    EXPECT_EQ(config.cublaslt_library, std::nullopt);
    EXPECT_EQ(config.nccl_library, std::nullopt);
  }
  ::unsetenv("TANDEM_UNRELATED");
}

TEST_F(ConfigTest, ReadsEveryVariable) {
  EXPECT_EQ(good("TANDEM_LOG", "debug").log_level, LogLevel::kDebug);
  EXPECT_EQ(good("TANDEM_LOG", "info").log_level, LogLevel::kInfo);
  EXPECT_EQ(good("TANDEM_LOG", "warning").log_level, LogLevel::kWarning);
  EXPECT_EQ(good("TANDEM_LOG", "error").log_level, LogLevel::kError);
  EXPECT_EQ(good("TANDEM_LOG", "off").log_level, LogLevel::kOff);
  EXPECT_EQ(good("TANDEM_OP_TIMEOUT_MS", "1").op_timeout, milliseconds(1));
  EXPECT_EQ(good("TANDEM_OP_TIMEOUT_MS", "86400000").op_timeout, std::chrono::hours(24));
  EXPECT_EQ(good("TANDEM_RENDEZVOUS_TIMEOUT_MS", "250").rendezvous_timeout, milliseconds(250));
  EXPECT_EQ(good("TANDEM_SPIN_US", "0").spin, microseconds(0));
  EXPECT_EQ(good("TANDEM_SPIN_US", "1000000").spin, std::chrono::seconds(1));
  EXPECT_EQ(good("TANDEM_LINK_DELAY_US", "60000000").link_delay, std::chrono::minutes(1));
  EXPECT_EQ(good("TANDEM_NATIVE_PIECES", "0").native_pieces, 0);
  EXPECT_EQ(good("TANDEM_NATIVE_PIECES", "32").native_pieces, 32);
  EXPECT_EQ(good("TANDEM_RECORD_AFTER", "0").record_after, 0);
  EXPECT_EQ(good("TANDEM_RECORDER_FOLDER", "/tmp/x").recorder_folder, "/tmp/x");
  EXPECT_TRUE(good("TANDEM_MEASURE_GPUS", "1").measure_gpus);
  EXPECT_FALSE(good("TANDEM_MEASURE_GPUS", "0").measure_gpus);
  EXPECT_EQ(good("TANDEM_RECORD_AFTER", "1000000").record_after, 1'000'000);
  EXPECT_EQ(good("TANDEM_MAX_PLANS", "1").max_plans, 1);
  EXPECT_EQ(good("TANDEM_MAX_PLANS", "1000000").max_plans, 1'000'000);
  EXPECT_FALSE(good("TANDEM_BATCH_INVARIANT", "0").batch_invariant);
  EXPECT_TRUE(good("TANDEM_BATCH_INVARIANT", "1").batch_invariant);
  EXPECT_FALSE(good("TANDEM_NAN_CHECK", "0").nan_check);
  EXPECT_TRUE(good("TANDEM_NAN_CHECK", "1").nan_check);
  EXPECT_EQ(good("TANDEM_ISA", "scalar").isa, "scalar");
  EXPECT_EQ(good("TANDEM_ISA", "avx2").isa, "avx2");
  EXPECT_EQ(good("TANDEM_ISA", "avx512").isa, "avx512");
  EXPECT_EQ(good("TANDEM_ISA", "avx512_bf16").isa, "avx512_bf16");
  EXPECT_EQ(good("TANDEM_CUBLASLT_LIBRARY", "/a/libcublasLt.so.13").cublaslt_library, "/a/libcublasLt.so.13");
  EXPECT_EQ(good("TANDEM_NCCL_LIBRARY", "/a/libnccl.so.2").nccl_library, "/a/libnccl.so.2");
  EXPECT_EQ(good("TANDEM_MPI_LIBRARY", "/a/libmpi.so.40").mpi_library, "/a/libmpi.so.40");
  EXPECT_EQ(good("TANDEM_HOST", "node7").host, "node7");
  EXPECT_EQ(good("TANDEM_FAULT", "put:0:*:delay:5,get:1:2:die").fault, "put:0:*:delay:5,get:1:2:die");
}

TEST_F(ConfigTest, RefusesBadCounts) {
  struct Count {
    const char* name;
    std::string need;
    std::vector<const char*> out_of_range;
  };
  const Count counts[] = {
      {"TANDEM_OP_TIMEOUT_MS", "a whole number from 1 to 86400000", {"0", "86400001"}},
      {"TANDEM_RENDEZVOUS_TIMEOUT_MS", "a whole number from 1 to 86400000", {"0", "86400001"}},
      {"TANDEM_SPIN_US", "a whole number from 0 to 1000000", {"1000001"}},
      {"TANDEM_LINK_DELAY_US", "a whole number from 0 to 60000000", {"60000001"}},
      {"TANDEM_RECORD_AFTER", "a whole number from 0 to 1000000", {"1000001"}},
      {"TANDEM_MEASURE_GPUS", "a whole number from 0 to 1", {"2"}},
      {"TANDEM_MAX_PLANS", "a whole number from 1 to 1000000", {"0", "1000001"}},
      {"TANDEM_NATIVE_PIECES", "a whole number from 0 to 32", {"33"}},
      {"TANDEM_BATCH_INVARIANT", "a whole number from 0 to 1", {"2"}},
      {"TANDEM_NAN_CHECK", "a whole number from 0 to 1", {"2"}},
  };
  for (const Count& count : counts) {
    for (const char* value : {"-1", "abc", "1ms", " 1", "1 ", "1.5", "0x10", "99999999999999999999", "inf"}) {
      expect_refused(count.name, value, count.need);
    }
    for (const char* value : count.out_of_range) expect_refused(count.name, value, count.need);
  }
}

TEST_F(ConfigTest, RefusesUnknownNames) {
  for (const char* value : {"DEBUG", "warn", "1", "off "}) {
    expect_refused("TANDEM_LOG", value, "debug, info, warning, error or off");
  }
  for (const char* value : {"AVX2", "sse", "avx512f"}) {
    expect_refused("TANDEM_ISA", value, "scalar, avx2, avx512 or avx512_bf16");
  }
}

TEST_F(ConfigTest, ReadsSpeeds) {
  const CoreRates rates = good("TANDEM_RATES", "mm=190,pack=2.5,mm_f32=1e2,copy=6").core_rates;
  EXPECT_EQ(rates[CoreRate::kMmBF16], 190e3);
  EXPECT_EQ(rates[CoreRate::kMmScaled], 190e3);
  EXPECT_EQ(rates[CoreRate::kMmF32], 100e3) << "what comes later counts";
  EXPECT_EQ(rates[CoreRate::kPackF16], 2.5e3);
  EXPECT_EQ(rates[CoreRate::kCopy], 6e3);
  EXPECT_FALSE(rates.knows(CoreRate::kSumF32));
  const std::string all = to_string(rates);
  EXPECT_EQ(good("TANDEM_RATES", all.c_str()).core_rates, rates) << all;
  EXPECT_EQ(good("TANDEM_RATES", "").core_rates, CoreRates());
}

TEST_F(ConfigTest, RefusesBadSpeeds) {
  for (const char* value :
       {"fast", "mm", "mm=", "=5", "mm=0", "mm=-1", "mm=nan", "mm=inf", "mm=1e7", "mm=1e-4", "mm=5x", "mm= 5",
        "mm_f64=5", "mm_=5", "copy=5,", ",copy=5", "copy=5;mm=5", "MM=5"}) {
    const auto config = with("TANDEM_RATES", value);
    ASSERT_FALSE(config.has_value()) << value;
    EXPECT_EQ(config.error().code(), ErrorCode::kInvalidArgument);
    const std::string& text = config.error().text();
    EXPECT_EQ(text.rfind("TANDEM_RATES: '", 0), 0U) << text;
    EXPECT_NE(
        text.find(
            "need name=speed, with a speed from 0.001 to 1000000 and a name out of mm, pack, sum, mm_f32"),
        std::string::npos)
        << text;
  }
}

TEST_F(ConfigTest, RefusesBadFaults) {
  const auto config = with("TANDEM_FAULT", "put:0:1:explode");
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(
      config.error().to_string(),
      "InvalidArgument: TANDEM_FAULT: fault 'put:0:1:explode' is not of the form point:rank:nth:action[:ms] "
      "with action die, stop, delay (needs ms) or corrupt");
}

}  // namespace
}  // namespace tandem
