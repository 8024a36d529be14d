#include "graph/interpreter/fused_call.hpp"

#include "base/try.hpp"

namespace tandem::graph::interpreter {

Output::Output(const Layout& layout, DType dtype) : memory_(layout.sizes, dtype), view_(memory_.view()) {
  view_.strides = layout.strides;
}

std::vector<TensorView> views_of(const std::vector<HostTensor>& tensors) {
  std::vector<TensorView> views;
  views.reserve(tensors.size());
  for (const HostTensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

std::vector<std::optional<TensorView>> views_of(const Values& values) {
  std::vector<std::optional<TensorView>> views;
  views.reserve(values.size());
  for (const auto& value : values) views.push_back(value ? std::optional(value->view()) : std::nullopt);
  return views;
}

Result<Values> finish(const Call& call, const OpReport& report, const trace::EnqueueTrace& trace,
                      const std::function<Result<Values>()>& take) {
  TANDEM_TRY(call.ranks().stream.synchronize());
  TANDEM_ASSIGN(Values values, take());
  if (call.ranks().watch) TANDEM_TRY(call.ranks().watch(call, {values, report, trace}));
  return values;
}

}  // namespace tandem::graph::interpreter
