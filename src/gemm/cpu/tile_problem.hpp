#pragma once

#include <cstdint>
#include <tandem/base/dtype.hpp>
#include <tandem/base/error.hpp>

namespace tandem::gemm::cpu {

/// A strided matrix of a type known elsewhere. Units: strides in elements.
struct Matrix {
  void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;
};

/// A product as the kernels see it: small enough to be captured by a task.
struct TileProblem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Matrix a;
  Matrix b;
  Matrix out;
  const void* bias = nullptr;  ///< null: none
  std::int64_t bias_stride = 0;
  DType in_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  bool accumulate = false;
};

/// Columns of a packed panel of b, and the most columns of a register tile.
inline constexpr std::int64_t kPanelColumns = 64;

/// How the loops are cut. No choice changes a bit of the result.
struct Blocking {
  std::int64_t rows = 96;     ///< rows of a and out that are worked on together
  std::int64_t depth = 1024;  ///< steps of k between two stores of the sums
  std::int64_t panels = 8;    ///< panels of b that are packed together
  friend bool operator==(const Blocking&, const Blocking&) = default;
};

/// The blocking for this depth: a block of a, a panel of b and their sums stay in the second-level cache, and
/// the packed panels in the third.
[[nodiscard]] Blocking choose_blocking(std::int64_t k);

/// Where a kernel keeps what it packs.
struct Scratch {
  float* packed_b = nullptr;   ///< [panels][k][kPanelColumns]
  float* widened_a = nullptr;  ///< [rows][widened_a_stride]
  std::int64_t widened_a_stride = 0;
  float* sums = nullptr;  ///< [rows][panels * kPanelColumns]
  float* bias = nullptr;  ///< [panels * kPanelColumns]
};
[[nodiscard]] std::int64_t scratch_floats(std::int64_t k, const Blocking& blocking);
/// Cuts `memory`, of scratch_floats() floats.
[[nodiscard]] Scratch cut_scratch(float* memory, std::int64_t k, const Blocking& blocking);

/// One kernel source, compiled once for each instruction set.
using TileKernel = void (*)(const TileProblem& problem, const Blocking& blocking, const Scratch& scratch);
/// Runs it with scratch memory of the calling thread. Errors: kOutOfMemory.
[[nodiscard]] Result<void> run(const TileProblem& problem, TileKernel kernel);
void run_tile_avx512(const TileProblem& problem, const Blocking& blocking, const Scratch& scratch);
void run_tile_avx2(const TileProblem& problem, const Blocking& blocking, const Scratch& scratch);
void run_tile_scalar(const TileProblem& problem, const Blocking& blocking, const Scratch& scratch);

}  // namespace tandem::gemm::cpu
