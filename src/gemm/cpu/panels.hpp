#pragma once

#include <cstdint>
#include <tandem/base/dtype.hpp>

namespace tandem::gemm::cpu {

/// Columns of a panel, and the most columns of a register tile.
inline constexpr std::int64_t kPanelColumns = 64;

/// In which order a product adds along k, and what a panel's rows hold.
enum class PanelForm : std::uint8_t {
  kSteps,     ///< k ascending; a row is the f32 of one k
  kTwoSteps,  ///< k = 1, 0, 3, 2, ...; the same rows, and one of zeros behind an odd k
  kPairs,     ///< the order of kTwoSteps; a row is the bf16 of two k, the even one in the low halves
};
[[nodiscard]] constexpr std::int64_t rows_of_panel(std::int64_t k, PanelForm form) {
  switch (form) {
    case PanelForm::kSteps:
      return k;
    case PanelForm::kTwoSteps:
      return k + k % 2;
    case PanelForm::kPairs:
      break;
  }
  return (k + 1) / 2;
}

/// b as the kernels read it: panels of kPanelColumns columns, each [rows][kPanelColumns] of 32 bits. The last
/// one's columns beyond n are zeros up to a whole vector, and undefined beyond that.
struct Panels {
  const float* data = nullptr;
  std::int64_t stride = 0;  ///< from a panel to the next
  PanelForm form = PanelForm::kSteps;
};
[[nodiscard]] constexpr std::int64_t panel_floats(std::int64_t k, PanelForm form) {
  return rows_of_panel(k, form) * kPanelColumns;
}
[[nodiscard]] constexpr std::int64_t panels_of(std::int64_t n) {
  return (n + kPanelColumns - 1) / kPanelColumns;
}
/// The panels from this one on.
[[nodiscard]] constexpr Panels from_panel(Panels panels, std::int64_t idx) {
  panels.data += idx * panels.stride;
  return panels;
}
/// The panels from this k on, which is a multiple of two.
[[nodiscard]] constexpr Panels from_step(Panels panels, std::int64_t k) {
  panels.data += panel_floats(k, panels.form);
  return panels;
}

}  // namespace tandem::gemm::cpu
