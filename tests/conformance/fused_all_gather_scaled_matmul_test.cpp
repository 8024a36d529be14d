#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <string>
#include <tandem/base/convert.hpp>
#include <utility>
#include <vector>

#include "conformance/fused_harness.hpp"
#include "harness/failure.hpp"
#include "harness/reference.hpp"

// fused_all_gather_scaled_matmul against float64 from the same f8 bits, as fused_all_gather_matmul_test.cpp:
// every scale mode, every dim, every algorithm, any number of ranks.

namespace tandem {
namespace {

using test::Complaints;
using test::Guarded;
using test::JobCase;
using test::RankContextOfTest;
using test::with_last;

/// How the scale of a is given.
enum class Given { kShape, kFlat, kColumnASlice };

struct AlsoGathered {
  DType dtype = DType::kBF16;
  std::int64_t last = 3;
};

struct Case {
  Dims sizes;  ///< of all of a
  int dim = 0;
  ScaleMode mode = ScaleMode::kTensorwise;
  bool detect = false;  ///< scale_mode is left to the op
  Given given = Given::kShape;
  DType a = DType::kF8E4M3;
  DType b = DType::kF8E4M3;
  std::optional<DType> quantize = {};       ///< a is of a wider type, and rounded behind the gather
  std::vector<DType> out = {DType::kBF16};  ///< one a b; b_i has n + i columns, on rank r r more
  std::int64_t n = 5;
  bool for_native = false;  ///< b is column-major, of 8 columns more where others have one more
  bool fast_accum = false;
  bool b_rowwise = false;     ///< by blocks: a scale for each column, not for each 128 of them
  bool bias = false;          ///< of every second b
  bool result_scale = false;  ///< the same
  bool gathered = false;
  std::vector<AlsoGathered> also_gather = {};
  bool spread = false;  ///< no operand is contiguous
  float magnitude = 1;  ///< scales are that much larger

  [[nodiscard]] bool gathers_last() const { return dim == sizes.size() - 1; }
  [[nodiscard]] bool is_by_blocks() const {
    return mode == ScaleMode::kBlockwiseSharded || mode == ScaleMode::kBlockwiseReplicated;
  }
  [[nodiscard]] bool is_sharded() const {
    return mode == ScaleMode::kRowwiseSharded || mode == ScaleMode::kBlockwiseSharded;
  }
};

std::string to_text(const Case& c, int world) {
  std::string text =
      fmt::format("all_gather_scaled_matmul {} * {} {} dim {} w{} {}{}", to_string(c.a), to_string(c.b),
                  to_string(c.sizes), c.dim, world, to_string(c.mode), c.detect ? " detected" : "");
  if (c.quantize) text += fmt::format(" quantize {}", to_string(*c.quantize));
  for (const DType out : c.out) text += fmt::format(" {}", to_string(out));
  return text + (c.given == Given::kFlat ? " 2-D" : "") + (c.bias ? " bias" : "") +
         (c.result_scale ? " result_scale" : "") + (c.spread ? " spread" : "") +
         (c.fast_accum ? " fast" : "");
}

/// One rank's tensors of a case, and the whole of those that are gathered.
class Operands {
 public:
  Operands(RankContextOfTest& rank, const Case& c)
      : rank_(rank), case_(c), mine_(shard_of(c.sizes[c.dim], rank.group.size(), rank.group.rank())) {
    a = factor_ = whole(c.sizes, c.a, 1);
    args.a = load(part_of(a));
    args.gather_dim = c.dim;
    args.gather_size = c.sizes[c.dim];
    if (c.quantize)
      quantize_a();
    else
      add_scale_of_a();
    for (int i = 0; i < static_cast<int>(c.out.size()); ++i) add_b(i);
    for (int i = 0; i < static_cast<int>(c.also_gather.size()); ++i) add_beside(i);
    args.b = b_;
    args.b_scale = b_scales_;
    args.bias = biases_;
    args.result_scale = result_scales_;
    args.fast_accum = c.fast_accum;
    args.also_gather = also_gather_;
  }

  AllGatherScaledMatmulArgs args;
  TensorView a;
  std::vector<TensorView> beside;
  std::vector<harness::ProductReference> products;  ///< of each b

