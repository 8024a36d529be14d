// Native ops without rest: gathers, scatters and all-reduces of many sizes one behind the other, under delays
// of random ranks and between ops of other algorithms, shards pushed by copy engines and sent by products in
// turns, of bf16 and of f8 with scales of rows.
// Every output is compared bit by bit: of gathers with the product of the same kernels over operands that are
// all there; of sums, where TANDEM_BATCH_INVARIANT=1, with such products added in rank order by the host, and
// else with what the same op leaves that runs alone. One GPU a rank.
//   bench_native_stress [RANKS [OPS [SEED]]]   prints a JSON row

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <tandem/base/convert.hpp>
#include <tandem/tandem.hpp>
#include <thread>
#include <vector>

#include "base/try.hpp"
#include "bf16_values.hpp"
#include "gemm/product.hpp"
#include "launched_ranks.hpp"

namespace {

using namespace tandem;

constexpr int kProblems = 32;
constexpr int kUnlooked = 500;  ///< ops that are enqueued before anybody looks at the GPU

enum class Kind { kGather, kScatter, kAllReduce };

struct Operands {
  Tensor a, b;              ///< b by columns: [n, k]
  Tensor a_scale, b_scale;  ///< of f8: [m, 1] and [1, n]

  [[nodiscard]] TensorView b_view() const { return b.view().movedim(0, 1); }
};

/// All ranks know all operands, so that each can make what it should get alone.
struct Problem {
  Kind kind = Kind::kGather;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t planned = 0;  ///< n of gathers, k of others
  Algorithm algorithm = Algorithm::kNative;
  bool is_f8 = false;
  bool fast_accum = false;
  coll::ReduceOp reduce = coll::ReduceOp::kSum;
  Operands operands;  ///< of gathers all of a, of others this rank's
  Shard out_rows;
  std::vector<std::byte> expected;

  [[nodiscard]] DType dtype() const { return is_f8 ? DType::kF8E4M3 : DType::kBF16; }
};

class Stress {
 public:
  static Result<Stress> make(const RankContext& context, unsigned seed);
  /// `ops` ops; returns the number of wrong outputs.
  Result<int> run(int ops);
  /// The sum of every rank's.
  Result<int> over_all_ranks(int wrong);
  [[nodiscard]] Device& device() const { return *device_; }
  [[nodiscard]] int ops_in_pieces() const { return ops_in_pieces_; }
  /// Of each Kind.
  [[nodiscard]] const std::array<int, 3>& native_ops() const { return native_ops_; }
  [[nodiscard]] int native_f8_ops() const { return native_f8_ops_; }
  [[nodiscard]] int made_before() const { return made_before_; }
  [[nodiscard]] bool is_batch_invariant() const { return device_->config().batch_invariant; }

 private:
  Result<Problem> make_problem(std::mt19937& random);
  Result<Operands> random_operands(const Problem& problem, std::mt19937& random);
  /// By the native kernel, over an a that is there.
  Result<std::vector<std::byte>> multiply(const Problem& problem, const Operands& operands);
  Result<std::vector<std::byte>> run_alone(const Problem& problem);
  Result<OpReport> enqueue(const Problem& problem, const TensorView& out);
  Result<OpReport> gather(const Problem& problem, const TensorView& out);
  template <class Plain, class Scaled>
  Result<OpReport> sum(const Problem& problem, const TensorView& out,
                       Result<OpReport> (*plain)(const Plain&, Group&, Stream&),
                       Result<OpReport> (*scaled)(const Scaled&, Group&, Stream&));
  void count(const Problem& problem, const OpReport& report);
  Result<void> hold_a_moment();
  Result<int> count_wrong(std::span<const int> ops);
  [[nodiscard]] TensorView out_of(std::size_t i, const Problem& problem) const {
    return TensorView::contiguous(
        static_cast<std::byte*>(outs_.view().data) + static_cast<std::int64_t>(i) * most_out_bytes_,
        {problem.out_rows.size, problem.n}, DType::kBF16, device_->id());
  }

