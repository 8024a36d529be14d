// What the program of a host program costs: the same gather and matmul by program::host::Executor and by a
// loop over streams that is written by hand, in turns. GPUs, one a rank.
//   bench_host_program [RANKS [CALLS [S M N K STREAMS]]]   prints a JSON row; times in microseconds

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <tandem/program/host/executor.hpp>
#include <tandem/program/host/lower.hpp>
#include <tandem/tandem.hpp>
#include <vector>

#include "base/try.hpp"
#include "harness/stopwatch.hpp"
#include "launched_ranks.hpp"

namespace {

using namespace tandem;
namespace host = program::host;

struct Shape {
  std::int64_t s, m, n, k;
  int streams;
};

/// c [S, D, M/(S*D), N] = a [S, D (sharded), M/(S*D), K] * b [K, N].
Result<host::HostProgram> lowered(int ranks) {
  host::Fusion fusion;
  host::SymbolicTensor* const a = fusion.make_contig_tensor(4, DType::kBF16);
  host::SymbolicTensor* const b = fusion.make_contig_tensor(2, DType::kBF16);
  host::SymbolicTensor* const c = fusion.matmul(a, b);
  fusion.add_input(a);
  fusion.add_input(b);
  fusion.add_output(c);
  for (host::SymbolicTensor* const tensor : {a, b, c})
    tensor->set_device_mesh(host::DeviceMesh::create_for_num_devices(ranks));
  a->axis(1).parallelize(host::ParallelType::kDIDx);
  c->axis(0).parallelize(host::ParallelType::kStream);
  host::LowerOptions options;
  options.workers_wait = true;
  return host::lower(fusion, options);
}

class Bench {
 public:
  static Result<Bench> make(const RankContext& context, const Shape& shape);
  /// By the executor, or by hand.
  Result<double> call(bool by_hand);
  [[nodiscard]] std::string gpu() const { return device_->description(); }

 private:
  Result<void> enqueue_by_hand();

