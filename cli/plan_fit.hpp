#pragma once

#include <string>
#include <vector>

#include "bench_rows.hpp"

namespace tandem::cli {

/// How far predictions are from what was measured.
struct Accuracy {
  int within = 0;  ///< 10 %
  int count = 0;
  double median = 0;  ///< of |predicted / measured - 1|
};
/// Of one algorithm, where it was timed. Rows without a prediction are left out.
[[nodiscard]] Accuracy accuracy_of(const Forecaster& forecaster, const std::vector<MeasuredRow>& rows,
                                   Algorithm algorithm);
/// Of the product alone.
[[nodiscard]] Accuracy accuracy_of_products(const Forecaster& forecaster,
                                            const std::vector<MeasuredRow>& rows);

/// Whether a rate of the machine was fitted to the rows of this file, as its source says: "fitted to a.json".
[[nodiscard]] bool is_fitted_to(const cost::Machine& machine, const std::string& file);

/// The base's rates, changed one by one as long as that brings predictions closer to the rows: the sum of
/// squared errors, in which those beyond a third count little more than one of a third. Rates that no row
/// depends on stay, with their source. Throws exit 2 for rows of several GPUs, or of none.
[[nodiscard]] cost::Machine fit_machine(const cost::Machine& base, const std::vector<MeasuredRow>& rows);

}  // namespace tandem::cli
