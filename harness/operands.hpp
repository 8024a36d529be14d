#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>
#include <tandem/fused/matmul_all_reduce.hpp>
#include <tandem/fused/matmul_reduce_scatter.hpp>
#include <tandem/fused/scaled_matmul_all_reduce.hpp>
#include <tandem/fused/scaled_matmul_reduce_scatter.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/scaled_mm.hpp>
#include <vector>

#include "harness/guarded_tensor.hpp"
#include "harness/problem.hpp"

namespace tandem::harness {

enum class OperandKind : std::uint8_t { kA, kB, kBias, kAScale, kBScale };

/// Which global tensor of a problem: a or its scale, or the idx-th b, its scale or bias.
struct Operand {
  OperandKind kind = OperandKind::kA;
  int idx = 0;
};

/// Where the global tensors of a problem come from. A rank reads only its own part of them.
class OperandSource {
 public:
  virtual ~OperandSource() = default;
  /// Fills `to`, which has the window's sizes, with this part of the tensor, converted to `to`'s type.
  virtual void read(const Operand& operand, const Window& window, const TensorView& to) const = 0;
};

/// Global tensors that are there as a whole, such as mapped files. The views must stay valid.
class WholeTensors : public OperandSource {
 public:
  TensorView a;
  std::vector<TensorView> b;
  std::vector<TensorView> bias;
  std::optional<TensorView> a_scale;  ///< with the sizes that the problem says, as the others
  std::vector<TensorView> b_scale;
  void read(const Operand& operand, const Window& window, const TensorView& to) const override;
};

/// The part of a generated tensor that starts at `offset` of the dimension `dim`.
struct GeneratedPart {
  std::uint64_t seed = 1;
  Dims sizes;  ///< of the global tensor
  int dim = 0;
  std::int64_t offset = 0;
  float scale = 1;
  float shift = 0;  ///< of the scaled values
};

/// Pseudo-random global tensors, the same on every rank and for every sharding: an element is a function of
/// the seed and of its index. Values are multiples of 2^-23 in [-1, 1) before the conversion: f32 sums of
/// their products round, so that another order of addition has other bits. Scales lie in [0.5, 1).
class GeneratedTensors : public OperandSource {
 public:
  explicit GeneratedTensors(const Problem& problem) : problem_(problem) {}
  void read(const Operand& operand, const Window& window, const TensorView& to) const override;

  // Single rows and columns, rounded to the problem's type, in f64 and times their scales: for checking
  // samples of large results.
  [[nodiscard]] std::vector<double> row_of_a(std::int64_t row) const;
  [[nodiscard]] std::vector<double> column_of_b(int i, std::int64_t column) const;
  [[nodiscard]] double bias_at(int i, std::int64_t column) const;

 private:
  [[nodiscard]] std::vector<double> line(const Operand& operand, const Dims& sizes,
                                         const Window& window) const;
  void read_squares(const Operand& operand, const Shard& columns, const TensorView& to) const;
  [[nodiscard]] std::uint64_t seed_of(const Operand& operand) const;
  [[nodiscard]] GeneratedPart part_of(const Operand& operand, const Dims& sizes, const Window& window) const;
  Problem problem_;
};

/// One of a problem's products on one rank: these rows of a times b[i].
struct OperandProduct {
  TensorView a = {};
  TensorView a_scale = {};  ///< of a scaled problem
  int i = 0;
  TensorView out = {};
  int heuristic = 0;  ///< as in gemm::MmArgs
};

/// Where a rank has its operands.
struct OperandMemory {
  Device& device;
  HostImage image = HostImage::kWhereNeeded;
  int spacing = 1;  ///< with 2 there is a hole behind each element of a and b
};

/// One rank's parts of a problem's operands in guarded memory.
class RankOperands {
 public:
  RankOperands(const Problem& problem, const OperandSource& source, int rank, const OperandMemory& memory);

  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] const GuardedTensor& a() const { return a_; }
  [[nodiscard]] std::span<const TensorView> b() const { return b_views_; }
  /// Arguments without outputs and algorithm; they refer to this object.
  [[nodiscard]] AllGatherMatmulArgs gather_args() const;
  [[nodiscard]] MatmulReduceScatterArgs scatter_args() const;
  [[nodiscard]] MatmulAllReduceArgs all_reduce_args() const;
  [[nodiscard]] AllGatherScaledMatmulArgs scaled_gather_args() const;
  /// The op adds each rank's bias before the sum over ranks. So of a sum, only rank 0 has one.
  [[nodiscard]] ScaledMatmulReduceScatterArgs scaled_scatter_args() const;
  [[nodiscard]] ScaledMatmulAllReduceArgs scaled_all_reduce_args() const;
  [[nodiscard]] const TensorView& a_scale() const { return a_scale_->view(); }
  /// Enqueues a product; prepare() only has it loaded.
  [[nodiscard]] Result<void> multiply(const OperandProduct& product, Stream& stream) const;
  [[nodiscard]] Result<void> prepare(const OperandProduct& product, Stream& stream) const;
  void download() const;
  /// As of the last download().
  [[nodiscard]] bool guards_are_whole() const;

 private:
  /// What sums over ranks have in common.
  template <class Args>
  [[nodiscard]] Args reduce_args() const;
  template <class Args>
  [[nodiscard]] Args scaled_reduce_args() const;
  [[nodiscard]] gemm::MmArgs mm_args(const OperandProduct& product) const;
  [[nodiscard]] gemm::ScaledMmArgs scaled_mm_args(const OperandProduct& product) const;

  Problem problem_;
  int rank_;
  GuardedTensor a_;
  std::optional<GuardedTensor> a_scale_;
  std::vector<GuardedTensor> b_;
  std::vector<GuardedTensor> b_scale_;
  std::vector<GuardedTensor> bias_;
  std::vector<TensorView> b_views_;
  std::vector<TensorView> b_scale_views_;
  std::vector<TensorView> bias_views_;
  std::vector<std::optional<TensorView>> optional_bias_;
};
/// On the device.
[[nodiscard]] std::vector<TensorView> views_of(std::span<const GuardedTensor> tensors);

/// Sizes of a problem's global tensor.
[[nodiscard]] Dims sizes_of(const Problem& problem, const Operand& operand);

[[nodiscard]] DType dtype_of(const Problem& problem, const Operand& operand);
/// The scale of a, or of this b.
[[nodiscard]] Operand scale_of(const Operand& operand);
/// Multiplies a row of a, or a column of b, by its scales: one, or one for each gemm::kScaleBlock elements.
void apply_scales(std::span<double> line, std::span<const double> scales);

/// Row `idx` of a, which has two dims, or column `idx` of a b, in f64 and times its scales.
[[nodiscard]] std::vector<double> line_of(const Problem& problem, const OperandSource& source,
                                          const Operand& operand, std::int64_t idx);

/// Element `idx`, counted row-major, of the generated tensor of a seed.
[[nodiscard]] float generated_value(std::uint64_t seed, std::int64_t idx);

/// Fills `to` with the part.
void generate(const GeneratedPart& part, const TensorView& to);

}  // namespace tandem::harness
