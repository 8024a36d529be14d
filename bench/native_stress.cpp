// Native all-gather + matmul without rest: ops of many sizes one behind the other, under delays of random
// ranks and between ops of other algorithms, shards pushed by copy engines and sent by products in turns, of
// bf16 and of f8 whose scales of rows travel along.
// Every output is compared bit by bit with the product of the same kernels over operands that are all there.
// One GPU a rank.
//   bench_native_stress [RANKS [OPS [SEED]]]   prints a JSON row

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <tandem/tandem.hpp>
#include <thread>
#include <vector>

#include "base/try.hpp"
#include "gemm/product.hpp"
#include "launched_ranks.hpp"

namespace {

using namespace tandem;

constexpr int kProblems = 32;
constexpr int kUnlooked = 500;  ///< ops that are enqueued before anybody looks at the GPU

/// All ranks know all of a, so that each can make the whole product alone.
struct Problem {
  std::int64_t m = 0, n = 0, k = 0, plan_n = 0;
  Algorithm algorithm = Algorithm::kNative;
  bool is_f8 = false;
  bool fast_accum = false;
  Tensor a, b;              ///< b by columns: [n, k]
  Tensor a_scale, b_scale;  ///< of f8: [m, 1] and [1, n]
  std::vector<std::byte> expected;

  [[nodiscard]] DType dtype() const { return is_f8 ? DType::kF8E4M3 : DType::kBF16; }
  [[nodiscard]] TensorView b_view() const { return b.view().movedim(0, 1); }
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
  [[nodiscard]] int native_ops() const { return native_ops_; }
  [[nodiscard]] int native_f8_ops() const { return native_f8_ops_; }

