#pragma once

#include <functional>
#include <tandem/fused/report.hpp>

#include "graph/interpreter/call.hpp"

namespace tandem::graph::interpreter {

/// Memory for a result in the library's layout, which has no holes.
class Output {
 public:
  Output(const Layout& layout, DType dtype);
  [[nodiscard]] const TensorView& view() const { return view_; }
  [[nodiscard]] HostTensor take() const { return HostTensor::copy_of(view_, view_.dtype); }

 private:
  HostTensor memory_;
  TensorView view_;
};

[[nodiscard]] std::vector<TensorView> views_of(const std::vector<HostTensor>& tensors);
[[nodiscard]] std::vector<std::optional<TensorView>> views_of(const Values& values);

/// Waits for the op, and tells who watches.
[[nodiscard]] Result<Values> finish(const Call& call, const OpReport& report,
                                    const trace::EnqueueTrace& trace,
                                    const std::function<Result<Values>()>& take);

}  // namespace tandem::graph::interpreter
