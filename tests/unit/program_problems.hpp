#pragma once

#include <functional>
#include <string>
#include <vector>

#include "fused/gather/algorithms.hpp"
#include "fused/gather/chunks.hpp"
#include "fused/scatter/algorithms.hpp"
#include "unit/program_recorder.hpp"

namespace tandem::test {

// Problems of all kinds, and the programs of all ranks that the builders make of them.

using Programs = std::vector<program::Program>;

template <class Build, class Problem>
[[nodiscard]] Programs programs_of(Build build, const Problem& problem) {
  const RecorderDevice device;
  Programs programs;
  for (int rank = 0; rank < problem.world; ++rank) programs.push_back(build(problem, rank, device).program);
  return programs;
}

/// Even and uneven ones, with empty shards and with none at all, in 2 and 3 dims.
[[nodiscard]] inline std::vector<Dims> sizes_on(int world) {
  return {{8 * world, 6}, {5, 3}, {7, 2 * world + 1}, {3, 2 * world + 1, 4}, {2 * world, 3, 5 * world},
          {0, 3}};
}

using WithGather = std::function<void(const fused::GatherProblem& problem)>;

/// Plain gathers, for any algorithm.
inline void for_plain_gathers(int world, const WithGather& body) {
  for (const Dims& sizes : sizes_on(world)) {
    for (int dim = 0; dim < sizes.size(); ++dim) {
      for (unsigned options = 0; options < 8; ++options) {
        for (const int num_b : {1, 3}) {
          fused::GatherProblem problem{
              .sizes = sizes, .dim = dim, .world = world, .device = {}, .num_b = num_b, .sum_n = 4 * num_b};
          problem.keeps_gathered = (options & 1U) != 0;
          problem.copied = (options & 2U) != 0 ? 1 : 0;
          problem.has_bias = (options & 4U) != 0;
          body(problem);
          if (problem.copied != 0) continue;
          problem.in_place_offset = 3;
          body(problem);
        }
      }
    }
  }
}

/// Scaled ones, with up to two tensors beside, each of which may have to be copied.
inline void for_scaled_gathers(int world, const WithGather& body) {
  for (const Dims& sizes : sizes_on(world)) {
    for (int dim = 0; dim < sizes.size(); ++dim) {
      for (const ScaleMode mode :
           {ScaleMode::kNone, ScaleMode::kTensorwise, ScaleMode::kRowwiseSharded,
            ScaleMode::kRowwiseReplicated, ScaleMode::kBlockwiseSharded, ScaleMode::kBlockwiseReplicated}) {
        // Slices of k by blocks begin at multiples of 128.
        if (dim == sizes.size() - 1 && fused::is_by_blocks(mode)) continue;
        for (int num_also_gathered = 0; num_also_gathered < 3; ++num_also_gathered) {
          for (const bool keeps : {false, true}) {
            fused::GatherProblem problem{.dtype = DType::kF8E4M3,
                                         .sizes = sizes,
                                         .dim = dim,
                                         .world = world,
                                         .is_scaled = true,
                                         .scale_mode = mode,
                                         .num_also_gathered = num_also_gathered,
                                         .device = {},
                                         .num_b = 2,
                                         .sum_n = 9};
            problem.also_gather[0] = {DType::kBF16, 5};
            problem.also_gather[1] = {DType::kU8, 3};
            problem.keeps_gathered = keeps;
            for (const unsigned copied : {0U, 1U, 6U, 15U}) {
              problem.copied = copied & ((1U << static_cast<unsigned>(num_travelling(problem))) - 1);
              body(problem);
            }
          }
        }
      }
    }
  }
}

/// Scaled ones whose a is quantised behind its gather.
inline void for_quantized_gathers(int world, const WithGather& body) {
  for (const Dims& sizes : sizes_on(world)) {
    for (int dim = 0; dim < sizes.size() - 1; ++dim) {
      for (const ScaleMode mode : {ScaleMode::kRowwiseSharded, ScaleMode::kBlockwiseSharded}) {
        for (unsigned options = 0; options < 8; ++options) {
          fused::GatherProblem problem{.dtype = DType::kBF16,
                                       .sizes = sizes,
                                       .dim = dim,
                                       .world = world,
                                       .is_scaled = true,
                                       .scale_mode = mode,
                                       .quantize = DType::kF8E4M3,
                                       .device = {},
                                       .num_b = 2,
                                       .sum_n = 9};
          problem.also_gather[0] = {DType::kF32, 5};
          problem.keeps_gathered = (options & 1U) != 0;
          problem.copied = (options & 2U) != 0 ? 1 : 0;
          problem.num_also_gathered = (options & 4U) != 0 ? 1 : 0;
          body(problem);
        }
      }
    }
  }
}

/// Those that native takes: with and without peers that products send pieces to, shards that are moved into
/// the inbox, products that consume a as it comes, and products that wait; eager and recorded. Where all
/// shards go in pieces some may be short or empty.
inline void for_native_gathers(int world, const WithGather& body) {
  std::vector<Dims> all = sizes_on(world);
  all.push_back({1024 * world, 8});      // shards come in pieces
  all.push_back({1024 * world - 1, 8});  // and the last one is shorter
  struct Products {
    std::uint64_t by_mm;
    int first_consumed;
  };
  for (const Dims& sizes : all) {
    for (int dim = 0; dim < sizes.size() - 1; ++dim) {
      fused::GatherProblem problem{
          .sizes = sizes, .dim = dim, .world = world, .device = {}, .num_b = 3, .sum_n = 9};
      if (problem.rows() == 0) continue;
      const bool is_consumed = native_chunks(problem).by_shard_rule;
      const bool has_empty = problem.part_of(world - 1).size == 0;
      for (const Products& products :
           {Products{0, 0}, Products{1, 1}, Products{2, 0}, Products{7, -1}, Products{0, -1}}) {
        if (products.first_consumed >= 0 && !is_consumed) continue;
        problem.by_mm = products.by_mm;
        problem.first_consumed = products.first_consumed;
        for (problem.piece_peers = 0; problem.piece_peers < world; ++problem.piece_peers) {
          const bool is_to_all = problem.piece_peers == world - 1;
          if (problem.piece_peers > 0 && problem.total() % world != 0 && !(is_to_all && is_consumed))
            continue;
          if (has_empty && (!is_to_all || problem.piece_peers == 0)) continue;
          for (unsigned options = 0; options < 16; ++options) {
            problem.keeps_gathered = (options & 1U) != 0;
            problem.copied = (options & 2U) != 0 ? 1 : 0;
            problem.aligns_own = (options & 4U) != 0;
            problem.is_capturing = (options & 8U) != 0;
            if (problem.aligns_own && (problem.piece_peers == 0 || problem.copied != 0)) continue;
            body(problem);
          }
        }
      }
    }
  }
}

/// Those of CPUs, whose products read what peers have published: with and without a link, products that
/// consume a as it comes, and products that wait; and scaled ones, whose scales are published too.
inline void for_pulled_gathers(int world, const WithGather& body) {
  std::vector<Dims> all = sizes_on(world);
  all.push_back({256 * world, 8});  // shards cross a link in parts
  all.push_back({256 * world - 1, 8});
  struct Products {
    std::uint64_t by_mm;
    int first_consumed;
  };
  for (const Dims& sizes : all) {
    for (int dim = 0; dim < sizes.size() - 1; ++dim) {
      fused::GatherProblem problem{
          .sizes = sizes, .dim = dim, .world = world, .pulls = true, .device = {}, .num_b = 3, .sum_n = 9};
      if (problem.rows() == 0 || problem.part_of(world - 1).size == 0) continue;
      for (const Products& products :
           {Products{0, 0}, Products{1, 1}, Products{2, 0}, Products{7, -1}, Products{0, -1}}) {
        for (unsigned options = 0; options < 16; ++options) {
          problem.keeps_gathered = (options & 1U) != 0;
          problem.copied = (options & 2U) != 0 ? 1 : 0;
          problem.has_link = (options & 4U) != 0;
          problem.is_scaled = (options & 8U) != 0;
          problem.scale_mode = problem.is_scaled ? ScaleMode::kRowwiseSharded : ScaleMode::kNone;
          problem.by_mm = products.by_mm;
          problem.first_consumed = products.first_consumed;
          if (products.first_consumed >= 0 && (problem.is_scaled || !native_chunks(problem).by_shard_rule))
            continue;
          body(problem);
        }
      }
    }
  }
}

using WithScatter = std::function<void(const fused::ScatterProblem& problem)>;

/// Plain and scaled ones.
inline void for_scatters(int world, const WithScatter& body) {
  for (const Dims& sizes : sizes_on(world)) {
    for (int dim = 0; dim < sizes.size(); ++dim) {
      for (const DType partials : {DType::kBF16, DType::kF32}) {
        for (const int num_products : {1, 3}) {
          for (unsigned options = 0; options < 16; ++options) {
            fused::ScatterProblem problem{.dtype = DType::kBF16,
                                          .partials = partials,
                                          .sizes = sizes,
                                          .dim = dim,
                                          .world = world,
                                          .device = {},
                                          .num_products = num_products,
                                          .sum_k = 7 * num_products};
            problem.keeps_product = (options & 1U) != 0;
            problem.is_scaled = (options & 2U) != 0;
            problem.has_bias = (options & 4U) != 0;
            if ((options & 8U) != 0) {
              problem.num_copied = num_products == 1 ? 1 : 2;
              problem.copied = num_products == 1 ? 1 : 5;
              problem.copied_bytes = 7 * problem.num_copied * problem.rows() * 2;
            }
            if (problem.is_scaled && (problem.has_bias || problem.num_copied > 0)) continue;
            body(problem);
          }
        }
      }
    }
  }
}

/// Those whose partials are pushed, in any number of chunks.
inline void for_pushed_scatters(int world, const WithScatter& body) {
  for (const Dims& sizes : sizes_on(world)) {
    for (int dim = 0; dim < sizes.size() - 1; ++dim) {
      for (const int num_products : {1, 3}) {
        for (const int chunks : {1, 2, 3, 8}) {
          for (unsigned options = 0; options < 16; ++options) {
            fused::ScatterProblem problem{.dtype = DType::kBF16,
                                          .partials = DType::kBF16,
                                          .sizes = sizes,
                                          .dim = dim,
                                          .world = world,
                                          .push_chunks = chunks,
                                          .device = {},
                                          .num_products = num_products,
                                          .sum_k = 7 * num_products};
            problem.keeps_product = (options & 1U) != 0;
            problem.has_bias = (options & 2U) != 0;
            problem.reduce_op = (options & 4U) != 0 ? coll::ReduceOp::kAvg : coll::ReduceOp::kSum;
            if ((options & 8U) != 0) {
              problem.num_copied = 1;
              problem.copied = 1;
              problem.copied_bytes = 7 * problem.rows() * 2;
            }
            body(problem);
          }
        }
      }
    }
  }
}

/// All-reduces of the same kinds as these scatters, which have one dim of rows.
[[nodiscard]] inline WithScatter as_all_reduces(const WithScatter& body) {
  return [&body](fused::ScatterProblem problem) {
    if (problem.sizes.size() > 2 || problem.dim > 0) return;
    problem.gives_all = true;
    body(problem);
  };
}

/// Whose ranks tell each other, with and without a link.
[[nodiscard]] inline WithScatter as_told(const WithScatter& body) {
  return [&body](fused::ScatterProblem problem) {
    if (problem.world == 1) return;
    problem.tells = true;
    for (const bool has_link : {false, true}) {
      problem.has_link = has_link;
      body(problem);
    }
  };
}
inline void for_told_scatters(int world, const WithScatter& body) {
  for_scatters(world, as_told(body));
}

/// Behind barriers, in any number of rounds.
inline void for_all_reduces(int world, const WithScatter& body) {
  for_scatters(world, as_all_reduces([&](fused::ScatterProblem problem) {
                 for (problem.rounds = 1; problem.rounds < 4; ++problem.rounds) body(problem);
               }));
}

/// Told, in any number of rounds.
inline void for_told_all_reduces(int world, const WithScatter& body) {
  for_all_reduces(world, as_told(body));
}

/// By pushes, in any number of chunks.
inline void for_pushed_all_reduces(int world, const WithScatter& body) {
  for_pushed_scatters(world, as_all_reduces(body));
}

}  // namespace tandem::test
