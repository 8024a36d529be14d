#include "coll/predict.hpp"

#include "coll/backend.hpp"

namespace tandem::coll {

std::optional<double> Backend::predicted_us(Collective, std::int64_t, int) const {
  return std::nullopt;
}

std::optional<double> predicted_us(Collective collective, std::int64_t part_bytes, int world,
                                   const Device& device) {
  const auto* const backend = device.service<Backend>();
  return backend == nullptr ? std::nullopt : backend->predicted_us(collective, part_bytes, world);
}

}  // namespace tandem::coll