  int rank_ = 0;
  int world_ = 1;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Stream> stream_;
  std::mt19937 same_, own_;
  std::vector<Problem> problems_;
  std::int64_t most_out_bytes_ = 0;
  Tensor outs_, signal_;
  int ops_in_pieces_ = 0;
  std::array<int, 3> native_ops_{};
  int native_f8_ops_ = 0;
  int made_before_ = 0;
};

/// bf16 from -2 to 2, with bits that toggle.
std::uint16_t random_bf16(std::mt19937& random) {
  return static_cast<std::uint16_t>((random() & 0x80ffU) | 0x3f00U);
}

/// f8e4m3 from -2 to 2.
std::uint8_t random_f8(std::mt19937& random) {
  return static_cast<std::uint8_t>((random() & 0x8fU) | 0x30U);
}

float random_scale(std::mt19937& random) {
  return 0.5F + static_cast<float>(random() % 1024) / 1024;
}

template <class T>
Result<void> fill_with(T (*next)(std::mt19937&), const Tensor& tensor, Device& device, std::mt19937& random) {
  std::vector<T> values(static_cast<std::size_t>(tensor.view().numel()));
  for (T& one : values) one = next(random);
  return device.copy_from_host(values.data(), tensor.view());
}

Result<Stress> Stress::make(const RankContext& context, unsigned seed) {
  Stress stress;
  TANDEM_ASSIGN(const Config config, Config::from_environment());
  stress.rank_ = context.rank;
  stress.world_ = context.size;
  TANDEM_ASSIGN(stress.device_, open_device({DeviceKind::kCuda, context.rank}, config));
  TANDEM_ASSIGN(stress.group_, Group::create({context.rank, context.size, "world", context.store, config}));
  TANDEM_ASSIGN(stress.stream_, stress.device_->create_stream());
  TANDEM_ASSIGN(stress.signal_, stress.device_->allocate_tensor({1}, DType::kU32));
  stress.same_.seed(seed);
  stress.own_.seed(seed + 1 + static_cast<unsigned>(context.rank));
  for (int i = 0; i < kProblems; ++i) {
    TANDEM_ASSIGN(Problem problem, stress.make_problem(stress.same_));
    stress.problems_.push_back(std::move(problem));
  }
  for (const Problem& problem : stress.problems_)
    stress.most_out_bytes_ = std::max<std::int64_t>(stress.most_out_bytes_, problem.m * problem.n * 2);
  TANDEM_ASSIGN(stress.outs_,
                stress.device_->allocate_tensor({kUnlooked * stress.most_out_bytes_ / 4}, DType::kU32));
  return stress;
}

/// Of bf16 partials of all ranks, added in f32 in their order; the own rows of out.
Result<std::vector<std::byte>> sum_of(const std::vector<std::vector<std::byte>>& partials,
                                      const Problem& problem, int world) {
  const std::int64_t count = problem.out_rows.size * problem.n;
  const std::int64_t first = problem.out_rows.offset * problem.n;
  std::vector<float> sums(static_cast<std::size_t>(count), -0.0F);
  for (const std::vector<std::byte>& partial : partials) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      std::uint16_t bits = 0;
      std::memcpy(&bits, partial.data() + 2 * (static_cast<std::size_t>(first) + i), sizeof(bits));
      sums[i] += static_cast<float>(bench::bf16_value(bits));
    }
  }
  if (problem.reduce == coll::ReduceOp::kAvg) {
    for (float& sum : sums) sum /= static_cast<float>(world);
  }
  std::vector<std::byte> rounded(2 * sums.size());
  TANDEM_TRY(convert(TensorView::contiguous(sums.data(), {count}, DType::kF32),
                     TensorView::contiguous(rounded.data(), {count}, DType::kBF16)));
  return rounded;
}