 private:
  Result<Problem> make_problem(std::mt19937& random);
  Result<void> fill(Problem& problem, std::mt19937& random);
  /// By the native kernel, over an a that is there.
  Result<void> multiply(const Problem& problem, const TensorView& out);
  Result<OpReport> enqueue(const Problem& problem, const TensorView& out);
  Result<void> hold_a_moment();
  Result<int> count_wrong(std::span<const int> ops);
  [[nodiscard]] TensorView out_of(std::size_t i, const Problem& problem) const {
    return TensorView::contiguous(
        static_cast<std::byte*>(outs_.view().data) + static_cast<std::int64_t>(i) * most_out_bytes_,
        {problem.m, problem.n}, DType::kBF16, device_->id());
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
  int native_ops_ = 0;
  int native_f8_ops_ = 0;
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

Result<Problem> Stress::make_problem(std::mt19937& random) {
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  Problem problem;
  const std::int64_t tiles = std::int64_t{128} * world_;
  const bool whole_tiles = below(3) > 0;
  problem.m = whole_tiles ? tiles * (1 + below(4)) : 512 + below(1500);
  problem.m = std::max<std::int64_t>(problem.m, whole_tiles ? (511 / tiles + 1) * tiles : 512);
  problem.is_f8 = below(2) == 0;
  problem.fast_accum = below(2) == 0;
  problem.k = whole_tiles ? 128 * (1 + below(8)) : 16 * (4 + below(50));
  problem.n = 8 * (1 + below(100));
  // What decides on how the shards travel.
  if (below(2) == 0) problem.plan_n = std::int64_t{3584} << below(3);
  if (whole_tiles && problem.m <= 1024) problem.plan_n = 3584;
  if (below(8) == 0) problem.algorithm = below(2) == 0 ? Algorithm::kPipelined : Algorithm::kSerial;
  TANDEM_TRY(fill(problem, random));
  if (problem.algorithm != Algorithm::kNative) return problem;
  TANDEM_ASSIGN(const Tensor out, device_->allocate_tensor({problem.m, problem.n}, DType::kBF16));
  TANDEM_TRY(multiply(problem, out.view()));
  TANDEM_TRY(stream_->synchronize());
  problem.expected.resize(static_cast<std::size_t>(out.view().size_bytes()));
  TANDEM_TRY(device_->copy_to_host(out.view(), problem.expected.data()));
  return problem;
}

Result<void> Stress::fill(Problem& problem, std::mt19937& random) {
  TANDEM_ASSIGN(problem.a, device_->allocate_tensor({problem.m, problem.k}, problem.dtype()));
  TANDEM_ASSIGN(problem.b, device_->allocate_tensor({problem.n, problem.k}, problem.dtype()));
  for (const Tensor* tensor : {&problem.a, &problem.b}) {
    TANDEM_TRY(problem.is_f8 ? fill_with(random_f8, *tensor, *device_, random)
                             : fill_with(random_bf16, *tensor, *device_, random));
  }
  if (!problem.is_f8) return {};
  TANDEM_ASSIGN(problem.a_scale, device_->allocate_tensor({problem.m, 1}, DType::kF32));
  TANDEM_ASSIGN(problem.b_scale, device_->allocate_tensor({1, problem.n}, DType::kF32));
  TANDEM_TRY(fill_with(random_scale, problem.a_scale, *device_, random));
  return fill_with(random_scale, problem.b_scale, *device_, random);
}

Result<void> Stress::multiply(const Problem& problem, const TensorView& out) {
  const TensorView a = problem.a.view();
  const TensorView b = problem.b_view();
  const TensorView a_scale = problem.a_scale.view();
  const TensorView b_scale = problem.b_scale.view();
  gemm::Arrival arrival{.signals = signal_.view(), .complete = gemm::CompleteChunks{a, 0, 1}};
  gemm::ProductArgs args{.a = &a, .b = &b, .out = &out, .arrival = &arrival};
  if (problem.is_f8) {
    arrival.complete_scale = a_scale;
    args.a_scale = &a_scale;
    args.b_scale = &b_scale;
    args.fast_accum = problem.fast_accum;
  }
  return gemm::run(args, *stream_);
}

Result<OpReport> Stress::enqueue(const Problem& problem, const TensorView& out) {
  const Shard mine = shard_of(problem.m, world_, rank_);
  const TensorView b[] = {problem.b_view()};
  const TensorView outs[] = {out};
  if (problem.is_f8) {
    const TensorView b_scale[] = {problem.b_scale.view()};
    return fused_all_gather_scaled_matmul(
        {.a = problem.a.view().narrow(0, mine.offset, mine.size),
         .b = b,
         .a_scale = problem.a_scale.view().narrow(0, mine.offset, mine.size),
         .scale_mode = ScaleMode::kRowwiseSharded,
         .b_scale = b_scale,
         .gather_size = problem.m,
         .out = outs,
         .fast_accum = problem.fast_accum,
         .algorithm = problem.algorithm,
         .plan_n = problem.plan_n},
        *group_, *stream_);
  }
  const AllGatherMatmulArgs args{.a = problem.a.view().narrow(0, mine.offset, mine.size),
                                 .b = b,
                                 .gather_size = problem.m,
                                 .out = outs,
                                 .algorithm = problem.algorithm,
                                 .plan_n = problem.plan_n};
  return fused_all_gather_matmul(args, *group_, *stream_);
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
      if (report.algorithm != Algorithm::kNative) continue;
      ++native_ops_;
      if (problem.is_f8) ++native_f8_ops_;
      if (report.reason.find("in pieces") != std::string_view::npos) ++ops_in_pieces_;
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
      {"what", "native all-gather + matmul under delays, outputs of all ranks bit by bit"},
      {"world", context.size},
      {"ops", ops},
      {"native_ops", stress.native_ops()},
      {"native_f8_ops", stress.native_f8_ops()},
      {"ops_in_pieces", stress.ops_in_pieces()},
      {"ops_between_looks", kUnlooked},
      {"wrong", all_wrong},
      {"machine", stress.device().description()},
      {"commit", TANDEM_COMMIT},
      {"command", "bench_native_stress " + std::to_string(context.size) + " " + std::to_string(ops) + " " +
                      std::to_string(seed)}};
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
