#include "fused/scatter/workload.hpp"

#include <algorithm>
#include <optional>

#include "coll/steps.hpp"
#include "fused/call/scaled_checks.hpp"
#include "fused/scatter/native.hpp"
#include "fused/scatter/pushed.hpp"

namespace tandem::fused {
namespace {

/// As if every b were column-major, which is each rank's own affair, where a kernel takes that.
std::optional<double> predicted_native_us(const ScatterProblem& problem, const Device& device,
                                          const cost::GpuRates& gpu) {
  gemm::Product product = planned_departing_product(problem, device);
  product.b_is_column_major = true;
  std::optional<double> us = gemm::predicted_us(product, device, gpu);
  if (!us) us = gemm::predicted_us(planned_departing_product(problem, device), device, gpu);
  if (!us || !problem.gives_all || exchanges_whole(problem)) return us;
  const std::int64_t bytes =
      shard_stride(problem.total(), problem.world) * problem.unit_elements() * size_bytes(problem.dtype);
  const auto gather_us = coll::predicted_us(coll::Collective::kAllGather, bytes, problem.world, device, gpu);
  return gather_us ? std::optional(*us + *gather_us) : std::nullopt;
}

}  // namespace

Workload workload_of(const ScatterProblem& problem, const Device& device, const Surroundings& around) {
  const std::int64_t chunk_elements = shard_stride(problem.total(), problem.world) * problem.unit_elements();
  const double b_elements = static_cast<double>(problem.n()) * static_cast<double>(problem.planned_k());
  Workload work{
      .kind = problem.device.kind,
      .world = problem.world,
      .link = around.link,
      .chunk_bytes = chunk_elements * size_bytes(problem.partials),
      .chunk_flops = 2.0 * static_cast<double>(chunk_elements) * static_cast<double>(problem.planned_k()),
      .element_bytes = size_bytes(problem.dtype),
      .b_elements = b_elements,
      .chunk_b_elements = problem.scatters_last() ? b_elements / problem.world : b_elements,
      .serial_copies = problem.world,  // from all ranks, the own part too
      .sums = true,
      .pipelined_barriers = problem.rounds * std::max(2 * problem.world - 3, problem.world),
      .serial_barriers = 2,
      .tells = problem.tells,
      .pipelined_tells = problem.pipelined_tells(),
      .rounds = problem.rounds,
      .gives_all = problem.gives_all};
  if (problem.gives_all) {
    work.serial_copies += problem.world + 1;  // the own sums too, where peers get them and in out
    work.serial_barriers += 2;
    work.pipelined_barriers += problem.rounds + 1;
  }
  const DType factors = problem.factor();
  const cost::GpuRates& gpu = around.gpu;
  work.collective_us =
      coll::predicted_us(problem.gives_all ? coll::Collective::kAllReduce : coll::Collective::kReduceScatter,
                         work.chunk_bytes, work.world, device, gpu);
  if (problem.push_chunks > 0)
    work.pushed_us = predicted_push_us(problem, problem.push_chunks, around.link, gpu);
  if (problem.scatters_last()) return work;
  if (can_run_native_scatter(problem, device)) work.native_us = predicted_native_us(problem, device, gpu);
  predict_products({.m = problem.rows(),
                    .n = problem.n(),
                    .k = problem.planned_k(),
                    .a = factors,
                    .b = factors,
                    .out = problem.partials,
                    .a_scale = problem.a_scale,
                    .b_scale = scale_of_b(problem.a_scale),
                    .fast_accum = problem.is_scaled && problem.fast_accum},
                   shard_stride(problem.total(), problem.world) * problem.unit_rows(), device, gpu, work);
  return work;
}

}  // namespace tandem::fused
