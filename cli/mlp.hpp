#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tandem/base/tensor.hpp>
#include <tandem/device/event.hpp>
#include <tandem/fused/report.hpp>
#include <vector>

#include "harness/guarded_tensor.hpp"
#include "harness/operands.hpp"
#include "harness/reference.hpp"
#include "harness/stopwatch.hpp"
#include "session.hpp"

namespace tandem::cli {

/// The feed-forward part of a Llama layer: y = (silu(x * gate) .* (x * up)) * down.
struct MlpSizes {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
};

/// In which type the layer's products are made: bf16, or f8e4m3 with scales.
struct MlpTypes {
  DType dtype = DType::kBF16;
  harness::Scales scales = harness::Scales::kNone;
  bool fast_accum = false;
  bool by_tensor_cores = false;  ///< as in harness::Problem
};

// The ops of the layer as problems. A scatter cuts k, so that it takes no scales by blocks: its product is in
// bf16 then.
[[nodiscard]] harness::Problem gather_problem(const MlpSizes& whole, const MlpTypes& types, int num_ranks);
[[nodiscard]] harness::Problem scatter_problem(const MlpSizes& whole, const MlpTypes& types, int num_ranks);

/// What one rank multiplies in an op, as a problem of that rank alone.
struct MlpFactors {
  harness::Problem problem;
  std::unique_ptr<harness::OperandSource> source;
};

/// One rank's part: x by rows (sequence-parallel), gate and up by outputs, down by inputs (tensor-parallel).
/// Weights are stored as models store them, [outputs, inputs]; products read them transposed, so that their b
/// is column-major.
struct MlpWeights {
  MlpWeights(const MlpSizes& whole, const MlpTypes& types, int rank, int num_ranks);

  MlpSizes sizes;  ///< of the whole layer
  int rank;
  int world;
  // bf16, as they are before anything is quantised.
  Tensor x;     ///< [tokens, hidden], of all ranks
  Tensor gate;  ///< [intermediate of this rank, hidden]
  Tensor up;    ///< [intermediate of this rank, hidden]
  Tensor down;  ///< [hidden, intermediate of this rank]

  MlpFactors gather;   ///< all of x; gate and up
  MlpFactors scatter;  ///< no row of a, because every pass makes its own; down
};

/// The steps that are timed, and all of them.
enum MlpStep : int { kGatherGateUp, kActivation, kDownScatter, kWholeMlp, kNumMlpSteps };
using MlpTimes = std::array<double, kNumMlpSteps>;

/// How a pass moves its data.
struct MlpAlgorithms {
  Algorithm gather = Algorithm::kSerial;
  Algorithm scatter = Algorithm::kSerial;
};
constexpr MlpAlgorithms kSerialMlp{};

/// Of silu(gate) * up in f8, where one scale is for all of it: known beforehand, as that of a model that was
/// calibrated. Gate and up are near 1, so that nothing is saturated.
inline constexpr float kActivationScale = 0x1p-4F;

/// What a pass leaves on one rank.
struct MlpOutputs {
  harness::GuardedTensor gate;
  harness::GuardedTensor up;
  harness::GuardedTensor activated;  ///< silu(gate) * up in the type of down, divided by its scale
  harness::GuardedTensor scale;      ///< of f8: one, or one for each row
  harness::GuardedTensor y;
};

/// The layer on one rank of a session: gather x while multiplying, activate, multiply and scatter.
class Mlp {
 public:
  Mlp(const MlpWeights& weights, const Session& session);

  /// One pass with every output poisoned before; blocks. For each step, microseconds from the start of the
  /// pass to the step's end on this rank.
  MlpTimes forward(const MlpAlgorithms& by);
  /// The pass without its communication: each product alone, over operands that are all there.
  MlpTimes products_alone();
  [[nodiscard]] const OpReport& gather_report() const { return gather_report_; }
  [[nodiscard]] const OpReport& scatter_report() const { return scatter_report_; }

  /// This rank's gate, up and y, in that order.
  [[nodiscard]] std::array<const harness::GuardedTensor*, 3> results() const {
    return {&out_.gate, &out_.up, &out_.y};
  }
  /// All of them, where the host sees them.
  [[nodiscard]] const MlpOutputs& download() const;
  /// For compare_runs(): products in one element of y, and whether algorithms agree bit by bit.
  [[nodiscard]] std::int64_t slack_k() const { return sizes_.intermediate; }
  [[nodiscard]] bool has_same_bits() const { return session_.placement().has_same_bits(); }
  /// For compare_runs(), of results()[i].
  [[nodiscard]] double slack_of_result(std::size_t i) const;

 private:
  void allocate(MlpOutputs& out);
  void enqueue(const MlpAlgorithms& by, const MlpOutputs& out);
  [[nodiscard]] OpReport enqueue_gather(Algorithm algorithm, const MlpOutputs& out);
  void enqueue_activation(const MlpOutputs& out);
  [[nodiscard]] OpReport enqueue_scatter(Algorithm algorithm, const MlpOutputs& out);
  void enqueue_products();
  /// The tensors of all of this rank's tokens that are written anew in every pass.
  [[nodiscard]] std::vector<const harness::GuardedTensor*> written() const;
  [[nodiscard]] MlpTimes finish();

  MlpSizes sizes_;
  const Session& session_;
  harness::Stopwatch stopwatch_;
  harness::RankOperands gather_;
  harness::RankOperands scatter_;
  MlpOutputs out_;
  MlpOutputs unchecked_;  // of passes that nobody looks at
  Tensor unrounded_;      // silu(gate) * up in bf16, where rows are rounded to f8 by scales of their own
  Tensor unscattered_;    // of products_alone(): this rank's part of every row of y
  std::array<std::unique_ptr<Event>, kNumMlpSteps> marks_;  // before each step but the last, and after all
  OpReport gather_report_;
  OpReport scatter_report_;
};

/// Sampled tokens of the layer in f64, step by step: gate and up from the inputs, the activation from gate
/// and up as they are, and y from the activation as it is on every rank.
class MlpReference {
 public:
  MlpReference(const MlpWeights& weights, const Session& session);
  [[nodiscard]] static std::int64_t bytes_needed(const MlpSizes& sizes, int world);
  /// Number of elements of y that are sampled, over all ranks; at least 4096 where there are so many.
  [[nodiscard]] static std::int64_t num_samples(const MlpSizes& sizes, int world);

  /// Compares what this rank has of the sampled tokens; returns y's largest error as a part of its bound.
  /// This is a collective call, once in a session.
  double compare(const MlpOutputs& got, harness::Wrong& wrong) const;

 private:
  class Comparison;
  [[nodiscard]] static std::vector<std::int64_t> sampled_tokens(const MlpSizes& sizes, int world);
  void compare_projection(int idx, const TensorView& got, Comparison& comparison) const;
  /// Returns the rows of the tokens as the product with down takes them, times their scales.
  [[nodiscard]] std::vector<std::vector<double>> compare_activation(const MlpOutputs& got,
                                                                    Comparison& comparison) const;
  /// Gives the owner of each token this rank's part of the token's outputs.
  void send_parts(const std::vector<std::vector<double>>& activated) const;
  void compare_y(const TensorView& got, Comparison& comparison) const;
  /// Of the parts of all ranks: a host's are summed and rounded before they cross to another.
  [[nodiscard]] harness::Expected sum_of_parts(std::span<const harness::Expected> parts) const;

  const MlpWeights& weights_;
  const Session& session_;
  std::vector<std::int64_t> tokens_;  // evenly spread over each rank's own
};

}  // namespace tandem::cli
