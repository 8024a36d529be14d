#pragma once

#include <cstdint>
#include <tandem/base/dtype.hpp>

#include "gemm/cpu/panels.hpp"

namespace tandem::gemm::cpu {

/// A strided matrix of a type known elsewhere. Units: strides in elements.
struct Matrix {
  void* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;
};

/// A product as the kernels see it: small enough to be captured by a task.
/// Types: a and b any; two of bf16 add in pairs (PanelForm). out is f32, or a's type if that is b's and of 16
///        bits. bias is of out's type.
struct TileProblem {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Matrix a;
  Matrix b;
  Panels packed_b = {};  ///< with data: b's values, and b is not read
  Matrix out;
  const void* bias = nullptr;  ///< null: none
  std::int64_t bias_stride = 0;
  DType a_dtype = DType::kF32;
  DType b_dtype = DType::kF32;
  DType out_dtype = DType::kF32;
  bool accumulate = false;

  [[nodiscard]] bool adds_pairs() const { return a_dtype == DType::kBF16 && b_dtype == DType::kBF16; }
};

/// Whether the tile reads a as it lies, by panels of this form. Else its rows are copied, once a call.
[[nodiscard]] bool reads_a_in_place(const TileProblem& problem, PanelForm form);

/// How the loops are cut. No choice changes a bit of the result.
struct Blocking {
  std::int64_t rows = 384;    ///< rows of a and out that are worked on together
  std::int64_t depth = 1024;  ///< rows of a panel between two stores of the sums; even
  friend bool operator==(const Blocking&, const Blocking&) = default;
};

/// Where a kernel keeps what it works on. Units: 32 bits.
struct Scratch {
  float* a = nullptr;  ///< [blocking.rows][a_stride], where a cannot be read in place
  std::int64_t a_stride = 0;
  float* sums = nullptr;  ///< [blocking.rows][kPanelColumns]
};
[[nodiscard]] std::int64_t scratch_floats(std::int64_t panel_rows, const Blocking& blocking);
/// Cuts `memory`, of scratch_floats() floats.
[[nodiscard]] Scratch cut_scratch(float* memory, std::int64_t panel_rows, const Blocking& blocking);

}  // namespace tandem::gemm::cpu
