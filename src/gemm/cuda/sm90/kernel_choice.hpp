#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <tandem/gemm/async_input_mm.hpp>
#include <tuple>
#include <vector>

#include "gemm/cuda/sm90/async_input_kernel.hpp"
#include "gemm/cuda/sm90/async_input_parts.hpp"

namespace tandem::gemm::cuda {

/// A native kernel on this GPU.
struct ResidentKernel {
  const AsyncInputKernel* kernel = nullptr;
  int most_clusters = 0;  ///< that run at one time
};

/// What decides on the kernel of a product.
struct KernelProblem {
  AsyncInputProblem product;
  std::int64_t complete_chunks = 0;
};

/// What a choice is remembered by: all that it hangs on.
[[nodiscard]] inline auto key_of(const KernelProblem& problem) {
  const AsyncInputProblem& p = problem.product;
  return std::tuple{p.m,
                    p.n,
                    p.k,
                    p.chunks,
                    p.chunks_together,
                    problem.complete_chunks,
                    p.patch_chunks,
                    p.in_order,
                    p.in,
                    p.b_is_column_major};
}

/// How a kernel's launches cut the chunks of a product.
[[nodiscard]] ChunkCut cut_of(const Tiling& tiling, const AsyncInputProblem& product);

/// What a tile takes, about, as the model of predicted_us() has it.
[[nodiscard]] double tile_us(const Tiling& tiling, std::int64_t k);

/// Which kernels run a product: `first` all of it, or the first steps of the chunks' order, and `rest`, in a
/// launch of its own, the others. So a first wave can be the own shard in narrow tiles, none of which waits,
/// and what comes later has wide ones, which take less time in all.
struct KernelPlan {
  const ResidentKernel* first = nullptr;
  const ResidentKernel* rest = nullptr;  ///< null: `first` runs all of it
  int first_steps = 0;                   ///< of `first`, if there is a rest

  [[nodiscard]] std::string name() const;  ///< "bf16 t 128x112 2x1", or two of them with a "+" between
};

/// Time of the product by waves of tiles, in microseconds: cluster number i starts when cluster number i -
/// most_clusters has ended and its chunk has arrived; the rest starts when the first is over. 0 if a kernel
/// does not take the problem, or the problem cannot be cut there.
/// Source:  docs/design/native_all_gather_matmul.md
[[nodiscard]] double predicted_us(const KernelPlan& plan, const KernelProblem& problem);

/// The kernels of a GPU, and which takes what.
class KernelChoice {
 public:
  /// Once. `only`: the name of the one kernel that is used, for measurements; empty: any.
  void assign(std::vector<ResidentKernel> kernels, std::string_view only);

  /// What is predicted to be fastest, or null and the reason in `why_not` unless that is null. Allocates
  /// nothing for a problem that it has met before.
  [[nodiscard]] const KernelPlan* find(const KernelProblem& problem, std::string* why_not) const;

 private:
  using Key = decltype(key_of({}));
  [[nodiscard]] KernelPlan choose(const KernelProblem& problem) const;
  [[nodiscard]] std::vector<const ResidentKernel*> those_for(const AsyncInputProblem& product) const;

  std::vector<ResidentKernel> kernels_;
  mutable std::mutex mutex_;
  mutable std::map<Key, KernelPlan> known_;  ///< a plan without kernels: none takes it
};

}  // namespace tandem::gemm::cuda
