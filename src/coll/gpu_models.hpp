#pragma once

#include <memory>

#include "coll/algorithms.hpp"
#include "coll/backend.hpp"
#include "cost/machine.hpp"

namespace tandem::coll {

// The models of collectives between GPUs, which need none: a planner asks too.

/// By cost::collective_us(), which has one model for mailboxes and one for what is larger.
[[nodiscard]] double gather_us(const Problem& problem, const cost::GpuRates& gpu);
[[nodiscard]] double scatter_us(const Problem& problem, const cost::GpuRates& gpu);
[[nodiscard]] double all_reduce_us(const Problem& problem, const cost::GpuRates& gpu);

/// An entry for any device, with the model of GPUs.
template <class Args>
[[nodiscard]] Algorithm<Args> with_model(Algorithm<Args> algorithm,
                                         double (*model)(const Problem& problem, const cost::GpuRates& gpu)) {
  algorithm.predicted_us = model;
  return algorithm;
}

/// The collectives of GPUs that are not there: they are predicted, and refuse to run.
[[nodiscard]] std::shared_ptr<Backend> planned_collectives();

}  // namespace tandem::coll
