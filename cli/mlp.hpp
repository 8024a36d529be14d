#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <tandem/base/tensor.hpp>
#include <tandem/device/event.hpp>
#include <tandem/fused/report.hpp>
#include <vector>

#include "harness/guarded_tensor.hpp"
#include "harness/reference.hpp"
#include "harness/stopwatch.hpp"
#include "session.hpp"
#include "shared_bytes.hpp"

namespace tandem::cli {

/// The feed-forward part of a Llama layer: y = (silu(x * gate) .* (x * up)) * down.
struct MlpSizes {
  std::int64_t tokens = 0;
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
};

/// One rank's part, bf16: x by rows (sequence-parallel), gate and up by outputs, down by inputs
/// (tensor-parallel). Weights are stored as models store them, [outputs, inputs]; products read them
/// transposed, so that their b is column-major.
struct MlpWeights {
  MlpWeights(const MlpSizes& whole, int rank, int world);

  MlpSizes sizes;  ///< of the whole layer
  int rank;
  int world;
  Tensor x;     ///< [tokens of this rank, hidden]
  Tensor gate;  ///< [intermediate of this rank, hidden]
  Tensor up;    ///< [intermediate of this rank, hidden]
  Tensor down;  ///< [hidden, intermediate of this rank]

  /// Rows of the whole x.
  [[nodiscard]] std::vector<double> row_of_x(std::int64_t token) const;
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

/// What a pass leaves on one rank.
struct MlpOutputs {
  harness::GuardedTensor gate;
  harness::GuardedTensor up;
  harness::GuardedTensor activated;
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
  [[nodiscard]] const TensorView& y() const { return out_.y.host(); }
  /// For compare_runs(): products in one element of y, and whether algorithms agree bit by bit.
  [[nodiscard]] std::int64_t slack_k() const { return sizes_.intermediate; }
  [[nodiscard]] bool has_same_bits() const { return session_.placement().has_same_bits(); }
  /// For compare_runs(), of results()[i].
  [[nodiscard]] static double slack_of_result(std::size_t i);

 private:
  void enqueue(const MlpAlgorithms& by, const MlpOutputs& out);
  void enqueue_products();
  [[nodiscard]] MlpTimes finish();

  MlpSizes sizes_;
  const Session& session_;
  harness::Stopwatch stopwatch_;
  std::vector<Tensor> copies_;  // of the weights, where the device cannot read the host's
  TensorView x_, gate_weights_, up_weights_, down_weights_;
  MlpOutputs out_;
  MlpOutputs unchecked_;  // of passes that nobody looks at
  Tensor gathered_;       // of products_alone(): all of x
  Tensor unscattered_;    // of products_alone(): this rank's part of every row of y
  std::array<std::unique_ptr<Event>, kNumMlpSteps> marks_;  // before each step but the last, and after all
  OpReport gather_report_;
  OpReport scatter_report_;
};

/// Sampled outputs of the layer in f64, computed from the inputs. Intermediate results are rounded as the
/// layer rounds them: gate, up and the activation to bf16; everything else is exact.
class MlpReference {
 public:
  /// Tokens [rank's first, ...) evenly spread; `shared` holds bytes_needed(): each rank adds its part of the
  /// sums.
  MlpReference(const MlpWeights& weights, const Session& session, const SharedBytes& shared);
  [[nodiscard]] static std::int64_t bytes_needed(const MlpSizes& sizes, int world);
  /// Number of outputs that are sampled, over all ranks; at least 4096 where there are so many.
  [[nodiscard]] static std::int64_t num_samples(const MlpSizes& sizes, int world);

  /// Compares this rank's samples of y; returns the largest error as a part of its bound.
  double compare(const TensorView& y, harness::Wrong& wrong) const;

 private:
  [[nodiscard]] static std::vector<std::int64_t> sampled_tokens(const MlpSizes& sizes, int world);
  void add_own_part(std::int64_t token, double* sums, double* squares) const;

  const MlpWeights& weights_;
  std::vector<std::int64_t> tokens_;
  const double* parts_;
};

}  // namespace tandem::cli