Result<Problem> Stress::make_problem(std::mt19937& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  Problem problem;
  problem.kind = static_cast<Kind>(below(3));
  const std::int64_t tiles = std::int64_t{128} * world_;
  const bool whole_tiles = below(3) > 0;
  problem.is_f8 = below(2) == 0;
  // Those of f8 are gathered natively in whole tiles only.
  const bool few_rows = below(3) == 0 && !(problem.is_f8 && problem.kind == Kind::kGather);
  problem.m = few_rows      ? world_ + below(512 - world_)
              : whole_tiles ? std::max((511 / tiles + 1) * tiles, tiles * (1 + below(4)))
                            : 512 + below(1500);
  problem.fast_accum = below(2) == 0;
  problem.k = whole_tiles ? 128 * (1 + below(8)) : 16 * (4 + below(50));
  problem.n = 8 * (1 + below(100));
  // What decides on how the shards of gathers travel.
  if (below(2) == 0) problem.planned = std::int64_t{3584} << below(3);
  if (whole_tiles && problem.m <= 1024) problem.planned = 3584;
  if (problem.kind != Kind::kGather) problem.planned = problem.k;
  if (problem.kind != Kind::kGather && below(2) == 0) problem.reduce = coll::ReduceOp::kAvg;
  if (below(8) == 0) problem.algorithm = below(2) == 0 ? Algorithm::kPipelined : Algorithm::kSerial;
  problem.out_rows =
      problem.kind == Kind::kScatter ? shard_of(problem.m, world_, rank_) : Shard{0, problem.m};
  const bool is_compared = problem.algorithm == Algorithm::kNative;
  if (problem.kind == Kind::kGather) {
    TANDEM_ASSIGN(problem.operands, random_operands(problem, random));
    if (is_compared) {
      TANDEM_ASSIGN(problem.expected, multiply(problem, problem.operands));
    }
    return problem;
  }
  std::vector<std::vector<std::byte>> partials;
  for (int rank = 0; rank < world_; ++rank) {
    TANDEM_ASSIGN(Operands operands, random_operands(problem, random));
    if (is_compared && is_batch_invariant()) {
      TANDEM_ASSIGN(partials.emplace_back(), multiply(problem, operands));
    }
    if (rank == rank_) problem.operands = std::move(operands);
  }
  if (!is_compared) return problem;
  if (is_batch_invariant()) {
    TANDEM_ASSIGN(problem.expected, sum_of(partials, problem, world_));
  } else {
    TANDEM_ASSIGN(problem.expected, run_alone(problem));
  }
  return problem;
}

Result<Operands> Stress::random_operands(const Problem& problem, std::mt19937& random) {
  Operands made;
  TANDEM_ASSIGN(made.a, device_->allocate_tensor({problem.m, problem.k}, problem.dtype()));
  TANDEM_ASSIGN(made.b, device_->allocate_tensor({problem.n, problem.k}, problem.dtype()));
  for (const Tensor* tensor : {&made.a, &made.b}) {
    TANDEM_TRY(problem.is_f8 ? fill_with(random_f8, *tensor, *device_, random)
                             : fill_with(random_bf16, *tensor, *device_, random));
  }
  if (!problem.is_f8) return made;
  TANDEM_ASSIGN(made.a_scale, device_->allocate_tensor({problem.m, 1}, DType::kF32));
  TANDEM_ASSIGN(made.b_scale, device_->allocate_tensor({1, problem.n}, DType::kF32));
  TANDEM_TRY(fill_with(random_scale, made.a_scale, *device_, random));
  TANDEM_TRY(fill_with(random_scale, made.b_scale, *device_, random));
  return made;
}

Result<std::vector<std::byte>> Stress::multiply(const Problem& problem, const Operands& operands) {
  TANDEM_ASSIGN(const Tensor out, device_->allocate_tensor({problem.m, problem.n}, DType::kBF16));
  const TensorView to = out.view();
  const TensorView a = operands.a.view();
  const TensorView b = operands.b_view();
  const TensorView a_scale = operands.a_scale.view();
  const TensorView b_scale = operands.b_scale.view();
  gemm::Arrival arrival{.signals = signal_.view(), .complete = gemm::CompleteChunks{a, 0, 1}};
  gemm::ProductArgs args{.a = &a, .b = &b, .out = &to, .arrival = &arrival};
  if (problem.is_f8) {
    arrival.complete_scale = a_scale;
    args.a_scale = &a_scale;
    args.b_scale = &b_scale;
    args.fast_accum = problem.fast_accum;
  }
  TANDEM_TRY(gemm::run(args, *stream_));
  TANDEM_TRY(stream_->synchronize());
  std::vector<std::byte> bytes(static_cast<std::size_t>(to.size_bytes()));
  TANDEM_TRY(device_->copy_to_host(to, bytes.data()));
  return bytes;
}

