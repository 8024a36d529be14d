// Every public call that writes memory, with its operands laid over each other in every way: what shares a
// byte is refused before anything is enqueued, what shares none runs and is right. Read-only outputs are
// refused too, and read-only inputs are not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "support/writing_calls.hpp"

namespace tandem::testing {
namespace {

using Needs = WritingCall::Needs;
using Views = std::vector<TensorView>;

constexpr std::int64_t kSlotBytes = 32 * 1024;  // one operand, apart from the others
constexpr std::int64_t kMargin = 4 * 1024;      // before it
constexpr std::int64_t kNumSlots = 16;          // the last one is where strided views are read and written

std::byte* bytes_behind(const TensorView& view, std::int64_t num_bytes) {
  return view.data_as<std::byte>() + num_bytes;
}

std::int64_t rounded_up(std::int64_t num_bytes) {
  return (num_bytes + 63) / 64 * 64;
}

/// How the operands of a call lie.
struct Arrangement {
  std::string what;
  Views views;
  bool is_refused = false;
  ErrorCode refusal = ErrorCode::kInvalidArgument;
  std::vector<std::string> pieces = {};  ///< of the refusal
  int repeated = -1;                     ///< the input whose elements are all its first one
};

/// Operands in slots of their own, and everything that can be done to that.
class Arrangements {
 public:
  Arrangements(const WritingCall& call, const TensorView& block) : call_(call) {
    for (std::size_t i = 0; i < call.operands.size(); ++i) {
      std::byte* const slot = bytes_behind(block, static_cast<std::int64_t>(i) * kSlotBytes + kMargin);
      apart_.push_back(TensorView::contiguous(slot, operand(i).sizes, operand(i).dtype, block.device));
    }
  }

  [[nodiscard]] const Views& apart() const { return apart_; }

  /// Of each output with each other operand, of outputs alone and of inputs alone.
  [[nodiscard]] std::vector<Arrangement> all() const {
    std::vector<Arrangement> all = {with_read_only_inputs()};
    for (std::size_t i = 0; i < call_.operands.size(); ++i) {
      if (operand(i).is_output) add_over_itself(i, all);
      if (operand(i).is_output) add_read_only(i, all);
      if (!operand(i).is_output && operand(i).any_strides) add_repeated(i, all);
      for (std::size_t other = 0; other < call_.operands.size(); ++other) {
        if (other == i || !operand(i).is_output) continue;
        add_moved(i, other, all);
        if (operand(other).any_strides) add_in_holes(i, other, all);
        if (operand(i).any_strides && operand(other).any_strides) add_interleaved(i, other, all);
      }
    }
    return all;
  }

  /// The output, moved to so many bytes behind the start of the other operand.
  [[nodiscard]] Arrangement moved(std::size_t output, std::size_t other, std::int64_t num_bytes) const {
    Arrangement at{fmt::format("{} {} bytes behind the start of {}", operand(output).name, num_bytes,
                               operand(other).name),
                   apart_};
    at.views[output].data = bytes_behind(apart_[other], num_bytes);
    at.is_refused = num_bytes > -apart_[output].size_bytes() && num_bytes < apart_[other].size_bytes() &&
                    !(num_bytes == 0 && may_be_the_same(output, other));
    at.pieces = {operand(output).name + " (", operand(other).name + " (", address(at.views[output]),
                 address(at.views[other])};
    return at;
  }

 private:
  [[nodiscard]] const Operand& operand(std::size_t idx) const { return call_.operands[idx]; }
  [[nodiscard]] bool may_be_the_same(std::size_t output, std::size_t other) const {
    return std::count(call_.in_place.begin(), call_.in_place.end(),
                      std::pair(operand(output).name, operand(other).name)) > 0;
  }
  static std::string address(const TensorView& view) {
    return fmt::format("bytes at {}", static_cast<const void*>(view.data));
  }

