#include "coll/gpu_models.hpp"

#include <array>

#include "coll/mailbox_bytes.hpp"
#include "cost/transfers.hpp"

namespace tandem::coll {

double gather_us(const Problem& problem, const cost::GpuRates& gpu) {
  return cost::collective_us(cost::Collective::kAllGather, problem.part_bytes, problem.world,
                             kMostMailboxBytes, gpu);
}

double scatter_us(const Problem& problem, const cost::GpuRates& gpu) {
  return cost::collective_us(cost::Collective::kReduceScatter, problem.part_bytes, problem.world,
                             kMostMailboxBytes, gpu);
}

double all_reduce_us(const Problem& problem, const cost::GpuRates& gpu) {
  return cost::collective_us(cost::Collective::kAllReduce, problem.part_bytes, problem.world,
                             kMostMailboxBytes, gpu);
}

namespace {

class PlannedCollectives final : public Backend {
 public:
  [[nodiscard]] Result<void> reduce_stack(const ReduceStackArgs&, Stream&) override {
    return fail(ErrorCode::kUnsupported, "reduce_stack: this GPU is planned with, and not there");
  }
  [[nodiscard]] bool has_copy_engines() const override { return true; }
  [[nodiscard]] AlgorithmLists algorithms() const override {
    static const std::array gathers = {with_model(kGatherByCopies, &gather_us)};
    static const std::array scatters = {with_model(kScatterByCopies, &scatter_us)};
    static const std::array all_reduces = {with_model(kAllReduceOfParts, &all_reduce_us)};
    return {.gather = gathers, .scatter = scatters, .all_reduce = all_reduces};
  }
};

}  // namespace

std::shared_ptr<Backend> planned_collectives() {
  return std::make_shared<PlannedCollectives>();
}

}  // namespace tandem::coll