Result<std::vector<std::byte>> Stress::run_alone(const Problem& problem) {
  TANDEM_ASSIGN(const Tensor out, device_->allocate_tensor({problem.out_rows.size, problem.n}, DType::kBF16));
  TANDEM_TRY(enqueue(problem, out.view()));
  TANDEM_TRY(stream_->synchronize());
  std::vector<std::byte> bytes(static_cast<std::size_t>(out.view().size_bytes()));
  TANDEM_TRY(device_->copy_to_host(out.view(), bytes.data()));
  return bytes;
}

template <class Plain, class Scaled>
Result<OpReport> Stress::sum(const Problem& problem, const TensorView& out,
                             Result<OpReport> (*plain)(const Plain&, Group&, Stream&),
                             Result<OpReport> (*scaled)(const Scaled&, Group&, Stream&)) {
  const TensorView a[] = {problem.operands.a.view()};
  const TensorView b[] = {problem.operands.b_view()};
  const std::optional<TensorView> a_scale[] = {problem.operands.a_scale.view()};
  const std::optional<TensorView> b_scale[] = {problem.operands.b_scale.view()};
  const auto fill = [&](auto args) {
    args.a = a;
    args.b = b;
    args.reduce_op = problem.reduce;
    args.out = out;
    args.algorithm = problem.algorithm;
    args.plan_k = problem.planned;
    return args;
  };
  if (!problem.is_f8) return plain(fill(Plain{}), *group_, *stream_);
  Scaled args = fill(Scaled{});
  args.a_scale = a_scale;
  args.b_scale = b_scale;
  args.fast_accum = problem.fast_accum;
  return scaled(args, *group_, *stream_);
}

Result<OpReport> Stress::enqueue(const Problem& problem, const TensorView& out) {
  if (problem.kind == Kind::kGather) return gather(problem, out);
  return problem.kind == Kind::kScatter
             ? sum(problem, out, fused_matmul_reduce_scatter, fused_scaled_matmul_reduce_scatter)
             : sum(problem, out, fused_matmul_all_reduce, fused_scaled_matmul_all_reduce);
}

Result<OpReport> Stress::gather(const Problem& problem, const TensorView& out) {
  const Shard mine = shard_of(problem.m, world_, rank_);
  const Operands& operands = problem.operands;
  const TensorView b[] = {operands.b_view()};
  const TensorView outs[] = {out};
  if (problem.is_f8) {
    const TensorView b_scale[] = {operands.b_scale.view()};
    return fused_all_gather_scaled_matmul(
        {.a = operands.a.view().narrow(0, mine.offset, mine.size),
         .b = b,
         .a_scale = operands.a_scale.view().narrow(0, mine.offset, mine.size),
         .scale_mode = ScaleMode::kRowwiseSharded,
         .b_scale = b_scale,
         .gather_size = problem.m,
         .out = outs,
         .fast_accum = problem.fast_accum,
         .algorithm = problem.algorithm,
         .plan_n = problem.planned},
        *group_, *stream_);
  }
  return fused_all_gather_matmul({.a = operands.a.view().narrow(0, mine.offset, mine.size),
                                  .b = b,
                                  .gather_size = problem.m,
                                  .out = outs,
                                  .algorithm = problem.algorithm,
                                  .plan_n = problem.planned},
                                 *group_, *stream_);
}

void Stress::count(const Problem& problem, const OpReport& report) {
  if (report.algorithm != Algorithm::kNative) return;
  ++native_ops_[static_cast<std::size_t>(problem.kind)];
  if (problem.is_f8) ++native_f8_ops_;
  if (report.reason.find("in pieces") != std::string_view::npos) ++ops_in_pieces_;
  if (report.reason.find("is made before") != std::string_view::npos) ++made_before_;
}

