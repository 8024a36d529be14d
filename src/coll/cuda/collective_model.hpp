#pragma once

#include <cstdint>

#include "coll/predict.hpp"

namespace tandem::coll::cuda {

/// What a collective between two products takes on H200s, in microseconds: a start and its bytes, through
/// mailboxes or not. Within a fifth of 2 and 4 ranks' from 0.3 to 70 MB (bench/results/h200_x2_native.json,
/// h200_x2_random_preset.json, h200_x4_native.json: t_serial_us - t_gemm_us).
[[nodiscard]] double collective_us(Collective collective, std::int64_t part_bytes, int world);

}  // namespace tandem::coll::cuda
