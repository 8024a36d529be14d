#include "fused/all_gather_matmul_steps.hpp"

#include <tandem/device/device.hpp>
#include <tandem/gemm/mm.hpp>

#include "base/try.hpp"
#include "fused/all_gather_matmul_native.hpp"
#include "fused/k_slices.hpp"

namespace tandem::fused {
namespace {

void carve(GatherOp& op, Algorithm algorithm, Carver& carver) {
  const GatherProblem& problem = op.problem;
  op.shard = carve_shard(op.a, carver);
  if (algorithm != Algorithm::kNative) op.gathered = carve_gathered(op.a, carver);
  if (problem.gathers_last())
    op.sums = carver.take({problem.rows() * problem.sum_n}, DType::kF32, problem.device);
}

/// For every b.
Result<void> multiply_rows(const GatherOp& op, const Arrived& arrived, Stream& stream, ProductStep step) {
  return multiply_rows(op, arrived, stream, step, [](std::size_t) { return true; });
}

}  // namespace

Result<void> multiply_rows(const GatherOp& op, const Arrived& arrived, Stream& stream, ProductStep step,
                           FunctionRef<bool(std::size_t i)> takes) {
  const GatherProblem& problem = op.problem;
  const std::int64_t rows = arrived.part.size * problem.unit_rows();
  if (rows == 0) return {};
  const TensorView units = units_of(op.shard, op.gathered, arrived, op.group);
  const TensorView left = TensorView::contiguous(units.data, {rows, problem.k()}, units.dtype, units.device);
  for (int i = 0; i < problem.num_b; ++i) {
    const auto idx = static_cast<std::size_t>(i);
    const TensorView& b = op.args.b[idx];
    if (b.size(1) == 0 || !takes(idx)) continue;
    const TensorView out = TensorView::contiguous(op.args.out[idx].data, {problem.rows(), b.size(1)},
                                                  problem.dtype, units.device);
    gemm::MmArgs product{.a = left,
                         .b = b,
                         .out = out.narrow(0, arrived.part.offset * problem.unit_rows(), rows),
                         .bias = {},
                         .accumulate = false};
    if (!op.args.bias.empty()) product.bias = op.args.bias[idx];
    TANDEM_TRY(step(product, stream));
  }
  return {};
}

Result<GatherOp> prepare(const AllGatherMatmulArgs& args, const GatherProblem& problem, Algorithm algorithm,
                         Group& group, Stream& stream) {
  DeviceMemory& memory = device_memory(group, problem.device);
  GatherOp op{.args = args,
              .problem = problem,
              .group = group,
              .stream = stream,
              .marks = memory.marks,
              .a = carry(args.a, problem.dim, problem.total(), args.gathered),
              .shard = {},
              .gathered = {},
              .sums = {}};
  Carver count;
  carve(op, algorithm, count);
  TANDEM_TRY(memory.scratch.reserve(count.used_bytes(), group, stream.device()));
  Carver carver(memory.scratch.data());
  carve(op, algorithm, carver);
  if (problem.gathers_last()) TANDEM_TRY(make_marks(memory.marks, problem.world, stream.device()));
  return op;
}

std::int64_t workspace_bytes(const GatherOp& op, Algorithm algorithm) {
  if (algorithm == Algorithm::kNative) return 0;  // its line is its own
  return gather_workspace_bytes(std::span(&op.gathered, 1), op.problem.world, algorithm);
}

Result<void> enqueue(const GatherOp& op, Algorithm algorithm, symm::Handle* workspace) {
  if (algorithm == Algorithm::kNative) return enqueue_native(op);
  const auto multiply = [&](const Arrived& arrived, Stream& stream) {
    return multiply_rows(op, arrived, stream, gemm::mm);
  };
  const auto add = [&](int source, Stream& stream) { return add_slice(op, source, stream, gemm::mm); };
  GatherSteps steps{.group = op.group,
                    .stream = op.stream,
                    .marks = op.marks,
                    .carried = std::span(&op.a, 1),
                    .shards = std::span(&op.shard, 1),
                    .gathered = std::span(&op.gathered, 1),
                    .in_place = {},
                    .multiply = multiply,
                    .add_slice = add,
                    .trace = op.args.trace};
  if (op.args.a_handle) steps.in_place = {op.args.a_handle.get(), op.problem.in_place_offset};
  TANDEM_TRY(enqueue_gather(steps, algorithm, workspace));
  return op.problem.gathers_last() ? finish_slices(op, op.stream) : Result<void>();
}

Result<void> prepare_products(const GatherOp& op, Algorithm algorithm) {
  const GatherProblem& problem = op.problem;
  if (algorithm == Algorithm::kNative) return prepare_native(op);
  const bool serial = algorithm == Algorithm::kSerial;
  if (serial && !problem.gathers_last())
    return multiply_rows(op, {{0, problem.total()}}, op.stream, gemm::prepare);
  // Which of the two streams a chunk comes on depends on the rank's place; both are seen to.
  Stream* const streams[] = {&op.stream, serial ? nullptr : &stream_pair(op.group, op.stream).side};
  for (Stream* stream : streams) {
    if (stream == nullptr) continue;
    for (int source = 0; source < problem.world; ++source) {
      TANDEM_TRY(problem.gathers_last()
                     ? add_slice(op, source, *stream, gemm::prepare)
                     : multiply_rows(op, {problem.part_of(source), source}, *stream, gemm::prepare));
    }
  }
  return {};
}

}  // namespace tandem::fused