Result<void> Stress::hold_a_moment() {
  if (own_() % 32 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own_() % 300));
  if (own_() % 8 != 0) return {};
  return stream_->sleep(std::chrono::microseconds(own_() % 200));
}

Result<int> Stress::count_wrong(std::span<const int> ops) {
  int wrong = 0;
  std::vector<std::byte> got;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Problem& problem = problems_[static_cast<std::size_t>(ops[i])];
    if (problem.algorithm != Algorithm::kNative) continue;
    got.resize(problem.expected.size());
    TANDEM_TRY(device_->copy_to_host(out_of(i, problem), got.data()));
    if (got != problem.expected) ++wrong;
  }
  return wrong;
}

Result<int> Stress::run(int ops) {
  int wrong = 0;
  for (int done = 0; done < ops; done += kUnlooked) {
    TANDEM_TRY(stream_->memset32(outs_.view(), 0, 0xffffffffU, outs_.view().numel()));
    std::vector<int> batch(static_cast<std::size_t>(std::min(kUnlooked, ops - done)));
    for (int& op : batch) op = static_cast<int>(same_() % kProblems);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const Problem& problem = problems_[static_cast<std::size_t>(batch[i])];
      TANDEM_TRY(hold_a_moment());
      TANDEM_ASSIGN(const OpReport report, enqueue(problem, out_of(i, problem)));
      count(problem, report);
    }
    TANDEM_TRY(stream_->synchronize());
    TANDEM_ASSIGN(const int here, count_wrong(batch));
    wrong += here;
  }
  return wrong;
}

Result<int> Stress::over_all_ranks(int wrong) {
  TANDEM_ASSIGN(const auto all, group_->all_gather(std::as_bytes(std::span(&wrong, 1)), "wrong outputs"));
  int sum = 0;
  for (const auto& bytes : all) {
    int theirs = 0;
    std::memcpy(&theirs, bytes.data(), sizeof(theirs));
    sum += theirs;
  }
  return sum;
}

/// Rank 0 prints.
Result<void> run_rank(const RankContext& context, int ops, unsigned seed) {
  TANDEM_ASSIGN(Stress stress, Stress::make(context, seed));
  TANDEM_ASSIGN(const int wrong, stress.run(ops));
  TANDEM_ASSIGN(const int all_wrong, stress.over_all_ranks(wrong));
  if (context.rank != 0) return {};
  const nlohmann::json row{
      {"what", "native gathers, scatters and all-reduces under delays, outputs of all ranks bit by bit"},
      {"world", context.size},
      {"ops", ops},
      {"batch_invariant", stress.is_batch_invariant()},
      {"native_gathers", stress.native_ops()[0]},
      {"native_scatters", stress.native_ops()[1]},
      {"native_all_reduces", stress.native_ops()[2]},
      {"made_before", stress.made_before()},
      {"native_f8_ops", stress.native_f8_ops()},
      {"ops_in_pieces", stress.ops_in_pieces()},
      {"ops_between_looks", kUnlooked},
      {"wrong", all_wrong},
      {"machine", stress.device().description()},
      {"commit", TANDEM_COMMIT},
      {"command", std::string(stress.is_batch_invariant() ? "TANDEM_BATCH_INVARIANT=1 " : "") +
                      "bench_native_stress " + std::to_string(context.size) + " " + std::to_string(ops) +
                      " " + std::to_string(seed)}};
  std::printf("%s\n", row.dump().c_str());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_launched(argc, argv, [](const bench::Numbers& numbers) {
    const int ranks = numbers.at(0, 2);
    const int ops = numbers.at(1, 10'000);
    const auto seed = static_cast<unsigned>(numbers.at(2, 1));
    const bool is_fine = ranks >= 2 && ops >= 1;
    return bench::LaunchedRanks{
        .program = "bench_native_stress",
        .ranks = ranks,
        .longest = std::chrono::minutes(30),
        .refusal = is_fine ? nullptr : "bench_native_stress [RANKS >= 2 [OPS >= 1 [SEED]]]",
        .run_rank = [=](const RankContext& context) { return run_rank(context, ops, seed); }};
  });
}
