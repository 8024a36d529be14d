#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <tandem/gemm/mm.hpp>
#include <vector>

#include "base/try.hpp"
#include "gemm/cuda/sm90/instances.hpp"
#include "gemm/native_model.hpp"
#include "gemm/product.hpp"
#include "harness/stopwatch.hpp"

namespace tandem::bench {

/// How a native product comes by its left operand.
enum class Way { kThere, kSignals, kCopies, kPieces };

inline const char* suffix_of(Way way) {
  constexpr const char* kSuffixes[] = {"", ", signals", ", copies", ", pieces"};
  return kSuffixes[static_cast<int>(way)];
}

/// One column of a table: a native kernel, or one of cuBLASLt's choices.
struct Variant {
  std::string name;
  const gemm::cuda::AsyncInputKernel* kernel = nullptr;  ///< null: cuBLASLt
  int heuristic = 0;
  Way way = Way::kThere;
  std::vector<double> us = {};
  std::int64_t wrong = 0;
};

/// With as many clusters as a GPU has room for.
inline gemm::ResidentKernel resident_on(int gpu, const gemm::cuda::AsyncInputKernel& kernel) {
  int multiprocessors = 0;
  static_cast<void>(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, gpu));
  return {.kernel = &kernel,
          .most_clusters = multiprocessors / (kernel.tiling.cluster_rows * kernel.tiling.cluster_columns)};
}

/// What the model says of every kernel that takes `product`, whose chunks are all complete.
inline std::vector<std::pair<const gemm::cuda::AsyncInputKernel*, double>> kernels_for(
    const gemm::Product& product, int gpu) {
  std::vector<std::pair<const gemm::cuda::AsyncInputKernel*, double>> kernels;
  for (const gemm::cuda::AsyncInputKernel& kernel : gemm::cuda::async_input_kernels()) {
    if (!takes(kernel, product)) continue;
    const double us = predicted_us(resident_on(gpu, kernel), product);
    if (us > 0) kernels.emplace_back(&kernel, us);
  }
  return kernels;
}

/// In bf16 with b by columns, of `chunks` chunks that are all there.
inline gemm::Product product_of(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t chunks,
                                bool in_order) {
  return {.m = m,
          .n = n,
          .k = k,
          .a = DType::kBF16,
          .b = DType::kBF16,
          .out = DType::kBF16,
          .b_is_column_major = true,
          .arrival = gemm::Chunks{.count = chunks, .complete = chunks, .in_order = in_order}};
}

/// Every kernel in every way, then those of cuBLASLt's choices that `runs` takes. The kernels come first:
/// whoever checks in this order has their bits as reference, and compares them with each other exactly.
template <class Runs>
std::vector<Variant> variants_of(const gemm::Product& product, int gpu, std::span<const Way> ways,
                                 Runs runs) {
  std::vector<Variant> all;
  for (const auto& [kernel, us] : kernels_for(product, gpu)) {
    for (const Way way : ways)
      all.push_back({.name = std::string(kernel->name) + suffix_of(way), .kernel = kernel, .way = way});
  }
  for (int i = 0; i < gemm::kMostHeuristics; ++i) {
    if (const Variant vendor{.name = "cublaslt " + std::to_string(i), .heuristic = i}; runs(vendor))
      all.push_back(vendor);
  }
  return all;
}

/// Has `time(variant, round)` time all, in a new order every round; negative rounds are not counted. Every
/// rank that does this takes the same orders.
template <class Time>
Result<void> time_in_turns(std::vector<Variant>& all, int warmup, int rounds, Time time) {
  std::mt19937 random(11);
  for (int round = -warmup; round < rounds; ++round) {
    std::shuffle(all.begin(), all.end(), random);
    for (Variant& variant : all) {
      TANDEM_ASSIGN(const double us, time(variant, round));
      if (round >= 0) variant.us.push_back(us);
    }
  }
  return {};
}

/// The medians, and how many outputs were wrong, as "us" and "wrong" by name.
inline void put_medians(const std::vector<Variant>& all, nlohmann::json& row) {
  for (const Variant& variant : all) {
    row["us"][variant.name] = harness::median(variant.us);
    row["wrong"][variant.name] = variant.wrong;
  }
}

}  // namespace tandem::bench