  void add_moved(std::size_t output, std::size_t other, std::vector<Arrangement>& all) const {
    const std::int64_t others = apart_[other].size_bytes();
    const std::int64_t outputs = apart_[output].size_bytes();
    const std::int64_t element = size_bytes(operand(other).dtype);
    std::set<std::int64_t> distances = {0, others / element / 2 * element, others - element};
    if (others > element) distances.insert(element);
    distances.insert(size_bytes(operand(output).dtype) - outputs);  // its last element is the other's first
    distances.insert({others, -outputs});                           // side by side
    for (const std::int64_t distance : distances) all.push_back(moved(output, other, distance));
  }

  void add_interleaved(std::size_t output, std::size_t other, std::vector<Arrangement>& all) const {
    Arrangement at{fmt::format("{} between the elements of {}", operand(output).name, operand(other).name),
                   apart_};
    const std::int64_t unit = std::max(size_bytes(operand(output).dtype), size_bytes(operand(other).dtype));
    at.views[output].data = bytes_behind(apart_[other], unit);
    for (const std::size_t idx : {output, other}) {
      for (int d = 0; d < at.views[idx].dim(); ++d)
        at.views[idx].strides[d] *= 2 * unit / size_bytes(operand(idx).dtype);
    }
    all.push_back(std::move(at));
  }

  void add_in_holes(std::size_t output, std::size_t other, std::vector<Arrangement>& all) const {
    const Dims& sizes = operand(other).sizes;
    if (sizes.size() < 2 || sizes[0] < 2) return;
    Arrangement at{fmt::format("{} behind the first row of {}", operand(output).name, operand(other).name),
                   apart_};
    const std::int64_t row_bytes = rounded_up(apart_[other].size_bytes() / sizes[0]);
    at.views[output].data = bytes_behind(apart_[other], row_bytes);
    at.views[other].strides[0] =
        (row_bytes + rounded_up(apart_[output].size_bytes())) / size_bytes(operand(other).dtype);
    all.push_back(std::move(at));
  }

  void add_over_itself(std::size_t output, std::vector<Arrangement>& all) const {
    if (operand(output).is_pointer) return;
    const auto add = [&](int d, std::int64_t stride) {
      Arrangement at{fmt::format("{} with stride {} in dim {}", operand(output).name, stride, d), apart_,
                     true};
      at.views[output].strides[d] = stride;
      at.pieces = {"strides " + to_string(at.views[output].strides)};
      all.push_back(std::move(at));
    };
    const Dims& sizes = operand(output).sizes;
    for (int d = 0; d < sizes.size(); ++d) {
      if (sizes[d] > 1) add(d, 0);
    }
    if (sizes.size() > 1 && sizes[sizes.size() - 2] > 1) add(sizes.size() - 2, sizes.back() - 1);
  }

  void add_read_only(std::size_t output, std::vector<Arrangement>& all) const {
    if (operand(output).is_pointer) return;
    Arrangement at{operand(output).name + " is read-only", apart_, true};
    at.views[output].is_read_only = true;
    at.pieces = {operand(output).name + " is written and read-only"};
    all.push_back(std::move(at));
  }

  [[nodiscard]] Arrangement with_read_only_inputs() const {
    Arrangement at{"all inputs are read-only", apart_};
    for (std::size_t i = 0; i < at.views.size(); ++i) at.views[i].is_read_only = !operand(i).is_output;
    return at;
  }

  void add_repeated(std::size_t input, std::vector<Arrangement>& all) const {
    Arrangement at{operand(input).name + " with stride 0", apart_};
    for (int d = 0; d < at.views[input].dim(); ++d) at.views[input].strides[d] = 0;
    at.repeated = static_cast<int>(input);
    if (call_.reads_by_engines && at.views[input].device.kind == DeviceKind::kCuda) {
      at.is_refused = true;
      at.refusal = ErrorCode::kUnsupported;
      at.pieces = {operand(input).name, "strides [0, 0]", "copy engines"};
    }
    all.push_back(std::move(at));
  }

