// What a profiler is given where one listens: the range of an op with its rank, a range a step inside of it,
// and names of streams. This program is its own profiler, by NVTX's way for one that is linked in.
#include <gtest/gtest.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/try.hpp"
#include "conformance/fused_harness.hpp"

namespace tandem {
namespace {

/// What was pushed and popped, by thread, and how streams are called.
class Recorded {
 public:
  void push(const char* text) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string>& open = open_[std::this_thread::get_id()];
    ranges_.push_back(open.empty() ? text : open.back() + " / " + text);
    open.emplace_back(text);
  }
  void pop() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string>& open = open_[std::this_thread::get_id()];
    if (open.empty()) {
      ranges_.emplace_back("a range that nobody has begun");
    } else {
      open.pop_back();
    }
  }
  void name(const char* text) {
    const std::lock_guard lock(mutex_);
    names_.insert(text);
  }
  /// "outer / inner", in the order of their begins.
  [[nodiscard]] std::vector<std::string> ranges() const {
    const std::lock_guard lock(mutex_);
    return ranges_;
  }
  [[nodiscard]] std::set<std::string> names() const {
    const std::lock_guard lock(mutex_);
    return names_;
  }
  [[nodiscard]] bool are_all_closed() const {
    const std::lock_guard lock(mutex_);
    return std::all_of(open_.begin(), open_.end(), [](const auto& open) { return open.second.empty(); });
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::thread::id, std::vector<std::string>> open_;
  std::vector<std::string> ranges_;
  std::set<std::string> names_;
};

Recorded& recorded() {
  static Recorded all;
  return all;
}

int push(const char* text) {
  recorded().push(text);
  return 0;
}
int pop() {
  recorded().pop();
  return 0;
}
void name_stream(cudaStream_t, const char* name) {
  recorded().name(name);
}

template <class Function>
bool put(NvtxGetExportTableFunc_t tables, NvtxCallbackModule module, unsigned id, Function* function) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(module, &table, &size) == 0 || id >= size)
    return false;
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
  return true;
}

int listen(NvtxGetExportTableFunc_t tables) {
  return put(tables, NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangePushA, push) &&
                 put(tables, NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_RangePop, pop) &&
                 put(tables, NVTX_CB_MODULE_CUDART, NVTX_CBID_CUDART_NameCudaStreamA, name_stream)
             ? 1
             : 0;
}

/// A weak variable of NVTX's header, one of the whole program: read at the first range, which main() begins.
const bool kListens = [] {
  InitializeInjectionNvtx2_fnptr = listen;
  return true;
}();

constexpr std::int64_t kRows = 128;  ///< of a rank
constexpr std::int64_t kSide = 64;

TEST(FusedProfiler, OpsAndTheirStepsAreRangesThatNameTheRank) {
  if (testing::num_test_gpus() == 0) GTEST_SKIP() << "needs a GPU";
  ASSERT_TRUE(kListens);
  test::Complaints complaints;
  test::on_ranks(
      {.ranks = {{DeviceKind::kCuda}, 2}}, test::quick_config(), complaints,
      [&](test::RankContextOfTest& rank) -> Result<void> {
        const test::Guarded a(rank.device, Dims{kRows, kSide}, DType::kF32);
        const test::Guarded b(rank.device, Dims{kSide, kSide}, DType::kF32);
        const test::Guarded out(rank.device, Dims{2 * kRows, kSide}, DType::kF32);
        TANDEM_TRY(test::gather_and_multiply(a, b, out, Algorithm::kPipelined, rank.group, rank.stream));
        return rank.stream.synchronize();
      });
  EXPECT_EQ(complaints.text(), "");
  EXPECT_TRUE(recorded().are_all_closed());
  const std::vector<std::string> ranges = recorded().ranges();
  for (const std::string rank : {"0", "1"}) {
    const std::string peer = rank == "0" ? "1" : "0";
    const std::string op = "all_gather_matmul [256,64,64] f32 pipelined rank " + rank;
    std::vector<std::string> steps;
    for (const std::string& range : ranges) {
      if (range.rfind(op + " / ", 0) == 0) steps.push_back(range.substr(op.size() + 3));
    }
    EXPECT_EQ(std::count(ranges.begin(), ranges.end(), op), 1);
    const auto place_of = [&](const std::string& step) {
      return std::find_if(steps.begin(), steps.end(),
                          [&](const std::string& one) { return one.rfind(step, 0) == 0; }) -
             steps.begin();
    };
    const auto size = static_cast<std::ptrdiff_t>(steps.size());
    EXPECT_LT(place_of("cur: copy a -> published a"), place_of("cur: barrier 1"));
    EXPECT_LT(place_of("cur: barrier 1"), place_of("bk: get published a of rank " + peer));
    EXPECT_LT(place_of("bk: get published a of rank " + peer), size);
    EXPECT_LT(place_of("cur: barrier 0"), size);
    for (const std::string lane : {"cur", "bk"})
      EXPECT_EQ(recorded().names().count("rank " + rank + " " + lane), 1U) << lane;
  }
}

}  // namespace
}  // namespace tandem
