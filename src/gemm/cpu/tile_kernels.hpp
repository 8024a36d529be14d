#pragma once

#include <cstdint>

#include "gemm/cpu/tile_problem.hpp"

namespace tandem::gemm::cpu {

/// The kernels of one instruction set. Its sources are compiled once for each.
struct TileKernels {
  /// How products that add in pairs are packed; all others are PanelForm::kSteps.
  PanelForm pairs_form;
  /// Packs b's columns [first, first + count) into panels at `to`; first is a multiple of kPanelColumns.
  void (*pack)(const TileProblem& problem, std::int64_t first, std::int64_t count, float* to);
  /// The product by packed columns: problem.b is not read.
  void (*multiply)(const TileProblem& problem, const Panels& panels, const Blocking& blocking,
                   const Scratch& scratch);

  [[nodiscard]] PanelForm form_of(const TileProblem& problem) const {
    return problem.adds_pairs() ? pairs_form : PanelForm::kSteps;
  }
};
extern const TileKernels kTileAvx512Bf16;
extern const TileKernels kTileAvx512;
extern const TileKernels kTileAvx2;
extern const TileKernels kTileScalar;

}  // namespace tandem::gemm::cpu
