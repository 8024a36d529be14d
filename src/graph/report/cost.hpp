#pragma once

#include <cstdint>
#include <tandem/graph/graph.hpp>

namespace tandem::graph {

struct GatherFusion;
struct ScatterFusion;

/// By a rank, of `count` tensors of which each rank has, or keeps, one of `world` parts: all but its own.
[[nodiscard]] double received_bytes(const TensorType& type, int world, int count = 1);

/// What a collective and the products beside it do on one rank.
struct Work {
  double bytes = 0;       ///< received
  double product_us = 0;  ///< of all products
};
[[nodiscard]] Work work_of(const GatherFusion& fusion, int world);
[[nodiscard]] Work work_of(const ScatterFusion& fusion, int world);
/// Of a fused op.
[[nodiscard]] Work work_of(const Node& fused, int world);

/// Microseconds that running both at once is expected to save on H200s with NVLink; negative: it costs. Cut
/// in `world` pieces, all but one piece of the shorter of the two hides behind the longer.
[[nodiscard]] double saved_us(const Work& work, int world);

/// What a gather or scatter along dim 0 does on one rank.
struct Transfer {
  double bytes = 0;      ///< received
  double beside_us = 0;  ///< expected beside products, without their multiprocessors
};
[[nodiscard]] Transfer transfer_of(const Node& collective, int world);

/// Of a call that multiplies matrices; 0 for others.
[[nodiscard]] double product_us_of(Node& node);

}  // namespace tandem::graph