 private:
  TensorView hold(Tensor tensor) { return held_.emplace_back(std::move(tensor)).view(); }
  TensorView whole(const Dims& sizes, DType dtype, int seed) {
    return hold(test::generated(sizes, dtype, seed));
  }
  TensorView scale(const Dims& sizes, int seed, float magnitude = 1) {
    return hold(test::generated_scale(sizes, seed, magnitude));
  }
  /// To this rank's memory.
  TensorView load(const TensorView& values) {
    const Layout layout = case_.spread ? test::spread_out(values.sizes) : test::dense(values.sizes);
    return tensors_.emplace_back(rank_.device, layout, values).view();
  }
  [[nodiscard]] TensorView part_of(const TensorView& whole) const {
    return whole.narrow(case_.dim, mine_.offset, mine_.size);
  }

  [[nodiscard]] Dims scale_sizes() const {
    const Case& c = case_;
    if (c.mode == ScaleMode::kTensorwise) return {1};
    if (c.is_by_blocks()) return with_last(c.sizes, gemm::num_scale_blocks(c.sizes.back()));
    const bool by_slice = c.gathers_last() && (c.is_sharded() || c.given == Given::kColumnASlice);
    return with_last(c.sizes, by_slice ? rank_.group.size() : 1);
  }
  [[nodiscard]] Dims b_scale_sizes(std::int64_t n) const {
    const Case& c = case_;
    if (!c.is_by_blocks()) return c.b_rowwise ? Dims{1, n} : Dims{};
    return {gemm::num_scale_blocks(c.sizes.back()), c.b_rowwise ? n : gemm::num_scale_blocks(n)};
  }

  /// As one rank does it that has all of a.
  void quantize_a() {
    const Case& c = case_;
    args.quantize = c.quantize;
    args.scale_mode = c.detect ? ScaleMode::kDetect : c.mode;
    factor_ = hold(Tensor::host(c.sizes, *c.quantize));
    const std::int64_t scales = c.is_by_blocks() ? gemm::num_scale_blocks(c.sizes.back()) : 1;
    a_scale_ = hold(Tensor::host(with_last(c.sizes, scales), DType::kF32));
    const auto device = harness::take(open_device({DeviceKind::kCpu, 0}, {}));
    const auto stream = harness::take(device->create_stream());
    harness::take(gemm::quantize_rows({.input = a, .out = factor_, .scale = *a_scale_}, *stream));
    harness::take(stream->synchronize());
  }

  void add_scale_of_a() {
    const Case& c = case_;
    if (c.mode == ScaleMode::kNone) return;
    args.scale_mode = c.detect ? ScaleMode::kDetect : c.mode;
    a_scale_ = scale(scale_sizes(), 2, c.magnitude);
    TensorView own = *a_scale_;
    if (c.is_sharded()) {
      const Shard slice = shard_of(own.sizes.back(), rank_.group.size(), rank_.group.rank());
      own = c.gathers_last() ? own.narrow(c.dim, slice.offset, slice.size) : part_of(own);
    }
    if (c.given == Given::kFlat) {
      const std::int64_t rows = numel(with_last(own.sizes, 1));
      const TensorView flat = hold(Tensor::host({rows, own.sizes.back()}, DType::kF32));
      harness::take(convert(own, TensorView::contiguous(flat.data, own.sizes, DType::kF32)));
      own = flat;
    }
    args.a_scale = load(own);
  }

  void add_b(int i) {
    const Case& c = case_;
    const std::int64_t n = c.n + (i + rank_.group.rank()) * (c.for_native ? 8 : 1);
    const bool has_epilogue = i % 2 == 0;
    harness::ProductTensors product{.a = factor_,
                                    .b = whole({c.sizes.back(), n}, c.b, 100 + i),
                                    .a_scale = a_scale_,
                                    .by_tensor_cores = rank_.device.id().kind == DeviceKind::kCuda,
                                    .scale_block = c.is_by_blocks() ? gemm::kScaleBlock : 0};
    b_.push_back(c.for_native ? load(product.b.movedim(0, 1)).movedim(0, 1) : load(product.b));
    if (c.mode != ScaleMode::kNone) {
      product.b_scale = scale(b_scale_sizes(n), 200 + i);
      b_scales_.push_back(load(*product.b_scale));
    }
    if (c.bias) {
      biases_.emplace_back();
      // Not the type of any output.
      if (has_epilogue) product.bias = whole({n}, i % 4 == 0 ? DType::kF16 : DType::kF8E5M2, 300 + i);
      if (has_epilogue) biases_.back() = load(*product.bias);
    }
    if (c.result_scale) {
      result_scales_.emplace_back();
      if (has_epilogue) product.result_scale = scale({1, 1}, 400 + i);
      if (has_epilogue) result_scales_.back() = load(*product.result_scale);
    }
    products.emplace_back(product);
  }

