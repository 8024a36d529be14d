#include "fused/all_gather_matmul_steps.hpp"

#include <tandem/device/device.hpp>
#include <tandem/gemm/mm.hpp>

#include "base/try.hpp"
#include "coll/steps.hpp"
#include "fused/k_slices.hpp"
#include "pipeline/schedules.hpp"

namespace tandem::fused {
namespace {

void carve(GatherOp& op, Carver& carver) {
  const GatherProblem& problem = op.problem;
  const DeviceId device = op.stream.device().id();
  const std::int64_t unit = problem.unit_elements();
  const Dims shard = {problem.part_of(op.group.rank()).size, unit};
  op.shard = problem.copies_a ? carver.take(shard, problem.dtype, device)
                              : TensorView::contiguous(op.args.a.data, shard, problem.dtype, device);
  // Slices of k are not in the caller's order in memory: only whole units can be gathered into his tensor.
  const Dims all = {problem.total(), unit};
  op.gathered = problem.keeps_gathered && !problem.gathers_last()
                    ? TensorView::contiguous(op.args.gathered->data, all, problem.dtype, device)
                    : carver.take(all, problem.dtype, device);
  if (problem.gathers_last()) op.sums = carver.take({problem.rows() * problem.sum_n}, DType::kF32, device);
}

/// a in gather-dim-major order, by one copy if it is not.
Result<void> copy_shard(const GatherOp& op) {
  if (!op.problem.copies_a) return {};
  const TensorView front = op.problem.gathers_last() ? op.args.a : op.args.a.movedim(op.problem.dim, 0);
  const TensorView to = TensorView::contiguous(op.shard.data, front.sizes, front.dtype, front.device);
  return op.stream.copy(front, to);
}

}  // namespace

Result<GatherOp> prepare(const AllGatherMatmulArgs& args, const GatherProblem& problem, Group& group,
                         Stream& stream) {
  DeviceMemory& memory = device_memory(group, problem.device);
  GatherOp op{.args = args,
              .problem = problem,
              .group = group,
              .stream = stream,
              .marks = memory.marks,
              .shard = {},
              .gathered = {},
              .sums = {}};
  Carver count;
  carve(op, count);
  TANDEM_TRY(memory.scratch.reserve(count.used_bytes(), stream.device()));
  Carver carver(memory.scratch.data());
  carve(op, carver);
  if (problem.gathers_last()) TANDEM_TRY(make_marks(memory.marks, problem.world, stream.device()));
  return op;
}

std::int64_t workspace_bytes(const GatherOp& op, Algorithm algorithm) {
  if (algorithm == Algorithm::kSerial) return coll::all_gather_workspace_bytes(op.gathered, op.problem.world);
  return pipeline::gather_workspace_bytes(std::span(&op.gathered, 1), op.problem.world);
}

Result<void> enqueue_serial(const GatherOp& op, symm::Handle* workspace) {
  TANDEM_TRY(copy_shard(op));
  TANDEM_TRY(
      coll::enqueue_all_gather({.input = op.shard, .output = op.gathered}, workspace, op.group, op.stream));
  if (!op.problem.gathers_last()) return multiply_rows(op, op.gathered, {0, op.problem.total()}, op.stream);

  KSlices slices(op);
  for (int source = 0; source < op.problem.world; ++source) TANDEM_TRY(slices.arrived(source, op.stream));
  return slices.finish(op.stream);
}

Result<void> enqueue_pipelined(const GatherOp& op, symm::Handle* workspace) {
  TANDEM_TRY(copy_shard(op));
  KSlices slices(op);
  const auto consume = [&](std::span<const TensorView> chunks, int source, Stream& stream) -> Result<void> {
    if (op.problem.gathers_last()) return slices.arrived(source, stream);
    return multiply_rows(op, chunks.front(), op.problem.part_of(source), stream);
  };
  pipeline::GatherAndConsume work{.shards = std::span(&op.shard, 1),
                                  .gathered = std::span(&op.gathered, 1),
                                  .keep_own = op.problem.keeps_gathered && !op.problem.gathers_last(),
                                  .in_place = {},
                                  .consumer = consume,
                                  .trace = op.args.trace};
  if (op.args.a_handle) work.in_place = {op.args.a_handle.get(), op.problem.in_place_offset};
  TANDEM_TRY(pipeline::gather_and_consume(work, *workspace, stream_pair(op.group, op.stream)));
  if (op.problem.gathers_last()) TANDEM_TRY(slices.finish(op.stream));
  return {};
}

Result<void> prepare_products(const GatherOp& op, Algorithm algorithm) {
  const GatherProblem& problem = op.problem;
  const bool serial = algorithm == Algorithm::kSerial;
  if (serial && !problem.gathers_last())
    return multiply_rows(op, op.gathered, {0, problem.total()}, op.stream, gemm::prepare);
  // Which of the two streams a chunk comes on depends on the rank's place; both are seen to.
  Stream* const streams[] = {&op.stream, serial ? nullptr : &stream_pair(op.group, op.stream).side};
  for (Stream* stream : streams) {
    if (stream == nullptr) continue;
    if (problem.gathers_last()) {
      TANDEM_TRY(KSlices(op).prepare(*stream));
      continue;
    }
    for (int source = 0; source < problem.world; ++source) {
      const Shard part = problem.part_of(source);
      TANDEM_TRY(
          multiply_rows(op, op.gathered.narrow(0, part.offset, part.size), part, *stream, gemm::prepare));
    }
  }
  if (problem.gathers_last()) return {};
  return multiply_rows(op, op.shard, problem.part_of(op.group.rank()), op.stream, gemm::prepare);
}

Result<void> multiply_rows(const GatherOp& op, const TensorView& units, Shard part, Stream& stream,
                           ProductStep step) {
  const GatherProblem& problem = op.problem;
  const std::int64_t rows = part.size * problem.unit_rows();
  if (rows == 0) return {};
  const TensorView left = TensorView::contiguous(units.data, {rows, problem.k()}, units.dtype, units.device);
  for (int i = 0; i < problem.num_b; ++i) {
    const auto idx = static_cast<std::size_t>(i);
    const TensorView& b = op.args.b[idx];
    if (b.size(1) == 0) continue;
    const TensorView out = TensorView::contiguous(op.args.out[idx].data, {problem.rows(), b.size(1)},
                                                  problem.dtype, units.device);
    gemm::MmArgs product{.a = left,
                         .b = b,
                         .out = out.narrow(0, part.offset * problem.unit_rows(), rows),
                         .bias = {},
                         .accumulate = false};
    if (!op.args.bias.empty()) product.bias = op.args.bias[idx];
    TANDEM_TRY(step(product, stream));
  }
  return {};
}

}  // namespace tandem::fused