  Shape shape_{};
  std::unique_ptr<Device> device_;
  std::unique_ptr<Group> group_;
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Stream>> workers_;
  Tensor a_, b_, gathered_, out_, out_by_hand_, block_;
  std::shared_ptr<symm::Handle> handle_;
  std::unique_ptr<host::Executor> executor_;
  std::vector<TensorView> inputs_;
  std::unique_ptr<Event> begin_, end_;
};

Result<Bench> Bench::make(const RankContext& context, const Shape& shape) {
  Bench bench;
  bench.shape_ = shape;
  TANDEM_ASSIGN(const Config config, Config::from_environment());
  TANDEM_ASSIGN(bench.device_, open_device({DeviceKind::kCuda, context.rank}, config));
  Device& device = *bench.device_;
  TANDEM_ASSIGN(bench.group_, Group::create({context.rank, context.size, "world", context.store, config}));
  TANDEM_ASSIGN(bench.stream_, device.create_stream());
  for (int i = 0; i < shape.streams; ++i) {
    TANDEM_ASSIGN(bench.workers_.emplace_back(), device.create_stream());
  }
  for (auto* event : {&bench.begin_, &bench.end_}) {
    TANDEM_ASSIGN(*event, device.create_event());
  }
  const std::int64_t rows = shape.m / shape.s / context.size;
  TANDEM_ASSIGN(bench.a_, device.allocate_tensor({shape.s, 1, rows, shape.k}, DType::kBF16));
  TANDEM_ASSIGN(bench.b_, device.allocate_tensor({shape.k, shape.n}, DType::kBF16));
  TANDEM_ASSIGN(bench.gathered_,
                device.allocate_tensor({shape.s, context.size * rows, shape.k}, DType::kBF16));
  for (Tensor* const out : {&bench.out_, &bench.out_by_hand_}) {
    TANDEM_ASSIGN(*out, device.allocate_tensor({shape.s, context.size, rows, shape.n}, DType::kBF16));
  }
  TANDEM_ASSIGN(bench.block_, symm::empty({shape.s, rows, shape.k}, DType::kBF16, device));
  TANDEM_ASSIGN(bench.handle_, symm::rendezvous(bench.block_, *bench.group_));
  TANDEM_ASSIGN(const host::HostProgram program, lowered(context.size));
  bench.inputs_ = {bench.a_.view(), bench.b_.view()};
  TANDEM_ASSIGN(bench.executor_,
                host::Executor::create(program, bench.inputs_, *bench.group_, device, shape.streams));
  return bench;
}

/// What the unrolled program does, as a user would write it.
Result<void> Bench::enqueue_by_hand() {
  const int world = group_->size();
  const std::int64_t rows = a_.view().size(2);
  for (const auto& worker : workers_) TANDEM_TRY(worker->wait(*stream_));
  for (std::int64_t j = 0; j < shape_.s; ++j) {
    const auto idx = static_cast<std::size_t>(j) % workers_.size();
    Stream& lane = *workers_[idx];
    const TensorView all = gathered_.view().select(0, j);
    const TensorView own = a_.view().select(0, j).select(0, 0);
    TANDEM_TRY(lane.copy(own, block_.view().select(0, j)));
    TANDEM_TRY(handle_->barrier(lane, symm::kFirstUserChannel + static_cast<int>(idx)));
    for (int step = 0; step < world; ++step) {
      const int peer = (group_->rank() + step) % world;
      const TensorView part = all.narrow(0, peer * rows, rows);
      TANDEM_TRY(step == 0 ? lane.copy(own, part) : handle_->get(lane, part, peer, j * rows * shape_.k));
    }
    const TensorView out = TensorView::contiguous(out_by_hand_.view().select(0, j).data,
                                                  {world * rows, shape_.n}, DType::kBF16, device_->id());
    TANDEM_TRY(gemm::mm({.a = all, .b = b_.view(), .out = out, .bias = {}}, lane));
  }
  for (const auto& worker : workers_) TANDEM_TRY(stream_->wait(*worker));
  return handle_->barrier(*stream_, symm::kFirstUserChannel + 17);
}

Result<double> Bench::call(bool by_hand) {
  constexpr std::chrono::microseconds kUntilEnqueued{2000};
  TANDEM_TRY(stream_->sleep(kUntilEnqueued));  // what the host takes is not what is asked
  TANDEM_TRY(handle_->barrier(*stream_, symm::kFirstUserChannel + 16));
  TANDEM_TRY(stream_->record(*begin_));
  TANDEM_TRY(by_hand ? enqueue_by_hand() : executor_->run(inputs_, out_.view(), *stream_));
  TANDEM_TRY(stream_->record(*end_));
  TANDEM_TRY(stream_->synchronize());
  return end_->elapsed_us(*begin_);
}

/// Both ways in turns; rank 0 prints the medians of the slowest rank.
Result<void> run_rank(const RankContext& context, const Shape& shape, int calls) {
  TANDEM_ASSIGN(Bench bench, Bench::make(context, shape));
  std::array<std::vector<double>, 2> us;
  for (int i = -10; i < calls; ++i) {
    for (const bool by_hand : {false, true}) {
      TANDEM_ASSIGN(const double one, bench.call(by_hand));
      if (i >= 0) us[by_hand].push_back(one);
    }
  }
  std::array<std::vector<double>, 2> slowest;
  for (const bool by_hand : {false, true}) {
    const std::string key = by_hand ? "by_hand/" : "program/";
    TANDEM_TRY(context.store->set(key + std::to_string(context.rank), std::as_bytes(std::span(us[by_hand]))));
    if (context.rank != 0) continue;
    slowest[by_hand].resize(us[by_hand].size());
    for (int r = 0; r < context.size; ++r) {
      TANDEM_ASSIGN(const auto bytes,
                    context.store->get(key + std::to_string(r), Deadline::after(std::chrono::seconds(60))));
      std::vector<double> theirs(us[by_hand].size());
      std::memcpy(theirs.data(), bytes.data(), bytes.size());
      for (std::size_t i = 0; i < theirs.size(); ++i)
        slowest[by_hand][i] = std::max(slowest[by_hand][i], theirs[i]);
    }
  }
  if (context.rank != 0) return {};
  const double program_us = harness::median(slowest[0]);
  const double by_hand_us = harness::median(slowest[1]);
  const nlohmann::json row{{"what", "gather and matmul by a host program, and by a loop over streams"},
                           {"world", context.size},
                           {"s", shape.s},
                           {"m", shape.m},
                           {"n", shape.n},
                           {"k", shape.k},
                           {"streams", shape.streams},
                           {"calls", calls},
                           {"program_us", program_us},
                           {"by_hand_us", by_hand_us},
                           {"ratio", program_us / by_hand_us},
                           {"gpu", bench.gpu()},
                           {"commit", TANDEM_COMMIT},
                           {"command", "bench_host_program " + std::to_string(context.size) + " " +
                                           std::to_string(calls) + " " + std::to_string(shape.s) + " " +
                                           std::to_string(shape.m) + " " + std::to_string(shape.n) + " " +
                                           std::to_string(shape.k) + " " + std::to_string(shape.streams)}};
  std::printf("%s\n", row.dump().c_str());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_launched(argc, argv, [](const bench::Numbers& numbers) {
    const Shape shape{numbers.at(2, 8), numbers.at(3, 4096), numbers.at(4, 3584), numbers.at(5, 8192),
                      numbers.at(6, 4)};
    const int calls = numbers.at(1, 100);
    return bench::LaunchedRanks{
        .program = "bench_host_program",
        .ranks = numbers.at(0, 2),
        .refusal = calls < 1 ? "bench_host_program [RANKS [CALLS [S M N K STREAMS]]]" : nullptr,
        .run_rank = [shape, calls](const RankContext& context) { return run_rank(context, shape, calls); }};
  });
}