  const WritingCall& call_;
  Views apart_;
};

void throw_if_failed(const Result<void>& result) {
  if (!result) throw std::runtime_error(result.error().to_string());
}

/// A call on one rank, on a block that has room for all its operands.
class Site {
 public:
  Site(SymmRank& rank, const WritingCall& call)
      : rank_(rank),
        call_(call),
        block_(rank.empty({kNumSlots * kSlotBytes}, DType::kU8)),
        handle_(rank.meet(block_)),
        arrangements_(call, block_.view()) {}

  [[nodiscard]] const Arrangements& arrangements() const { return arrangements_; }

  /// What the outputs hold behind a call with these views.
  Result<std::vector<std::vector<std::byte>>> outputs_with(const Views& views, int repeated) {
    fill(views, repeated);
    if (auto ran = run(views); !ran) return tl::unexpected(ran.error());
    std::vector<std::vector<std::byte>> outputs;
    for (std::size_t i = 0; i < views.size(); ++i) {
      if (!call_.operands[i].is_output) continue;
      throw_if_failed(rank_.stream->copy(views[i], scratch(i)));
      throw_if_failed(rank_.finish());
      outputs.push_back(rank_.read<std::byte>(scratch(i)));
    }
    return outputs;
  }

  Result<void> run(const Views& views) {
    CallSite at{rank_, handle_, views};
    const auto made = call_.make(at);
    const auto finished = rank_.finish();
    return made ? finished : made;
  }

  /// Inputs have values of their own, outputs zeros.
  void fill(const Views& views, int repeated) {
    for (const bool outputs : {true, false}) {
      for (std::size_t i = 0; i < views.size(); ++i) {
        if (call_.operands[i].is_output == outputs) fill(i, views[i], static_cast<int>(i) == repeated);
      }
    }
    throw_if_failed(rank_.finish());
  }

  [[nodiscard]] std::vector<std::byte> image() const { return rank_.read<std::byte>(block_.view()); }

  void expect(const Arrangement& at) {
    SCOPED_TRACE(at.what);
    if (at.is_refused) return expect_refused(at);
    const auto got = outputs_with(at.views, at.repeated);
    ASSERT_TRUE(got) << got.error().to_string();
    const auto want = outputs_with(arrangements_.apart(), at.repeated);
    ASSERT_TRUE(want) << want.error().to_string();
    EXPECT_TRUE(*got == *want) << "wrong values";
  }

  void expect_refused(const Arrangement& at) {
    const auto before = image();
    const auto refused = run(at.views);
    ASSERT_FALSE(refused) << "ran";
    EXPECT_EQ(to_string(refused.error().code()), to_string(at.refusal));
    for (const std::string& piece : at.pieces) {
      EXPECT_NE(refused.error().text().find(piece), std::string::npos)
          << piece << " is not in: " << refused.error().text();
    }
    EXPECT_TRUE(image() == before) << "changed memory";
  }

 private:
  [[nodiscard]] TensorView scratch(std::size_t idx) const {
    const Operand& operand = call_.operands[idx];
    return TensorView::contiguous(bytes_behind(block_.view(), (kNumSlots - 1) * kSlotBytes), operand.sizes,
                                  operand.dtype, block_.view().device);
  }

  /// Small whole numbers, of which every sum here is exact; `repeated`: the same one everywhere.
  void fill(std::size_t idx, const TensorView& view, bool repeated) {
    const Operand& operand = call_.operands[idx];
    const Tensor values = Tensor::host(operand.sizes, DType::kF32);
    const Tensor rounded = Tensor::host(operand.sizes, operand.dtype);
    for (std::int64_t i = 0; i < view.numel(); ++i) {
      const std::int64_t seed = repeated ? 1 : i + rank_.rank();
      const bool is_zero = operand.is_output || operand.dtype == DType::kU32;
      values.view().data_as<float>()[i] =
          is_zero ? 0.0F : static_cast<float>((seed * 7 + static_cast<std::int64_t>(idx) * 3) % 5 - 1);
    }
    throw_if_failed(convert(values.view(), rounded.view()));
    TensorView from = scratch(idx);
    throw_if_failed(rank_.device->copy_from_host(rounded.view().data, from));
    TensorView to = view;
    to.is_read_only = false;
    for (int d = 0; d < to.dim(); ++d) {
      if (to.stride(d) == 0) from = from.narrow(d, 0, 1), to = to.narrow(d, 0, 1);
    }
    throw_if_failed(rank_.stream->copy(from, to));
    throw_if_failed(rank_.finish());
  }

