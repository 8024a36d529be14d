#include "check_collectives.hpp"

#include <fmt/format.h>

namespace tandem::cli {
namespace {

std::vector<DType> types_of(const SweepLists& lists) {
  std::vector<DType> types = lists.dtypes;
  types.insert(types.end(), lists.f8_types.begin(), lists.f8_types.end());
  return types;
}

/// Ragged, and so tiny that parts are empty.
std::vector<Dims> sizes_of(int num_dims) {
  if (num_dims == 2) return {{29, 37}, {3, 2}};
  return {{7, 13, 37}, {2, 3, 2}};
}

}  // namespace

std::vector<CollectiveCase> cases_of(CollectiveOp op, const SweepLists& lists) {
  std::vector<CollectiveCase> cases;
  for (const DType dtype : types_of(lists)) {
    for (const DimChoice& choice : dims_of(harness::Op::kAllGatherMatmul)) {
      for (const Dims& sizes : sizes_of(choice.num_dims)) {
        // Of a gather both kinds of memory, of a scatter both results.
        for (const bool second : {false, true}) {
          CollectiveCase c{.op = op, .sizes = sizes, .dim = choice.dim, .dtype = dtype};
          c.symmetric = second;
          if (!c.gathers() && second) c.reduce = coll::ReduceOp::kAvg;
          c.seed = cases.size() + 1;
          cases.push_back(c);
        }
      }
    }
  }
  return cases;
}

std::string product_in_words(CollectiveOp op, const SweepLists& lists) {
  const std::size_t num_types = types_of(lists).size();
  const std::size_t num_cases = cases_of(op, lists).size();
  return fmt::format("{} dtypes x {} dims, sizes and kinds x {} numbers of ranks = {}", num_types,
                     num_types == 0 ? 0 : num_cases / num_types, lists.ranks.size(),
                     num_cases * lists.ranks.size());
}

harness::Wrong check_case(const CollectiveCase& c, const Session& session) {
  const RankCollective collective(c, session);
  collective.fill();
  collective.poison();
  collective.enqueue(session.stream());
  session.finish();
  harness::Wrong wrong;
  collective.check(wrong);
  return wrong;
}

}  // namespace tandem::cli
