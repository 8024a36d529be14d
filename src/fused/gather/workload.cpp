#include "fused/gather/workload.hpp"

#include <optional>

#include "coll/steps.hpp"
#include "fused/gather/chunks.hpp"

namespace tandem::fused {
namespace {

/// As if every b were column-major, which is each rank's own affair.
void predict_on(const Device& device, const GatherProblem& problem, const cost::GpuRates& gpu,
                Workload& work) {
  predict_products(planned_product(problem),
                   shard_stride(problem.total(), problem.world) * problem.unit_rows(), device, gpu, work);
  if (!can_run_native(problem, device)) return;
  gemm::Product native = agreed_product(problem, piece_peers(problem, device));
  native.b_is_column_major = true;
  work.native_us = gemm::predicted_us(native, device, gpu);
  if (work.native_us && problem.is_capturing && problem.has_sharded_scale())
    *work.native_us += gpu.recorded_scale_us;
}

/// One for each tensor that travels; nullopt where the device has no model.
std::optional<double> collectives_us(const GatherProblem& problem, const Device& device,
                                     const cost::GpuRates& gpu) {
  double us = 0;
  for (int i = 0; i < num_travelling(problem); ++i) {
    const auto one =
        coll::predicted_us(coll::Collective::kAllGather, travelling(problem, i).part_bytes(problem.world),
                           problem.world, device, gpu);
    if (!one) return std::nullopt;
    us += *one;
  }
  return us;
}

}  // namespace

Workload workload_of(const GatherProblem& problem, const Device& device, const Surroundings& around) {
  const std::int64_t chunk_elements = shard_stride(problem.total(), problem.world) * problem.unit_elements();
  const double b_elements = static_cast<double>(problem.k()) * static_cast<double>(problem.planned_n());
  Workload work{
      .kind = problem.device.kind,
      .world = problem.world,
      .link = around.link,
      .chunk_bytes = chunk_elements * size_bytes(problem.dtype) + problem.also_gathered_bytes(),
      .chunk_flops = 2.0 * static_cast<double>(chunk_elements) * static_cast<double>(problem.planned_n()),
      .element_bytes = size_bytes(problem.dtype),
      .b_elements = b_elements,
      .chunk_b_elements = problem.gathers_last() ? b_elements / problem.world : b_elements,
      .serial_copies = problem.world + 1,  // into the workspace, and all into one place
      .pipelined_barriers = 2,
      .serial_barriers = 2};
  if (problem.pulls && can_run_native(problem, device))
    work.held_parts = static_cast<int>(native_chunks(problem).per_rank);
  const cost::GpuRates& gpu = around.gpu;
  work.collective_us = collectives_us(problem, device, gpu);
  if (!problem.gathers_last()) predict_on(device, problem, gpu, work);
  return work;
}

}  // namespace tandem::fused
