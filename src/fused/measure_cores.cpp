#include "fused/measure_cores.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <limits>
#include <memory>
#include <tandem/coll/collectives.hpp>
#include <tandem/cpu/launch.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/scaled_mm.hpp>
#include <utility>
#include <vector>

#include "base/function_ref.hpp"
#include "base/try.hpp"

namespace tandem::fused {
namespace {

constexpr std::int64_t kMostRounds = 8;
constexpr std::chrono::nanoseconds kEnoughTime = std::chrono::milliseconds(4);
constexpr std::chrono::nanoseconds kShortestRound = std::chrono::microseconds(1);

double thread_cpu_us() {
  std::timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

/// A stream that keeps a core busy, with memory of its own.
struct Worker {
  std::unique_ptr<Stream> stream;
  std::vector<Tensor> tensors;
  std::vector<double> marks;  ///< what its thread has worked before each piece of work and behind the last one

  [[nodiscard]] const TensorView& view(std::size_t i) const { return tensors[i].view(); }
};
using Workers = std::vector<Worker>;
/// Enqueues one of at most two pieces of work.
using Enqueue = FunctionRef<Result<void>(Worker& worker, std::size_t piece)>;

Result<Workers> hire(int count, Device& device) {
  Workers workers(static_cast<std::size_t>(count));
  for (Worker& worker : workers) {
    TANDEM_ASSIGN(worker.stream, device.create_stream());
  }
  return workers;
}

Result<void> furnish(Workers& workers, Device& device, const std::vector<std::pair<Dims, DType>>& tensors) {
  for (Worker& worker : workers) {
    worker.tensors.clear();
    for (const auto& [sizes, dtype] : tensors) {
      TANDEM_ASSIGN(Tensor tensor, device.allocate_tensor(sizes, dtype));
      worker.tensors.push_back(std::move(tensor));
    }
  }
  return {};
}

Result<void> enqueue_mark(Worker& worker, std::size_t idx) {
  return cpu::launch(*worker.stream, cpu::Task([mark = &worker.marks[idx]]() -> Result<void> {
    *mark = thread_cpu_us();
    return {};
  }));
}

/// All workers do the same rounds, at once and without a pause.
Result<void> do_rounds(Workers& workers, std::size_t rounds, std::size_t num_pieces, Enqueue enqueue) {
  for (Worker& worker : workers) worker.marks.assign(rounds * num_pieces + 1, 0);
  for (std::size_t i = 0; i < rounds * num_pieces; ++i) {
    for (Worker& worker : workers) {
      TANDEM_TRY(enqueue_mark(worker, i));
      TANDEM_TRY(enqueue(worker, i % num_pieces));
    }
  }
  for (Worker& worker : workers) TANDEM_TRY(enqueue_mark(worker, rounds * num_pieces));
  for (Worker& worker : workers) TANDEM_TRY(worker.stream->synchronize());
  return {};
}

/// The least that a piece of work took, the mean over the workers: whatever else a core does only adds to it.
/// The last round does not count: a worker may be alone in it.
double least_us(const Workers& workers, std::size_t num_pieces, std::size_t piece) {
  constexpr double kClockStoodStill = 1e-3;
  double sum = 0;
  for (const Worker& worker : workers) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t at = piece; at + num_pieces < worker.marks.size() - 1; at += num_pieces)
      least = std::min(least, worker.marks[at + 1] - worker.marks[at]);
    sum += std::max(least, kClockStoodStill);
  }
  return sum / static_cast<double>(workers.size());
}

/// One round to warm up, in which threads allocate their scratch memory, and then as many as fit.
Result<std::array<double, 2>> time_pieces(Workers& workers, std::size_t num_pieces, Enqueue enqueue) {
  const auto begin = std::chrono::steady_clock::now();
  TANDEM_TRY(do_rounds(workers, 1, num_pieces, enqueue));
  const auto fitting = kEnoughTime / std::max(std::chrono::steady_clock::now() - begin, kShortestRound);
  const auto rounds = std::clamp<std::int64_t>(fitting, 2, kMostRounds);
  TANDEM_TRY(do_rounds(workers, static_cast<std::size_t>(rounds), num_pieces, enqueue));
  return std::array<double, 2>{least_us(workers, num_pieces, 0),
                               num_pieces > 1 ? least_us(workers, num_pieces, 1) : 0};
}

/// What to multiply: few and many rows by the same right operand.
struct Products {
  DType dtype;
  std::int64_t few;
  std::int64_t many;
  std::int64_t n;
  std::int64_t k = 512;

