#pragma once

#include <memory>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

#include "gemm/cpu/scratch.hpp"
#include "gemm/cpu/tile_kernels.hpp"
#include "gemm/packed_operand.hpp"

namespace tandem::gemm::cpu {

/// As many panels as stay in the third-level cache; at least one.
[[nodiscard]] std::int64_t panels_at_once(std::int64_t n, std::int64_t k, PanelForm form);

/// The blocking for panels of so many rows. A part of a panel stays in the second-level cache, and a block of
/// a that has to be copied in the third.
[[nodiscard]] Blocking choose_blocking(std::int64_t panel_rows);

// Products on the calling thread, with scratch memory of its own. Errors: kOutOfMemory.

/// Packs b by and by, unless it is packed, and multiplies.
[[nodiscard]] Result<void> run(const TileProblem& problem, const TileKernels& kernels);

/// One b by rows that come by and by. b is packed at once, unless it is already, or that takes more than
/// kMostPackedBytes: then by each call.
class RowProduct {
 public:
  static constexpr std::int64_t kMostPackedBytes = std::int64_t{256} << 20;

  /// The calling thread makes no other product while this one lives.
  static Result<RowProduct> make(const TileProblem& whole, const TileKernels& kernels);
  /// Rows of `whole`: m, a and out are theirs.
  [[nodiscard]] Result<void> multiply(const TileProblem& rows) const;

 private:
  explicit RowProduct(const TileKernels& kernels) : kernels_(&kernels) {}

  const TileKernels* kernels_;
  Panels panels_ = {};  // without data: packed by each call
  Blocking blocking_ = {};
  Scratch scratch_ = {};
};

/// See gemm::pack_b().
class PackedPanels final : public PackedOperand {
 public:
  /// Errors: kOutOfMemory.
  static Result<std::shared_ptr<const PackedOperand>> make(const TensorView& b, const TileKernels& kernels,
                                                           std::string_view implementation);
  [[nodiscard]] const Panels& panels() const { return panels_; }
  [[nodiscard]] std::int64_t num_bytes() const override { return num_bytes_; }

 private:
  using PackedOperand::PackedOperand;

  FloatMemory memory_;
  std::int64_t num_bytes_ = 0;
  Panels panels_;
};

}  // namespace tandem::gemm::cpu