  void add_beside(int i) {
    const AlsoGathered& also = case_.also_gather[static_cast<std::size_t>(i)];
    const Dims all = case_.gathers_last() ? case_.sizes : with_last(case_.sizes, also.last);
    beside.push_back(whole(all, also.dtype, 10 + i));
    also_gather_.push_back(load(part_of(beside.back())));
  }

  RankContextOfTest& rank_;
  const Case& case_;
  Shard mine_;
  std::deque<Tensor> held_;
  std::deque<Guarded> tensors_;
  TensorView factor_;  ///< all of a as it is multiplied
  std::optional<TensorView> a_scale_;
  std::vector<TensorView> b_, b_scales_, also_gather_;
  std::vector<std::optional<TensorView>> biases_, result_scales_;
};

/// Complains where a whole that was gathered is not that of the shards.
void check_whole(const Guarded& got, const TensorView& need, const std::string& who, Complaints& complaints) {
  harness::Wrong wrong;
  got.download();
  compare_equal(got.host(), need, "gathered", wrong);
  complaints.add(who, got, wrong);
}

/// The outputs of one call.
struct Results {
  std::deque<Guarded> out, also_gather;
  std::optional<Guarded> gathered;
  std::vector<TensorView> out_views, also_views;
};

Result<void> make_results(RankContextOfTest& rank, const Case& c, AllGatherScaledMatmulArgs& args,
                          Results& results) {
  for (int i = 0; i < static_cast<int>(c.out.size()); ++i) {
    const auto layout = output_layout(args, i);
    if (!layout) return tl::unexpected(layout.error());
    results.out_views.push_back(
        results.out.emplace_back(rank.device, *layout, c.out[static_cast<std::size_t>(i)]).view());
  }
  for (int i = 0; i < static_cast<int>(c.also_gather.size()); ++i) {
    const auto layout = also_gathered_layout(args, i);
    if (!layout) return tl::unexpected(layout.error());
    results.also_views.push_back(
        results.also_gather
            .emplace_back(rank.device, *layout, c.also_gather[static_cast<std::size_t>(i)].dtype)
            .view());
  }
  if (c.gathered) {
    const auto layout = gathered_layout(args);
    if (!layout) return tl::unexpected(layout.error());
    args.gathered = results.gathered.emplace(rank.device, *layout, c.a).view();
  }
  args.out = results.out_views;
  args.also_gathered = results.also_views;
  return {};
}

/// Runs one case by every algorithm on one rank and holds the results against the reference and, where the
/// products have the same bits for any rows, against each other.
Result<void> run_case(RankContextOfTest& rank, const Case& c, bool same_bits, Complaints& complaints) {
  Operands in(rank, c);
  std::vector<std::vector<std::byte>> bits;
  std::vector<Algorithm> algorithms = {Algorithm::kSerial, Algorithm::kPipelined};
  if (c.for_native) algorithms.push_back(Algorithm::kNative);
  for (const Algorithm algorithm : algorithms) {
    in.args.algorithm = algorithm;
    const std::string who = to_text(c, rank.group.size()) + " " + std::string(to_string(algorithm)) +
                            ", rank " + std::to_string(rank.group.rank());
    Results results;
    if (auto made = make_results(rank, c, in.args, results); !made) return made;
    const auto report = fused_all_gather_scaled_matmul(in.args, rank.group, rank.stream);
    if (!report) return tl::unexpected(Error(report.error().code(), who + ": " + report.error().text()));
    if (report->algorithm != algorithm)
      complaints.add(who + ": ran " + std::string(to_string(report->algorithm)));
    const bool is_consumed = report->reason.find("by mm") == std::string_view::npos ||
                             report->reason.find("uneven") != std::string_view::npos;
    if (!is_consumed) complaints.add(who + std::string(report->reason));
    if (auto done = rank.stream.synchronize(); !done) return done;

    for (std::size_t i = 0; i < results.out.size(); ++i) {
      Guarded& out = results.out[i];
      harness::Wrong wrong;
      out.download();
      in.products[i].compare(out.host(), fmt::format("out[{}]", i), wrong);
      complaints.add(who, out, wrong);
      if (algorithm == Algorithm::kSerial) {
        bits.push_back(out.bytes());
      } else if (same_bits && algorithm == Algorithm::kPipelined && bits[i] != out.bytes()) {
        complaints.add(fmt::format("{}: out[{}] has other bits than by serial", who, i));
      }
    }
    for (std::size_t i = 0; i < results.also_gather.size(); ++i)
      check_whole(results.also_gather[i], in.beside[i], who, complaints);
    if (results.gathered) check_whole(*results.gathered, in.a, who, complaints);
  }
  return {};
}

void run_all(const JobCase& job, const std::vector<Case>& cases,
             const Config& config = test::quick_config()) {
  Complaints complaints;
  test::on_ranks(job, config, complaints, [&](RankContextOfTest& rank) -> Result<void> {
    for (const Case& c : cases) {
      if (auto ran = run_case(rank, c, !job.vendor_products, complaints); !ran) return ran;
    }
    return test::check_pads(rank, complaints);
  });
  EXPECT_EQ(complaints.text(), "");
}

constexpr ScaleMode kModes[] = {ScaleMode::kTensorwise, ScaleMode::kRowwiseSharded,
                                ScaleMode::kRowwiseReplicated, ScaleMode::kNone};

class AllGatherScaledMatmul : public ::testing::TestWithParam<JobCase> {};

TEST_P(AllGatherScaledMatmul, every_mode_and_dim) {
  std::vector<Case> cases;
  for (const ScaleMode mode : kModes) {
    for (const Dims& sizes : {Dims{16, 32}, Dims{8, 16, 32}, Dims{2, 8, 8, 16}}) {
      for (int dim = 0; dim < sizes.size(); ++dim) {
        const bool even = dim % 2 == 0;
        cases.push_back({.sizes = sizes,
                         .dim = dim,
                         .mode = mode,
                         .a = even ? DType::kF8E4M3 : DType::kF8E5M2,
                         .out = {DType::kBF16, DType::kF32, even ? DType::kF8E4M3 : DType::kF16},
                         .b_rowwise = even,
                         .bias = even,
                         .result_scale = !even,
                         .gathered = even});
      }
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(AllGatherScaledMatmul, odd_and_empty_sizes) {
  std::vector<Case> cases;
  for (const ScaleMode mode : kModes) {
    for (const std::int64_t m : {0, 1, 2, 5, 9}) {
      for (const std::int64_t k : {0, 1, 7}) {
        cases.push_back({.sizes = {m, k}, .dim = 0, .mode = mode, .bias = true, .gathered = m % 2 == 1});
        cases.push_back(
            {.sizes = {k, m}, .dim = 1, .mode = mode, .result_scale = true, .gathered = m % 2 == 0});
        cases.push_back({.sizes = {3, m, k},
                         .dim = 1,
                         .mode = mode,
                         .b_rowwise = true,
                         .also_gather = {{DType::kF32, 2}}});
      }
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(AllGatherScaledMatmul, finds_the_mode_by_the_shape) {
  std::vector<Case> cases;
  for (const ScaleMode mode : kModes) {
    for (int dim = 0; dim < 3; ++dim) {
      // A replicated scale of a gathered last dim looks like a sharded one, unless it has a column a slice.
      const bool last = dim == 2;
      if (!last || mode != ScaleMode::kRowwiseReplicated)
        cases.push_back({.sizes = {8, 16, 8}, .dim = dim, .mode = mode, .detect = true});
      if (mode == ScaleMode::kRowwiseSharded || (mode == ScaleMode::kRowwiseReplicated && !last))
        cases.push_back(
            {.sizes = {8, 16, 8}, .dim = dim, .mode = mode, .detect = true, .given = Given::kFlat});
    }
  }
  cases.push_back({.sizes = {8, 16, 8},
                   .dim = 2,
                   .mode = ScaleMode::kRowwiseReplicated,
                   .detect = GetParam().ranks.size > 1,
                   .given = Given::kColumnASlice});
  cases.push_back(
      {.sizes = {8, 16, 8}, .dim = 2, .mode = ScaleMode::kRowwiseReplicated, .given = Given::kFlat});
  run_all(GetParam(), cases);
}

TEST_P(AllGatherScaledMatmul, strides_and_tensors_beside) {
  std::vector<Case> cases;
  for (const ScaleMode mode : kModes) {
    for (int dim = 0; dim < 3; ++dim) {
      cases.push_back({.sizes = {11, 13, 17},
                       .dim = dim,
                       .mode = mode,
                       .b = DType::kF8E5M2,
                       .out = {DType::kF16, DType::kF8E5M2},
                       .b_rowwise = true,
                       .bias = true,
                       .result_scale = true,
                       .gathered = dim == 1,
                       .also_gather = {{DType::kBF16, 4}, {DType::kF8E4M3, 1}, {DType::kF32, 6}},
                       .spread = true});
    }
  }
  run_all(GetParam(), cases);
}

constexpr ScaleMode kBlockModes[] = {ScaleMode::kBlockwiseSharded, ScaleMode::kBlockwiseReplicated};

TEST_P(AllGatherScaledMatmul, scales_by_blocks_of_every_dim) {
  std::vector<Case> cases;
  for (const ScaleMode mode : kBlockModes) {
    for (const Given given : {Given::kShape, Given::kFlat}) {
      for (const Dims& sizes : {Dims{9, 300}, Dims{5, 7, 129}, Dims{2, 3, 9, 128}, Dims{11, 3, 70}}) {
        for (int dim = 0; dim < sizes.size() - 1; ++dim) {
          const bool odd = (dim + sizes.size()) % 2 == 1;
          cases.push_back({.sizes = sizes,
                           .dim = dim,
                           .mode = mode,
                           .given = given,
                           .b = odd ? DType::kF8E5M2 : DType::kF8E4M3,
                           .out = {DType::kBF16, DType::kF32},
                           .n = odd ? 5 : 127,
                           .b_rowwise = odd,
                           .bias = true,
                           .result_scale = odd,
                           .gathered = odd,
                           .also_gather = {{DType::kBF16, 2}},
                           .spread = dim == 1});
        }
      }
    }
  }
  run_all(GetParam(), cases);
}

// Slices of k that begin at multiples of 128. The last one may be shorter.
TEST_P(AllGatherScaledMatmul, scales_by_blocks_of_slices) {
  const int world = GetParam().ranks.size;
  std::vector<Case> cases;
  for (const ScaleMode mode : kBlockModes) {
    for (const std::int64_t blocks : {1, 2}) {
      for (const std::int64_t missing : {0, world - 1}) {
        const std::int64_t k = 128 * blocks * world - missing;
        for (const Dims& sizes : {Dims{6, k}, Dims{2, 3, k}}) {
          const bool even = missing == 0;
          cases.push_back({.sizes = sizes,
                           .dim = sizes.size() - 1,
                           .mode = mode,
                           .given = even ? Given::kShape : Given::kFlat,
                           .out = {DType::kF32, DType::kF16},
                           .n = even ? 5 : 127,
                           .b_rowwise = even,
                           .bias = true,
                           .result_scale = !even,
                           .gathered = even,
                           .spread = blocks == 2});
        }
      }
    }
    for (const std::int64_t k : {0, 1})
      cases.push_back({.sizes = {3, k}, .dim = 1, .mode = mode, .bias = true});
  }
  run_all(GetParam(), cases);
}

TEST_P(AllGatherScaledMatmul, scales_by_blocks_of_odd_and_empty_sizes) {
  std::vector<Case> cases;
  for (const ScaleMode mode : kBlockModes) {
    for (const std::int64_t m : {0, 1, 5}) {
      for (const std::int64_t k : {0, 1, 257})
        cases.push_back({.sizes = {m, k}, .mode = mode, .b_rowwise = m == 1, .gathered = true});
    }
  }
  run_all(GetParam(), cases);
}

// Whole tiles, which products send in pieces, ragged shards, several chunks a rank.
TEST_P(AllGatherScaledMatmul, native_on_gpus) {
  if (GetParam().is_on_cpu()) GTEST_SKIP() << "no CPU multiplies f8 as it arrives";
  std::vector<Case> cases;
  for (const ScaleMode mode :
       {ScaleMode::kTensorwise, ScaleMode::kRowwiseSharded, ScaleMode::kRowwiseReplicated,
        ScaleMode::kBlockwiseSharded, ScaleMode::kBlockwiseReplicated, ScaleMode::kNone}) {
    const bool by_blocks = mode == ScaleMode::kBlockwiseSharded || mode == ScaleMode::kBlockwiseReplicated;
    for (const bool fast : {false, true}) {
      for (const Dims& sizes : {Dims{512, 128}, Dims{523, 144}, Dims{2, 256, 128}, Dims{2, 2, 128, 16}}) {
        if (fast && by_blocks) continue;
        const bool is_matrix = sizes.size() == 2;
        cases.push_back({.sizes = sizes,
                         .dim = is_matrix ? 0 : sizes.size() - 2,
                         .mode = mode,
                         .out = {DType::kBF16, DType::kBF16},
                         .n = is_matrix ? 24 : 8,
                         .for_native = true,
                         .fast_accum = fast,
                         .b_rowwise = is_matrix && !by_blocks,
                         .result_scale = fast,
                         .gathered = is_matrix});
      }
    }
  }
  run_all(GetParam(), cases);
  Config in_pieces = test::quick_config();
  in_pieces.native_pieces = GetParam().ranks.size - 1;
  run_all(GetParam(), cases, in_pieces);
}

TEST_P(AllGatherScaledMatmul, quantizes_what_arrives) {
  std::vector<Case> cases;
  int call = 0;
  for (const ScaleMode mode : {ScaleMode::kRowwiseSharded, ScaleMode::kBlockwiseSharded}) {
    for (const Dims& sizes :
         {Dims{16, 32}, Dims{9, 300}, Dims{5, 7, 129}, Dims{2, 3, 9, 128}, Dims{11, 3, 70}}) {
      for (int dim = 0; dim < sizes.size() - 1; ++dim) {
        for (const DType a : {DType::kBF16, DType::kF16, DType::kF32}) {
          ++call;
          if (!GetParam().is_on_cpu() && call % 5 != 1) continue;
          const bool odd = call % 2 == 1;
          cases.push_back({.sizes = sizes,
                           .dim = dim,
                           .mode = mode,
                           .detect = odd && mode == ScaleMode::kRowwiseSharded,
                           .a = a,
                           .b = odd ? DType::kF8E5M2 : DType::kF8E4M3,
                           .quantize = call % 4 < 2 ? DType::kF8E4M3 : DType::kF8E5M2,
                           .out = {DType::kBF16, DType::kF32},
                           .n = odd ? 5 : 33,
                           .b_rowwise = odd,
                           .bias = call % 3 == 0,
                           .result_scale = odd,
                           .gathered = call % 5 != 0,
                           .also_gather = {{DType::kF8E4M3, 2}},
                           .spread = call % 3 == 1});
        }
      }
    }
  }
  run_all(GetParam(), cases);
}

TEST_P(AllGatherScaledMatmul, quantizes_odd_and_empty_sizes) {
  std::vector<Case> cases;
  for (const ScaleMode mode : {ScaleMode::kRowwiseSharded, ScaleMode::kBlockwiseSharded}) {
    for (const std::int64_t m : {0, 1, 5}) {
      for (const std::int64_t k : {0, 1, 257})
        cases.push_back({.sizes = {m, k},
                         .mode = mode,
                         .a = DType::kBF16,
                         .quantize = DType::kF8E4M3,
                         .b_rowwise = m == 1,
                         .bias = true,
                         .gathered = true});
    }
  }
  run_all(GetParam(), cases);
}

/// Quantised and multiplied by one rank that has all of a.
Result<std::vector<std::byte>> bits_of_two_calls(Device& device, Stream& stream, const Tensor& a,
                                                 const Guarded& b, const Guarded& b_scale) {
  const Guarded whole(device, test::dense(a.sizes()), a);
  const Guarded factor(device, a.sizes(), DType::kF8E4M3);
  const Guarded scale(device, with_last(a.sizes(), b_scale.view().size(0)), DType::kF32);
  const Guarded out(device, with_last(a.sizes(), b.view().size(1)), DType::kF32);
  if (auto done =
          gemm::quantize_rows({.input = whole.view(), .out = factor.view(), .scale = scale.view()}, stream);
      !done)
    return tl::unexpected(done.error());
  if (auto done = gemm::scaled_matmul({.a = factor.view(),
                                       .b = b.view(),
                                       .a_scale = scale.view(),
                                       .b_scale = b_scale.view(),
                                       .out = out.view()},
                                      stream);
      !done)
    return tl::unexpected(done.error());
  if (auto done = stream.synchronize(); !done) return tl::unexpected(done.error());
  out.download();
  return out.bytes();
}

// So every rank, number of ranks and algorithm give the same bits.
TEST_P(AllGatherScaledMatmul, quantized_results_have_the_bits_of_two_calls) {
  if (GetParam().vendor_products) GTEST_SKIP() << "bits depend on the number of rows";
  Complaints complaints;
  test::on_ranks(GetParam(), test::quick_config(), complaints, [&](RankContextOfTest& rank) -> Result<void> {
    for (const bool by_blocks : {false, true}) {
      const Tensor a = test::generated({13, 200}, DType::kBF16, 1);
      const Shard mine = shard_of(13, rank.group.size(), rank.group.rank());
      const Tensor b_values = test::generated({200, 6}, DType::kF8E4M3, 2);
      const Dims scales = {by_blocks ? 2 : 1, 6};
      const Guarded shard(rank.device, test::dense({mine.size, 200}),
                          a.view().narrow(0, mine.offset, mine.size));
      const Guarded b(rank.device, test::dense({200, 6}), b_values);
      const Guarded b_scale(rank.device, test::dense(scales), test::generated_scale(scales, 3));
      const auto want = bits_of_two_calls(rank.device, rank.stream, a, b, b_scale);
      if (!want) return tl::unexpected(want.error());
      for (const Algorithm algorithm : {Algorithm::kSerial, Algorithm::kPipelined, Algorithm::kAuto}) {
        const Guarded out(rank.device, {13, 6}, DType::kF32);
        const std::vector<TensorView> bs = {b.view()};
        const std::vector<TensorView> b_scales = {b_scale.view()};
        const std::vector<TensorView> outs = {out.view()};
        const auto report = fused_all_gather_scaled_matmul(
            {.a = shard.view(),
             .b = bs,
             .scale_mode = by_blocks ? ScaleMode::kBlockwiseSharded : ScaleMode::kDetect,
             .quantize = DType::kF8E4M3,
             .b_scale = b_scales,
             .gather_size = 13,
             .out = outs,
             .algorithm = algorithm},
            rank.group, rank.stream);
        if (!report) return tl::unexpected(report.error());
        if (auto done = rank.stream.synchronize(); !done) return done;
        out.download();
        if (out.bytes() != *want)
          complaints.add(fmt::format("{} by blocks {}: other bits", to_string(algorithm), by_blocks));
      }
    }
    return {};
  });
  EXPECT_EQ(complaints.text(), "");
}

TEST_P(AllGatherScaledMatmul, f8_results_saturate) {
  std::vector<Case> cases;
  for (int dim = 0; dim < 2; ++dim) {
    cases.push_back(
        {.sizes = {16, 32}, .dim = dim, .out = {DType::kF8E4M3, DType::kF8E5M2}, .magnitude = 0x1p15F});
  }
  run_all(GetParam(), cases);
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllGatherScaledMatmul, ::testing::ValuesIn(test::all_cases({1, 2, 3, 4, 8})),
                         test::job_name);

}  // namespace
}  // namespace tandem