  [[nodiscard]] bool is_scaled() const { return size_bytes(dtype) == 1; }
};

/// Blocks of the loops around the kernels: scaled products widen b again for each 384 rows.
Products products_of(DType dtype) {
  if (size_bytes(dtype) == 1) return {.dtype = dtype, .few = 96, .many = 96 + 384, .n = 256};
  return {.dtype = dtype, .few = 6, .many = 288, .n = 512};
}

Result<void> multiply(const Products& products, std::int64_t rows, Worker& worker) {
  const TensorView a = worker.view(0).narrow(0, 0, rows);
  const TensorView out = worker.view(2).narrow(0, 0, rows);
  // One for few rows and one for many: an operand is not where a core has just read it.
  const TensorView b = worker.view(1).narrow(0, rows == products.few ? 0 : products.k, products.k);
  if (!products.is_scaled()) {
    return gemm::mm({.a = a, .b = b, .out = out, .bias = std::nullopt}, *worker.stream);
  }
  return gemm::scaled_matmul(
      {.a = a, .b = b, .a_scale = worker.view(3), .b_scale = worker.view(3), .out = out},
      *worker.stream);
}

/// Packing costs the same for few rows and for many; what more rows cost is the product.
Result<void> measure_products(DType dtype, Workers& workers, Device& device, CoreRates& rates) {
  constexpr double kLongUs = 2000;
  Products products = products_of(dtype);
  const DType out = products.is_scaled() ? DType::kBF16 : dtype;
  TANDEM_TRY(furnish(workers, device,
                     {{{products.many, products.k}, dtype},
                      {{2 * products.k, products.n}, dtype},
                      {{products.many, products.n}, out},
                      {{1}, DType::kF32}}));
  const auto enqueue = [&](Worker& worker, std::size_t piece) {
    return multiply(products, piece == 0 ? products.few : products.many, worker);
  };
  // Where products take long, fewer rows have to do.
  TANDEM_TRY(do_rounds(workers, 2, 1, enqueue));
  const auto fitting = static_cast<std::int64_t>(static_cast<double>(products.few) * kLongUs /
                                                 least_us(workers, 1, 0));
  products.many = std::clamp(fitting, 2 * products.few, products.many);
  TANDEM_ASSIGN(const auto us, time_pieces(workers, 2, enqueue));
  const auto few = static_cast<double>(products.few);
  const auto many = static_cast<double>(products.many);
  const auto b_elements = static_cast<double>(products.n * products.k);
  // More rows do not take less; where a clock says so, packing is lost in what a row takes.
  const double row_us = us[1] > us[0] ? (us[1] - us[0]) / (many - few) : us[1] / many;
  const double packing_us = std::max(us[0] - few * row_us, us[0] * 0.01);
  rates.set(mm_rate_of(dtype), 2 * b_elements / row_us);
  rates.set(pack_rate_of(dtype), b_elements / packing_us);
  return {};
}

/// More than the second-level caches hold, as shards are.
Result<void> measure_copies(Workers& workers, Device& device, CoreRates& rates) {
  constexpr std::int64_t kBytes = std::int64_t{2} << 20;
  TANDEM_TRY(furnish(workers, device, {{{kBytes}, DType::kU8}, {{kBytes}, DType::kU8}}));
  const auto enqueue = [](Worker& worker, std::size_t) {
    return worker.stream->copy(worker.view(0), worker.view(1));
  };
  TANDEM_ASSIGN(const auto us, time_pieces(workers, 1, enqueue));
  rates.set(CoreRate::kCopy, static_cast<double>(kBytes) / us[0]);
  return {};
}

Result<void> measure_sums(DType dtype, Workers& workers, Device& device, CoreRates& rates) {
  constexpr std::int64_t kLayers = 4;
  constexpr std::int64_t kElements = 64 << 10;
  TANDEM_TRY(furnish(workers, device, {{{kLayers, kElements}, dtype}, {{kElements}, dtype}}));
  const auto enqueue = [](Worker& worker, std::size_t) {
    return coll::reduce_stack(
        {.stack = worker.view(0), .out = worker.view(1), .op = coll::ReduceOp::kSum, .bias = {}},
        *worker.stream);
  };
  TANDEM_ASSIGN(const auto us, time_pieces(workers, 1, enqueue));
  rates.set(sum_rate_of(dtype), static_cast<double>(kLayers * kElements * size_bytes(dtype)) / us[0]);
  return {};
}

}  // namespace

Result<CoreRates> measure_cores(std::span<const CoreRate> wanted, int busy_cores, Device& device) {
  const auto wants = [&](CoreRate rate) {
    return std::find(wanted.begin(), wanted.end(), rate) != wanted.end();
  };
  TANDEM_ASSIGN(Workers workers, hire(busy_cores, device));
  CoreRates rates;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3}) {
    if (wants(mm_rate_of(dtype)) || wants(pack_rate_of(dtype)))
      TANDEM_TRY(measure_products(dtype, workers, device, rates));
  }
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    if (wants(sum_rate_of(dtype))) TANDEM_TRY(measure_sums(dtype, workers, device, rates));
  }
  if (wants(CoreRate::kCopy)) TANDEM_TRY(measure_copies(workers, device, rates));
  return rates;
}

}  // namespace tandem::fused
