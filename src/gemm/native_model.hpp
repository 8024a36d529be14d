#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/hash.hpp"
#include "base/lru_cache.hpp"
#include "cost/machine.hpp"
#include "gemm/chunk_parts.hpp"
#include "gemm/native_tiles.hpp"
#include "gemm/product.hpp"

namespace tandem::gemm {

/// A native kernel on this GPU.
struct ResidentKernel {
  const NativeKernel* kernel = nullptr;
  int most_clusters = 0;  ///< that run at one time
};

// The products here are those whose left operand arrives, or whose rows go to their owners.

/// The owners of a product's rows, as tiles are taken: the own ones last.
[[nodiscard]] ChunkOrder owners_of(const Product& product);

/// What a kernel has to make of the sums of this product.
[[nodiscard]] SumsKind sums_of(const Product& product);

/// What the choice of a kernel is remembered by: all that it depends on.
[[nodiscard]] inline auto key_of(const Product& product) {
  const Chunks chunks = product.arrival.value_or(Chunks());
  return std::tuple{product.m,        product.n,
                    product.k,        chunks.count,
                    chunks.together,  chunks.complete,
                    chunks.in_pieces, chunks.in_order,
                    product.a,        product.b,
                    product.out,      product.b_is_column_major,
                    sums_of(product), product.owners ? product.owners->count : 0};
}

/// How a kernel's launches cut the chunks of a product.
[[nodiscard]] ChunkCut cut_of(const Tiling& tiling, const Product& product);

/// What a tile takes, about, as the model of predicted_us() has it.
[[nodiscard]] double tile_us(const NativeKernel& kernel, std::int64_t k);

/// Time of the product by waves of tiles, in microseconds: cluster number i starts when cluster number i -
/// most_clusters has ended and its chunk has arrived. 0 if the kernel does not take the problem.
/// Source:  docs/design/native_all_gather_matmul.md
[[nodiscard]] double predicted_us(const ResidentKernel& kernel, const Product& product,
                                  const cost::GpuRates& gpu = cost::kH200);

/// Whether types, b's memory order and what becomes of the sums are the kernel's.
[[nodiscard]] bool takes(const NativeKernel& kernel, const Product& product);

/// `only`: the name of the one kernel that may run, for measurements; empty: any.
[[nodiscard]] inline bool may_run(const NativeKernel& kernel, std::string_view only) {
  return only.empty() || kernel.name == only;
}

/// The kernels of a GPU, and which takes what.
class KernelChoice {
 public:
  /// Remembers its choices for so many problems.
  explicit KernelChoice(std::size_t max_problems = 4096) : known_(max_problems) {}
  /// Once.
  void assign(std::vector<ResidentKernel> kernels) { kernels_ = std::move(kernels); }

  /// The one that is predicted to be fastest on the reference machine, so that all ranks choose alike, or
  /// null and the reason in `why_not` unless that is null. Allocates nothing for a problem that it remembers.
  [[nodiscard]] const ResidentKernel* find(const Product& product, std::string* why_not) const;

 private:
  using Key = decltype(key_of(std::declval<const Product&>()));
  [[nodiscard]] const ResidentKernel* choose(const Product& product) const;

  std::vector<ResidentKernel> kernels_;
  mutable std::mutex mutex_;
  struct HashKey {
    std::size_t operator()(const Key& key) const {
      Hash hash;
      std::apply([&](const auto&... parts) { (hash.add(parts), ...); }, key);
      return hash.value();
    }
  };
  mutable LruCache<Key, const ResidentKernel*, HashKey> known_;
};

}  // namespace tandem::gemm
