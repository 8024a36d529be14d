#pragma once

#include <chrono>
#include <tandem/base/support.hpp>

#include "cost/machine.hpp"
#include "fused/scatter/algorithms.hpp"

namespace tandem::fused {

// The form of `pipelined` in which ranks push their partials to each other, chunk by chunk, while they
// multiply, and the products of a rank's own rows add what has come. Nothing waits for all ranks but a
// barrier at the start, beside the first product. See docs/design/schedules.md.

/// Whether partials can be pushed: rows on GPUs, in the type of out. All ranks come to the
/// same answer: it looks at what they have agreed on only.
[[nodiscard]] Support can_push(const ScatterProblem& problem);

/// Whether own products write out, and add what has come. Otherwise sums do: in one chunk, whose product
/// would wait for all that comes; of partials that are also kept; into an out that is no matrix; or with a
/// bias or a mean, which products would need another pass for; or where every partial must be rounded.
[[nodiscard]] bool own_products_end(const ScatterProblem& problem);

/// What a problem that can be pushed takes, by the model, if parts are cut in so many chunks.
[[nodiscard]] double predicted_push_us(const ScatterProblem& problem, int chunks,
                                       std::chrono::nanoseconds link, const cost::GpuRates& gpu);

/// In how many chunks its parts are pushed. A chunk is copied while the next one is multiplied, so more
/// chunks expose less of the last copy. But each product of a chunk has to fill whole waves of the GPU. So it
/// is the number that takes least by the model.
[[nodiscard]] int choose_push_chunks(const ScatterProblem& problem, std::chrono::nanoseconds link,
                                     const cost::GpuRates& gpu);

/// Of a problem that has push_chunks.
[[nodiscard]] ScatterProgram build_pushed_scatter(const ScatterProblem& problem, int rank);

}  // namespace tandem::fused
