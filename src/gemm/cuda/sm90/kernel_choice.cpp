#include "gemm/cuda/sm90/kernel_choice.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace tandem::gemm::cuda {
namespace {

/// Measured on an H200: a tile of 128 x n x 8192, and a chunk on its way through a copy engine.
struct Rates {
  double tile_us = 14;
  double column_us = 0.3;
  double k = 8192;
  double first_chunk_us = 4;
  double chunk_us = 4.2;
  double bytes_per_us = 370e3;
  double first_patch_us = 8;  ///< what comes in patches keeps pace with the product from there on
};

/// Of the chunk that is taken as number `step`.
double arrival_us(const KernelProblem& problem, std::int64_t step, std::int64_t chunk_bytes) {
  constexpr Rates kRates;
  if (step < problem.complete_chunks) return 0;
  const std::int64_t sent = step - problem.complete_chunks - problem.product.patch_chunks + 1;
  if (sent <= 0) return kRates.first_patch_us;
  return kRates.first_chunk_us +
         static_cast<double>(sent) *
             (kRates.chunk_us + static_cast<double>(chunk_bytes) / kRates.bytes_per_us);
}

bool accepts(const Tiling& tiling, const ChunkParts& parts, std::int64_t columns) {
  return std::all_of(parts.parts().begin(), parts.parts().end(),
                     [&](const ChunkPart& part) { return TileOrder::accepts(part.chunks, columns, tiling); });
}

/// The chunks, or groups of them, that are taken one after the other.
ChunkOrder steps_of(const AsyncInputProblem& product, std::span<const ChunkPart> parts) {
  const ChunkOrder signals(product.m, static_cast<int>(product.chunks), 0);
  if (parts.size() != 1) return signals;
  if (parts[0].start.group == 0) return parts[0].chunks;
  const std::int64_t stride = signals.stride() * product.chunks_together;
  return ChunkOrder(product.m, static_cast<int>((product.m + stride - 1) / stride), 0);
}

}  // namespace

ChunkCut cut_of(const Tiling& tiling, const AsyncInputProblem& product) {
  return {.tile_rows = tiling.tile_rows,
          .cluster_rows = tiling.cluster_rows,
          .together = static_cast<int>(product.chunks_together),
          .in_order = product.in_order};
}

double tile_us(const Tiling& tiling, std::int64_t k) {
  constexpr Rates kRates;
  return (kRates.tile_us + kRates.column_us * tiling.tile_columns) * static_cast<double>(k) / kRates.k;
}

namespace {

/// The clusters of a GPU that takes waves of tiles: when each is free.
class Waves {
 public:
  Waves(const ResidentKernel& kernel, std::int64_t k, double begin_us)
      : tile_us_(tile_us(kernel.kernel->tiling, k)),
        free_us_(static_cast<std::size_t>(kernel.most_clusters), begin_us) {}
  void take(std::int64_t tiles, double here_us) {
    for (std::int64_t i = 0; i < tiles; ++i) {
      double& free = free_us_[next_];
      free = std::max(free, here_us) + tile_us_;
      next_ = next_ + 1 == free_us_.size() ? 0 : next_ + 1;
    }
  }
  [[nodiscard]] double end_us() const { return *std::max_element(free_us_.begin(), free_us_.end()); }

 private:
  double tile_us_;
  std::vector<double> free_us_;
  std::size_t next_ = 0;
};

/// The same chunks in the same order for both kernels, each in whole clusters.
bool can_cut(const KernelPlan& plan, const AsyncInputProblem& product) {
  if (product.patch_chunks > 0) return false;  // the launch that sends is all there is
  for (const ResidentKernel* kernel : {plan.first, plan.rest}) {
    const ChunkParts parts(product.m, static_cast<int>(product.chunks), 0,
                           cut_of(kernel->kernel->tiling, product));
    if (parts.parts().size() != 1 || parts.parts()[0].start.group != 0) return false;
    if (plan.first_steps < 1 || plan.first_steps >= parts.parts()[0].chunks.size()) return false;
  }
  return true;
}

/// Of a kernel behind another.
constexpr double kNextLaunchUs = 2;
/// Products of more tiles have so many waves that the last one, and what arrives late, make no difference.
constexpr std::int64_t kManyTiles = std::int64_t{1} << 16;

std::int64_t tiles_of(const AsyncInputProblem& product, const Tiling& tiling) {
  return product.m / tiling.tile_rows * (product.n / tiling.tile_columns);
}

}  // namespace

std::string KernelPlan::name() const {
  if (rest == nullptr) return first->kernel->name;
  return fmt::format("{} + {}", first->kernel->name, rest->kernel->name);
}