  SymmRank& rank_;
  const WritingCall& call_;
  Tensor block_;
  std::shared_ptr<symm::Handle> handle_;
  Arrangements arrangements_;
};

using CallCase = std::tuple<int, RankCase>;  // which of writing_calls()

std::string name_of(const ::testing::TestParamInfo<CallCase>& info) {
  const WritingCall call = writing_calls(1)[static_cast<std::size_t>(std::get<0>(info.param))];
  return call.name + (call.variant.empty() ? "" : "_" + call.variant) + "_" +
         to_string(std::get<1>(info.param));
}

std::vector<int> calls_that(const std::function<bool(const WritingCall&)>& fit) {
  std::vector<int> found;
  const auto calls = writing_calls(1);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (fit(calls[i])) found.push_back(static_cast<int>(i));
  }
  return found;
}
bool is_any(const WritingCall&) {
  return true;
}
bool is_collective(const WritingCall& call) {
  return call.needs == Needs::kOtherRanks;
}
bool is_collective_in_place(const WritingCall& call) {
  return is_collective(call) && !call.in_place.empty();
}

class BackendOverlap : public ::testing::TestWithParam<CallCase> {
 protected:
  [[nodiscard]] RankCase ranks() const { return std::get<1>(GetParam()); }
  [[nodiscard]] WritingCall call() const {
    return writing_calls(ranks().size)[static_cast<std::size_t>(std::get<0>(GetParam()))];
  }
};

class BackendOverlapOfAnyCall : public BackendOverlap {};
INSTANTIATE_TEST_SUITE_P(Calls, BackendOverlapOfAnyCall,
                         ::testing::Combine(::testing::ValuesIn(calls_that(is_any)),
                                            ::testing::ValuesIn(rank_cases({1}))),
                         name_of);

TEST_P(BackendOverlapOfAnyCall, IsRefusedAndNothingElseIs) {
  std::string why_not;
  expect_ok(run_symm_ranks(ranks(), {}, [&](SymmRank& rank) -> Result<void> {
    const WritingCall tested = call();
    if (tested.needs == Needs::kHostMemory && !rank.device->is_host_accessible()) {
      why_not = "works on host memory";
      return {};
    }
    Site site(rank, tested);
    const auto apart = site.outputs_with(site.arrangements().apart(), -1);
    if (!apart && apart.error().code() == ErrorCode::kUnsupported) {
      why_not = apart.error().text();
      return {};
    }
    if (!apart) return tl::unexpected(apart.error());
    for (const Arrangement& at : site.arrangements().all()) site.expect(at);
    return {};
  }));
  if (!why_not.empty()) GTEST_SKIP() << why_not;
}

class BackendOverlapOfACollective : public BackendOverlap {};
INSTANTIATE_TEST_SUITE_P(Calls, BackendOverlapOfACollective,
                         ::testing::Combine(::testing::ValuesIn(calls_that(is_collective)),
                                            ::testing::ValuesIn(rank_cases({2}))),
                         name_of);

/// The first operand that is an output, or that is none.
std::size_t first_that(const WritingCall& call, bool is_output) {
  std::size_t idx = 0;
  while (call.operands[idx].is_output != is_output) ++idx;
  return idx;
}

TEST_P(BackendOverlapOfACollective, OnOneRankReachesTheOthers) {
  Config config;
  config.op_timeout = config.rendezvous_timeout = std::chrono::seconds(20);
  std::atomic<bool> is_there = true;
  expect_ok(run_symm_ranks(ranks(), config, [&](SymmRank& rank) -> Result<void> {
    const WritingCall tested = call();
    Site site(rank, tested);
    // All ranks or none: what a device cannot run is refused before any rank waits.
    if (auto apart = site.run(site.arrangements().apart());
        !apart && apart.error().code() == ErrorCode::kUnsupported) {
      is_there = false;
      return {};
    }
    const Arrangement shifted = site.arrangements().moved(first_that(tested, true), first_that(tested, false),
                                                          size_bytes(tested.operands[0].dtype));
    if (rank.rank() == 1) {
      site.expect_refused(shifted);
    } else {
      expect_error(site.run(site.arrangements().apart()), ErrorCode::kMismatch, "rank 1");
    }
    return {};
  }));
  if (!is_there) GTEST_SKIP() << "this device cannot run it yet";
}

class BackendOverlapInPlace : public BackendOverlap {};
INSTANTIATE_TEST_SUITE_P(Calls, BackendOverlapInPlace,
                         ::testing::Combine(::testing::ValuesIn(calls_that(is_collective_in_place)),
                                            ::testing::ValuesIn(rank_cases({2}))),
                         name_of);

TEST_P(BackendOverlapInPlace, IsTakenForTheRanksOwnPart) {
  expect_ok(run_symm_ranks(ranks(), {}, [&](SymmRank& rank) -> Result<void> {
    const WritingCall tested = call();
    Site site(rank, tested);
    const auto want = site.outputs_with(site.arrangements().apart(), -1);
    if (!want) return tl::unexpected(want.error());
    const std::size_t output = first_that(tested, true);
    const std::size_t input = first_that(tested, false);
    Views views = site.arrangements().apart();
    const std::int64_t input_bytes = views[input].size_bytes();
    const std::int64_t output_bytes = views[output].size_bytes();
    views[output].data = bytes_behind(
        views[input], input_bytes < output_bytes ? -rank.rank() * input_bytes : rank.rank() * output_bytes);
    const auto got = site.outputs_with(views, -1);
    if (!got) return tl::unexpected(got.error());
    EXPECT_TRUE(*got == *want) << "wrong values on rank " << rank.rank();
    return {};
  }));
}

// ---- The table has all calls ----

/// Public functions that take tensors, memory or streams, and write to no tensor of their caller's.
const std::set<std::string> kWriteNothing = {
    "coll/collectives.hpp: low_contention_barriers",
    // Parts of an op, whose tensors it has checked.
    "bootstrap/transport.hpp: await", "bootstrap/transport.hpp: start",
    // Nothing at all, or files.
    "cuda/native_stream.hpp: native_stream", "fused/all_gather_matmul.hpp: gathered_layout",
    "fused/all_gather_matmul.hpp: output_layout", "fused/all_gather_matmul.hpp: plan",
    "fused/all_gather_scaled_matmul.hpp: also_gathered_layout",
    "fused/all_gather_scaled_matmul.hpp: detect_scale_mode",
    "fused/all_gather_scaled_matmul.hpp: gathered_layout",
    "fused/all_gather_scaled_matmul.hpp: output_layout", "fused/all_gather_scaled_matmul.hpp: plan",
    "fused/matmul_reduce_scatter.hpp: output_layout", "fused/matmul_reduce_scatter.hpp: plan",
    "fused/matmul_all_reduce.hpp: output_layout", "fused/matmul_all_reduce.hpp: plan",
    "fused/scaled_matmul_all_reduce.hpp: output_layout", "fused/scaled_matmul_all_reduce.hpp: plan",
    "fused/scaled_matmul_reduce_scatter.hpp: output_layout", "fused/scaled_matmul_reduce_scatter.hpp: plan",
    "gemm/async_input_mm.hpp: problem_of", "gemm/matmul_4bit.hpp: pack_4bit_weight",
    "gemm/matmul_4bit.hpp: problem_of", "gemm/matmul_4bit.hpp: quantize_weight_4bit", "gemm/mm.hpp: prepare",
    "gemm/mm.hpp: problem_of", "gemm/packed_b.hpp: pack_b", "gemm/scaled_mm.hpp: prepare",
    "gemm/scaled_mm.hpp: problem_of", "io/npy.hpp: write_npy", "symm/symmetric_memory.hpp: rendezvous",
    // Tensors that they make themselves.
    "fused/layout.hpp: make_contiguous_for_perm", "fused/layout.hpp: restride_for_all_gather_matmul",
    "fused/layout.hpp: restride_for_matmul_reduce_scatter", "graph/interpreter/execute.hpp: execute",
    "program/host/executor.hpp: create", "fused/all_gather_matmul.hpp: make_gathered",
    "fused/all_gather_matmul.hpp: make_output", "fused/all_gather_scaled_matmul.hpp: make_gathered",
    "fused/all_gather_scaled_matmul.hpp: make_output", "fused/matmul_reduce_scatter.hpp: make_output",
    "fused/scaled_matmul_reduce_scatter.hpp: make_output", "fused/matmul_all_reduce.hpp: make_output",
    "fused/scaled_matmul_all_reduce.hpp: make_output",
    // Tensors that another library writes to.
    "dlpack.hpp: to_dlpack", "dlpack.hpp: to_dlpack_versioned",
    // Signals.
    "device/stream.hpp: wait", "symm/handle.hpp: barrier", "symm/handle.hpp: check_usable",
    "symm/handle.hpp: put_signal", "symm/handle.hpp: wait_signal", "symm/handle.hpp: watch",
    // What the caller's own code does, and calls that were checked when they were recorded.
    "cpu/launch.hpp: launch", "device/graph.hpp: launch"};

/// `text` without comments.
std::string without_comments(const std::string& text) {
  std::string code;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) code += line.substr(0, line.find("//")) + ' ';
  return code;
}

