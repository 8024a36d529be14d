#include <array>
#include <tandem/graph/passes.hpp>
#include <tandem/graph/verify.hpp>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::graph {

std::span<const Pass> all_passes() {
  static constexpr std::array kPasses = {Pass{"merge-collectives", merge_collectives},
                                         Pass{"merge-equal-gathers", merge_equal_gathers},
                                         Pass{"fold-views", fold_views}};
  return kPasses;
}

Result<void> run_passes(Graph& graph, std::span<const Pass> passes,
                        const std::function<void(const Pass& pass, const Graph& graph)>& after) {
  TANDEM_TRY(verify(graph));
  for (const Pass& pass : passes) {
    TANDEM_TRY(pass.run(graph));
    if (const auto ok = verify(graph); !ok) {
      return failf(ErrorCode::kInternal, "after pass {}: {}", pass.name, ok.error().text());
    }
    if (after) after(pass, graph);
  }
  return {};
}

}  // namespace tandem::graph
