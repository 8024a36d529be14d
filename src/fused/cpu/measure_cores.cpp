#include "fused/cpu/attach.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <numeric>
#include <tandem/coll/collectives.hpp>
#include <tandem/cpu/launch.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/scaled_mm.hpp>
#include <utility>
#include <vector>

#include "base/function_ref.hpp"
#include "base/try.hpp"
#include "fused/call/core_meter.hpp"

namespace tandem::fused {
namespace {

constexpr double kFewestRounds = 3;
constexpr double kMostRounds = 8;
constexpr double kEnoughUs = 4000;         ///< of products of a type
constexpr double kEnoughUsOfBytes = 1500;  ///< of copies, and of sums of a type

/// What this thread has worked: waiting for a core that it shares with another thread does not count.
double thread_us() {
  std::timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

/// A stream that keeps a core busy, with memory of its own.
struct Worker {
  std::unique_ptr<Stream> stream;
  std::vector<Tensor> tensors;
  /// What its thread has worked before each piece of work, and behind the last one.
  std::vector<double> marks;

  std::int64_t num_calls = 0;

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
    *mark = thread_us();
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

/// What a piece of work took, the mean over the slower half of the workers: an op lasts until its last rank
/// is done, and cores are not alike where some of them are two threads of one. Of a worker's rounds the
/// median: in the fastest ones others had not begun. The last round does not count: a worker may be alone in
/// it.
double typical_us(const Workers& workers, std::size_t num_pieces, std::size_t piece) {
  constexpr double kClockStoodStill = 1e-3;
  std::vector<double> of_workers;
  for (const Worker& worker : workers) {
    std::vector<double> us;
    for (std::size_t at = piece; at + num_pieces < worker.marks.size() - 1; at += num_pieces)
      us.push_back(worker.marks[at + 1] - worker.marks[at]);
    std::sort(us.begin(), us.end());
    of_workers.push_back(std::max(us[us.size() / 2], kClockStoodStill));
  }
  std::sort(of_workers.begin(), of_workers.end());
  const auto slower = of_workers.begin() + static_cast<std::ptrdiff_t>(of_workers.size() / 2);
  return std::accumulate(slower, of_workers.end(), 0.0) / static_cast<double>(of_workers.end() - slower);
}

/// One round to warm up, in which threads allocate their scratch memory, and then as many as fit.
Result<std::array<double, 2>> time_pieces(Workers& workers, std::size_t num_pieces, double enough_us,
                                          Enqueue enqueue) {
  TANDEM_TRY(do_rounds(workers, 1, num_pieces, enqueue));
  const double round_us = workers[0].marks.back() - workers[0].marks.front();
  const double fitting = std::clamp(enough_us / std::max(round_us, 1.0), kFewestRounds, kMostRounds);
  TANDEM_TRY(do_rounds(workers, static_cast<std::size_t>(fitting), num_pieces, enqueue));
  return std::array<double, 2>{typical_us(workers, num_pieces, 0),
                               num_pieces > 1 ? typical_us(workers, num_pieces, 1) : 0};
}

/// What to multiply: few rows by all of b [k_few, n], and many rows by [k, n] of it.
struct Products {
  DType dtype;
  std::int64_t few;
  std::int64_t many;
  std::int64_t n;
  std::int64_t k_few;
  std::int64_t k = 512;

  [[nodiscard]] bool is_scaled() const { return size_bytes(dtype) == 1; }
  [[nodiscard]] std::int64_t num_slices() const { return k_few / k; }
};

/// Packed b's are larger than second-level caches, as they are in use. Scaled products widen b again for each
/// 384 rows, block by block, so more than these make a difference there.
Products products_of(DType dtype) {
  if (size_bytes(dtype) == 1) return {.dtype = dtype, .few = 96, .many = 96 + 384, .n = 256, .k_few = 512};
  return {.dtype = dtype, .few = 6, .many = 96, .n = 512, .k_few = 1024};
}

/// All workers read one b, each its parts in turn, so that none is where a core has just read it.
Result<void> multiply(const Products& products, const TensorView& whole_b, bool few, Worker& worker) {
  const std::int64_t rows = few ? products.few : products.many;
  const std::int64_t depth = few ? products.k_few : products.k;
  const TensorView out = worker.view(1).narrow(0, 0, rows);
  const TensorView a = TensorView::contiguous(worker.view(0).data, {rows, depth}, products.dtype, out.device);
  const std::int64_t slice = few ? 0 : worker.num_calls++ % products.num_slices();
  const TensorView b = whole_b.narrow(0, slice * products.k, depth);
  if (!products.is_scaled())
    return gemm::mm({.a = a, .b = b, .out = out, .bias = std::nullopt}, *worker.stream);
  return gemm::scaled_matmul(
      {.a = a, .b = b, .a_scale = worker.view(2), .b_scale = worker.view(2), .out = out}, *worker.stream);
}

Result<void> furnish_for(const Products& products, Workers& workers, Device& device) {
  const std::int64_t a_elements = std::max(products.few * products.k_few, products.many * products.k);
  return furnish(workers, device,
                 {{{a_elements}, products.dtype},
                  {{products.many, products.n}, products.is_scaled() ? DType::kBF16 : products.dtype},
                  {{1}, DType::kF32}});
}

/// Within what a file of speeds may say: clocks that stand still give any number.
void keep(CoreRate rate, double per_us, CoreRates& rates) {
  constexpr double kPerUs = 1e3;
  rates.set(rate, std::clamp(per_us, kLeastCoreRate * kPerUs, kMostCoreRate * kPerUs));
}

/// What a row takes of k, and packing for k, from few = slices * (packing + few rows) and many = packing +
/// many rows.
void set_product_rates(const Products& products, const std::array<double, 2>& us, CoreRates& rates) {
  // A disturbed `few` must not make rows cheap: packing never costs what so many rows do.
  constexpr double kMostRowsOfPacking = 64;
  const double few_us = us[0] / static_cast<double>(products.num_slices());
  const auto few_rows = static_cast<double>(products.few);
  const auto many_rows = static_cast<double>(products.many);
  const double row_us = std::clamp((us[1] - few_us) / (many_rows - few_rows),
                                   us[1] / (many_rows + kMostRowsOfPacking), us[1] / many_rows);
  const double packing_us = std::max(few_us - few_rows * row_us, few_us * 0.01);
  const auto b_elements = static_cast<double>(products.n * products.k);
  keep(mm_rate_of(products.dtype), 2 * b_elements / row_us, rates);
  keep(pack_rate_of(products.dtype), b_elements / packing_us, rates);
}

Result<void> measure_products(DType dtype, Workers& workers, Device& device, CoreRates& rates) {
  constexpr double kSlowUs = 5000;
  Products products = products_of(dtype);
  TANDEM_TRY(furnish_for(products, workers, device));
  TANDEM_ASSIGN(const Tensor b, device.allocate_tensor({products.k_few, products.n}, dtype));
  TensorView b_in_use = b.view();
  const auto enqueue = [&](Worker& worker, std::size_t piece) {
    return multiply(products, b_in_use, piece == 0, worker);
  };
  TANDEM_TRY(do_rounds(workers, 2, 1, enqueue));
  if (typical_us(workers, 1, 0) > kSlowUs) {
    products = {.dtype = dtype, .few = 6, .many = 48, .n = 128, .k_few = 512};
    b_in_use = b.view().narrow(0, 0, products.k_few).narrow(1, 0, products.n);
    TANDEM_TRY(furnish_for(products, workers, device));
  }
  TANDEM_ASSIGN(const auto us, time_pieces(workers, 2, kEnoughUs, enqueue));
  set_product_rates(products, us, rates);
  return {};
}

/// What all workers read was written by another core, as by a peer, and does not fit into second-level
/// caches, as shards do not.
Result<void> measure_copies(Workers& workers, Device& device, CoreRates& rates) {
  constexpr std::int64_t kBytes = std::int64_t{4} << 20;
  TANDEM_ASSIGN(const Tensor source, device.allocate_tensor({kBytes}, DType::kU8));
  std::vector<Buffer> targets;  // their pages are touched first by those who copy
  for (std::size_t i = 0; i < workers.size(); ++i) {
    TANDEM_ASSIGN(Buffer target, device.allocate(kBytes));
    targets.push_back(std::move(target));
  }
  const auto enqueue = [&](Worker& worker, std::size_t) {
    const auto idx = static_cast<std::size_t>(&worker - workers.data());
    return worker.stream->copy(source.view(),
                               TensorView::contiguous(targets[idx].data(), {kBytes}, DType::kU8));
  };
  TANDEM_ASSIGN(const auto us, time_pieces(workers, 1, kEnoughUsOfBytes, enqueue));
  keep(CoreRate::kCopy, static_cast<double>(kBytes) / us[0], rates);
  return {};
}

Result<void> measure_sums(DType dtype, Workers& workers, Device& device, CoreRates& rates) {
  constexpr std::int64_t kLayers = 4;
  constexpr std::int64_t kElements = 256 << 10;
  TANDEM_ASSIGN(const Tensor stack, device.allocate_tensor({kLayers, kElements}, dtype));
  TANDEM_TRY(furnish(workers, device, {{{kElements}, dtype}}));
  const auto enqueue = [&](Worker& worker, std::size_t) {
    return coll::reduce_stack(
        {.stack = stack.view(), .out = worker.view(0), .op = coll::ReduceOp::kSum, .bias = {}},
        *worker.stream);
  };
  TANDEM_ASSIGN(const auto us, time_pieces(workers, 1, kEnoughUsOfBytes, enqueue));
  keep(sum_rate_of(dtype), static_cast<double>(kLayers * kElements * size_bytes(dtype)) / us[0], rates);
  return {};
}

class Meter final : public CoreMeter {
 public:
  [[nodiscard]] Result<CoreRates> measure(std::span<const CoreRate> wanted, int busy_cores,
                                          Device& device) const override {
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
};

}  // namespace

void attach_cpu(Device& device) {
  device.attach<CoreMeter>(std::make_shared<Meter>());
}

}  // namespace tandem::fused
