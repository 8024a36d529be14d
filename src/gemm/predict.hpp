#pragma once

#include <cstdint>
#include <optional>
#include <tandem/device/device.hpp>
#include <tandem/gemm/async_input_mm.hpp>
#include <tandem/gemm/mm.hpp>

namespace tandem::gemm {

/// What a product takes on a device that does nothing else, in microseconds, by a model; nullopt where there
/// is none: on CPUs, and of types that nobody has measured. It follows from sizes and types alone.
[[nodiscard]] std::optional<double> predicted_us(const Problem& problem, const Device& device);

/// The same for one whose first `complete_chunks` chunks are there, while the others are on their way from
/// the start on, one behind the other.
[[nodiscard]] std::optional<double> predicted_us(const AsyncInputProblem& problem,
                                                 std::int64_t complete_chunks, const Device& device);

}  // namespace tandem::gemm
