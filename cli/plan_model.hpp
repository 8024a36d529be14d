#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench_rows.hpp"

namespace tandem::cli {

/// Ranks on one host or several. Between hosts each rank has a link of its own.
struct Hosts {
  int count = 1;
  double bytes_per_us = 0;  ///< of that link, in one direction
  double latency_us = 0;
};

/// What an op takes on all ranks, in us.
struct PlannedOp {
  ForecastProblem problem;
  double product_us = 0;
  double collective_us = 0;
  double serial_us = 0;
  std::optional<double> pipelined_us = {};
  std::optional<double> native_us = {};
  Algorithm algorithm = Algorithm::kSerial;  ///< that `auto` takes, or that was asked for
  double us = 0;                             ///< by that algorithm
  std::string why_not = {};                  ///< of an algorithm that cannot run

  /// The part of what serial takes beside its product that this algorithm does not show; 0 to 1.
  [[nodiscard]] double hidden() const;
};

/// `asked`: kAuto, or the algorithm that runs; serial where it cannot. On several hosts there is no
/// measurement behind it: rows of other hosts cross once, each rank those of its place, beside the product of
/// rows that are there; then they are spread inside the host by the op's own models.
/// Throws exit 2 for what no model covers.
[[nodiscard]] PlannedOp plan_op(const Forecaster& forecaster, const ForecastProblem& problem,
                                const Hosts& hosts, Algorithm asked);

/// The products of a transformer's layer whose rows are sharded between them.
struct ModelShape {
  std::string name;
  std::int64_t hidden = 0;
  std::int64_t qkv = 0;  ///< columns of the three projections together
  std::int64_t intermediate = 0;
  int layers = 0;
};
/// "llama3-8b" or "llama3-70b". Throws exit 2.
[[nodiscard]] ModelShape model_of(const std::string& preset);

/// How a model is run.
struct ModelRun {
  ModelShape shape;
  std::int64_t tokens = 0;  ///< rows of a layer's products
  bool trains = false;      ///< backward too: the same ops the other way round, and products of weights
  bool recomputes = false;  ///< forward again before backward
  bool overlaps_gathers = true;
  bool overlaps_scatters = true;
};

/// A model's fused ops and products on all layers, in us.
struct PlannedModel {
  std::vector<PlannedOp> ops;  ///< of one layer, forward
  int num_ops = 0;             ///< of one layer, in all passes
  double product_us = 0;
  double serial_us = 0;
  double us = 0;
};
/// `like`: types, and ranks. Throws exit 2 for ranks that do not divide the model.
[[nodiscard]] PlannedModel plan_model(const Forecaster& forecaster, const ModelRun& run,
                                      const ForecastProblem& like, const Hosts& hosts, Algorithm asked);

}  // namespace tandem::cli