/// "device/stream.hpp: copy" of every declaration in a header that could write to memory of its caller's: it
/// takes a stream, a tensor, arguments with tensors, or a pointer.
std::set<std::string> declarations_that_could_write(const std::string& header, const std::string& text) {
  std::set<std::string> found;
  const std::string code = without_comments(text);
  const std::string marker = "[[nodiscard]]";
  for (std::size_t at = code.find(marker); at != std::string::npos; at = code.find(marker, at + 1)) {
    const std::size_t begin = at + marker.size();
    const std::string declaration = code.substr(begin, code.find_first_of(";{", begin) - begin);
    const std::size_t open = declaration.find('(');
    if (open == std::string::npos || declaration.find("Result<") == std::string::npos) continue;
    const std::size_t name = declaration.find_last_of(" *&", open - 1) + 1;
    const std::string parameters = declaration.substr(open);
    for (const char* const type : {"Stream&", "TensorView", "Args&", "void*", "Tensor&"}) {
      if (parameters.find(type) != std::string::npos)
        found.insert(header + ": " + declaration.substr(name, open - name));
    }
  }
  return found;
}

TEST(BackendOverlapTable, HasEveryPublicCallThatWrites) {
  std::set<std::string> listed = kWriteNothing;
  for (const WritingCall& call : writing_calls(1)) listed.insert(call.header + ": " + call.name);
  std::set<std::string> declared;
  const std::filesystem::path folder = TANDEM_PUBLIC_HEADERS;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".hpp") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    declared.merge(declarations_that_could_write(entry.path().lexically_relative(folder).string(), text));
  }
  for (const std::string& name : declared) {
    EXPECT_EQ(listed.count(name), 1U) << name << " is neither in writing_calls() nor in kWriteNothing";
  }
  for (const std::string& name : listed) EXPECT_EQ(declared.count(name), 1U) << name << " is not declared";
}

}  // namespace
}  // namespace tandem::testing
