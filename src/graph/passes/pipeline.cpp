#include <array>
#include <tandem/graph/passes.hpp>
#include <tandem/graph/verify.hpp>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::graph {

namespace {

/// For passes that have no choice.
template <Result<void> (*kRun)(Graph&)>
Result<void> always(Graph& graph, const FuseOptions& /*options*/) {
  return kRun(graph);
}

}  // namespace

std::span<const Pass> all_passes() {
  static constexpr std::array kPasses = {
      Pass{"split-coalesced", always<split_coalesced>},
      Pass{"merge-collectives", always<merge_collectives>},
      Pass{"merge-equal-gathers", always<merge_equal_gathers>},
      Pass{"plain-products", always<plain_products>},
      Pass{"fold-views", always<fold_views>},
      Pass{"uneven-shards", always<uneven_shards>},
      Pass{"move-blocks", always<move_blocks>},
      Pass{"move-factors", always<move_factors>},
      Pass{"share-maxima", share_maxima},
      Pass{"narrow-gathers", always<narrow_gathers>},
      Pass{"fuse-gathers", fuse_gathers},
      Pass{"fuse-scatters", fuse_scatters},
      Pass{"clean-up", always<fold_views>},
      Pass{"restore-collectives", always<restore_collectives>},
      Pass{"run-beside-products", run_beside_products},
      Pass{"join-coalesced", always<join_coalesced>},
  };
  return kPasses;
}

Result<void> run_passes(Graph& graph, std::span<const Pass> passes,
                        const std::function<void(const Pass& pass, const Graph& graph)>& after,
                        const FuseOptions& options) {
  TANDEM_TRY(verify(graph));
  for (const Pass& pass : passes) {
    const std::uint64_t before = graph.num_changes();
    TANDEM_TRY(pass.run(graph, options));
    const auto ok = graph.num_changes() == before ? Result<void>() : verify(graph);
    if (!ok) return failf(ErrorCode::kInternal, "after pass {}: {}", pass.name, ok.error().text());
    if (after) after(pass, graph);
  }
  return {};
}

}  // namespace tandem::graph