double predicted_us(const KernelPlan& plan, const KernelProblem& problem) {
  const AsyncInputProblem& product = problem.product;
  if (plan.rest != nullptr && !can_cut(plan, product)) return 0;
  for (const ResidentKernel* kernel : {plan.first, plan.rest}) {
    if (kernel == nullptr) continue;
    const ChunkParts parts(product.m, static_cast<int>(product.chunks), 0,
                           cut_of(kernel->kernel->tiling, product));
    if (!accepts(kernel->kernel->tiling, parts, product.n) || kernel->most_clusters < 1) return 0;
  }
  const ResidentKernel* kernel = plan.first;
  if (const Tiling& tiling = kernel->kernel->tiling; tiles_of(product, tiling) > kManyTiles) {
    return static_cast<double>(product.m) * static_cast<double>(product.n) / tiling.tile_columns *
           tile_us(tiling, product.k);
  }
  const ChunkParts parts(product.m, static_cast<int>(product.chunks), 0,
                         cut_of(kernel->kernel->tiling, product));
  const ChunkOrder signals(product.m, static_cast<int>(product.chunks), 0);
  const ChunkOrder order = steps_of(product, parts.parts());
  const std::int64_t together = signals.stride() == 0 ? 1 : order.stride() / signals.stride();
  const std::int64_t chunk_bytes = signals.stride() * product.k * size_bytes(product.in);
  Waves waves(*kernel, product.k, 0);
  std::int64_t tile_rows = 0;  // up to this step
  std::int64_t taken = 0;      // in rows of clusters
  for (int step = 0; step < order.size(); ++step) {
    if (plan.rest != nullptr && step == plan.first_steps) {
      kernel = plan.rest;
      waves = Waves(*kernel, product.k, waves.end_us() + kNextLaunchUs);
      tile_rows = taken = 0;
    }
    const Tiling& tiling = kernel->kernel->tiling;
    const std::int64_t columns =
        (product.n + tiling.tile_columns - 1) / tiling.tile_columns / tiling.cluster_columns;
    tile_rows += (order.rows_of(step).size + tiling.tile_rows - 1) / tiling.tile_rows;
    const std::int64_t rows = (tile_rows + tiling.cluster_rows - 1) / tiling.cluster_rows - taken;
    taken += rows;
    waves.take(rows * columns, arrival_us(problem, (step + 1) * together - 1, chunk_bytes));
  }
  return waves.end_us();
}

void KernelChoice::assign(std::vector<ResidentKernel> kernels, std::string_view only) {
  kernels_ = std::move(kernels);
  std::erase_if(kernels_,
                [&](const ResidentKernel& kernel) { return !only.empty() && kernel.kernel->name != only; });
}

std::vector<const ResidentKernel*> KernelChoice::those_for(const AsyncInputProblem& product) const {
  std::vector<const ResidentKernel*> those;
  for (const ResidentKernel& kernel : kernels_) {
    if (kernel.kernel->dtype == product.in && kernel.kernel->b_is_column_major == product.b_is_column_major)
      those.push_back(&kernel);
  }
  return those;
}

KernelPlan KernelChoice::choose(const KernelProblem& problem) const {
  const std::vector<const ResidentKernel*> those = those_for(problem.product);
  KernelPlan best;
  double best_us = 0;
  const auto consider = [&](const KernelPlan& plan, double handicap) {
    const double us = predicted_us(plan, problem) * handicap;
    if (us == 0 || (best.first != nullptr && us >= best_us)) return;
    best = plan;
    best_us = us;
  };
  for (const ResidentKernel* kernel : those) consider({.first = kernel}, 1);
  // Two launches have to be worth it: tails of waves are where the model is least sure.
  constexpr double kHandicap = 1.02;
  constexpr std::int64_t kFewTiles = 4096;
  const std::int64_t chunks =
      problem.product.chunks / std::max<std::int64_t>(problem.product.chunks_together, 1);
  if (best.first == nullptr || problem.complete_chunks == problem.product.chunks || chunks > 8 ||
      tiles_of(problem.product, best.first->kernel->tiling) > kFewTiles) {
    return best;
  }
  for (const ResidentKernel* first : those) {
    for (const ResidentKernel* rest : those) {
      for (int steps = 1; first != rest && steps < chunks; ++steps)
        consider({.first = first, .rest = rest, .first_steps = steps}, kHandicap);
    }
  }
  return best;
}

const KernelPlan* KernelChoice::find(const KernelProblem& problem, std::string* why_not) const {
  const Key key = key_of(problem);
  const std::lock_guard lock(mutex_);
  auto found = known_.find(key);
  if (found == known_.end()) found = known_.emplace(key, choose(problem)).first;
  if (found->second.first != nullptr) return &found->second;
  if (why_not != nullptr) {
    *why_not = fmt::format("no native kernel takes {} with b {}-major", to_string(problem.product.in),
                           problem.product.b_is_column_major ? "column" : "row");
  }
  return nullptr;
}

}  // namespace tandem::gemm::cuda
