#include "coll/backend.hpp"

#include <array>

#include "base/format.hpp"

namespace tandem::coll {
namespace {

AlgorithmLists for_any_device() {
  static const std::array gathers = {kGatherByCopies};
  static const std::array scatters = {kScatterInPlace, kScatterByCopies};
  static const std::array all_reduces = {kAllReduceOfWholes, kAllReduceOfParts};
  return {.gather = gathers, .scatter = scatters, .all_reduce = all_reduces};
}

}  // namespace

AlgorithmLists algorithms_of(const Device& device) {
  const auto* const backend = device.service<Backend>();
  return backend == nullptr ? for_any_device() : backend->algorithms();
}

AlgorithmLists Backend::algorithms() const {
  return for_any_device();
}

Result<void> Backend::copy_aside(const TensorView& from, const TensorView& to, Stream& stream) {
  return stream.copy(from, to);
}

Result<void> Backend::reduce_layers(const ReduceLayersArgs&, const EndBarrier&, Stream& stream) {
  return failf(ErrorCode::kUnsupported, "reduce_scatter: kernels of {} do not read memory of peers",
               to_string(stream.device().id()));
}

Result<void> Backend::reduce_layers_aside(const ReduceLayersArgs&, Stream& stream) {
  return failf(ErrorCode::kUnsupported, "reduce_scatter: kernels of {} add stacks only",
               to_string(stream.device().id()));
}

Result<void> Backend::reduce_ranks(const ReduceRanksArgs&, Stream& stream) {
  return failf(ErrorCode::kUnsupported, "reduce_ranks: {} does not add what lies in memory of peers",
               to_string(stream.device().id()));
}

Result<void> Backend::look_for_nan(const NanCheckArgs& args, const std::shared_ptr<symm::Handle>&,
                                   Stream& stream) {
  return failf(ErrorCode::kUnsupported, "{}: {} does not look for NaN", args.op,
               to_string(stream.device().id()));
}

Result<Backend*> backend_of(std::string_view op, const Stream& stream) {
  if (auto* backend = stream.device().service<Backend>()) return backend;
  return failf(ErrorCode::kUnsupported, "{}: {} has no collectives attached", op,
               to_string(stream.device().id()));
}

}  // namespace tandem::coll
