#include "fused/all_gather_scaled_matmul_steps.hpp"

#include <tandem/device/device.hpp>
#include <tandem/gemm/scaled_mm.hpp>

#include "base/try.hpp"
#include "fused/scale_mode.hpp"
#include "fused/scaled_arguments.hpp"

namespace tandem::fused {
namespace {

void list_carried(ScaledGatherOp& op) {
  const GatherProblem& gather = op.problem.gather;
  const auto add = [&](const TensorView& shard, std::int64_t total, const std::optional<TensorView>& into) {
    op.carried[op.num_carried++] = carry(shard, gather.dim, total, into);
  };
  add(op.args.a, gather.total(), op.args.gathered);
  if (op.problem.mode == ScaleMode::kRowwiseSharded) {
    // Of the slices of a gathered last dim, each has one column of scales.
    add(rowwise_scale(op.args, op.problem.mode), gather.gathers_last() ? gather.world : gather.total(), {});
  }
  for (std::size_t i = 0; i < op.args.beside.size(); ++i)
    add(op.args.beside[i], gather.total(), op.args.beside_gathered[i]);
}

void carve(ScaledGatherOp& op, Carver& carver) {
  const GatherProblem& gather = op.problem.gather;
  for (std::size_t i = 0; i < op.num_carried; ++i) {
    op.shards[i] = carve_shard(op.carried[i], carver);
    op.gathered[i] = carve_gathered(op.carried[i], carver);
  }
  if (gather.gathers_last())
    op.sums = carver.take({gather.rows() * gather.sum_n}, DType::kF32, gather.device);
}

/// What has arrived of tensor `idx`, with the dims of its front: `part` of the gathered one.
TensorView arrived_part(const ScaledGatherOp& op, std::size_t idx, const Arrived& arrived) {
  const TensorView& front = op.carried[idx].front;
  const TensorView units = units_of(op.shards[idx], op.gathered[idx], arrived, op.group);
  Dims sizes = front.sizes;
  sizes[op.carried[idx].by_slices ? sizes.size() - 1 : 0] = arrived.part.size;
  return TensorView::contiguous(units.data, sizes, front.dtype, front.device);
}

/// The scale of that part of a.
TensorView scale_of(const ScaledGatherOp& op, const Arrived& arrived) {
  const bool by_slices = op.problem.gather.gathers_last();
  switch (op.problem.mode) {
    case ScaleMode::kRowwiseSharded:
      return arrived_part(op, 1, by_slices ? Arrived{{arrived.source, 1}, arrived.source} : arrived);
    case ScaleMode::kRowwiseReplicated: {
      if (!by_slices) return op.all_scales.narrow(0, arrived.part.offset, arrived.part.size);
      const int last = op.all_scales.dim() - 1;
      return op.all_scales.size(last) == 1 ? op.all_scales : op.all_scales.narrow(last, arrived.source, 1);
    }
    default:
      return op.args.a_scale;
  }
}

/// The product of that part of a with b_i, but where it goes.
gemm::ScaledMmArgs product_of(const ScaledGatherOp& op, const Arrived& arrived, int i) {
  const auto idx = static_cast<std::size_t>(i);
  gemm::ScaledMmArgs product{.a = arrived_part(op, 0, arrived),
                             .b = op.args.b[idx],
                             .a_scale = scale_of(op, arrived),
                             .fast_accum = op.args.fast_accum};
  if (!op.args.b_scale.empty()) product.b_scale = op.args.b_scale[idx];
  if (!op.args.bias.empty()) product.bias = op.args.bias[idx];
  if (!op.args.result_scale.empty()) product.result_scale = op.args.result_scale[idx];
  return product;
}

/// out_i's units of what has arrived, for every b.
Result<void> multiply_units(const ScaledGatherOp& op, const Arrived& arrived, Stream& stream) {
  for (int i = 0; i < op.problem.gather.num_b; ++i) {
    gemm::ScaledMmArgs product = product_of(op, arrived, i);
    product.out = op.args.out[static_cast<std::size_t>(i)]
                      .movedim(op.problem.gather.dim, 0)
                      .narrow(0, arrived.part.offset, arrived.part.size);
    TANDEM_TRY(gemm::scaled_matmul(product, stream));
  }
  return {};
}

/// Adds the products of one slice of k to what the slices before it came to: in f32, the last one into out_i,
/// rounded, with the bias.
Result<void> add_slice(const ScaledGatherOp& op, int source, Stream& stream) {
  const GatherProblem& gather = op.problem.gather;
  const Shard part = gather.part_of(source);
  const bool is_last = source == gather.world - 1;
  if (part.size == 0 && source > 0 && !is_last) return {};
  std::int64_t column = 0;
  for (int i = 0; i < gather.num_b; ++i) {
    const TensorView& out = op.args.out[static_cast<std::size_t>(i)];
    gemm::ScaledMmArgs product = product_of(op, {part, source}, i);
    product.b = product.b.narrow(0, part.offset, part.size);
    if (!is_last) product.bias.reset();
    const TensorView sum = TensorView::contiguous(op.sums.narrow(0, gather.rows() * column, out.numel()).data,
                                                  out.sizes, DType::kF32, out.device);
    product.out = is_last ? out : sum;
    if (source > 0) product.addend = sum;
    TANDEM_TRY(gemm::scaled_matmul(product, stream));
    column += out.sizes.back();
  }
  return {};
}

}  // namespace

Result<ScaledGatherOp> prepare(const AllGatherScaledMatmulArgs& args, const ScaledGatherProblem& problem,
                               Group& group, Stream& stream) {
  DeviceMemory& memory = device_memory(group, problem.gather.device);
  ScaledGatherOp op{
      .args = args, .problem = problem, .group = group, .stream = stream, .marks = memory.marks};
  list_carried(op);
  if (problem.mode == ScaleMode::kRowwiseReplicated) {
    const TensorView scale = rowwise_scale(args, problem.mode);
    op.all_scales = problem.gather.gathers_last() ? scale : scale.movedim(problem.gather.dim, 0);
  }
  Carver count;
  carve(op, count);
  TANDEM_TRY(memory.scratch.reserve(count.used_bytes(), group, stream.device()));
  Carver carver(memory.scratch.data());
  carve(op, carver);
  if (problem.gather.gathers_last())
    TANDEM_TRY(make_marks(memory.marks, problem.gather.world, stream.device()));
  return op;
}

std::int64_t workspace_bytes(const ScaledGatherOp& op, Algorithm algorithm) {
  return gather_workspace_bytes(std::span(op.gathered).first(op.num_carried), op.problem.gather.world,
                                algorithm);
}

Result<void> enqueue(const ScaledGatherOp& op, Algorithm algorithm, symm::Handle* workspace) {
  const auto multiply = [&](const Arrived& arrived, Stream& stream) {
    return multiply_units(op, arrived, stream);
  };
  const auto add = [&](int source, Stream& stream) { return add_slice(op, source, stream); };
  return enqueue_gather({.group = op.group,
                         .stream = op.stream,
                         .marks = op.marks,
                         .carried = std::span(op.carried).first(op.num_carried),
                         .shards = std::span(op.shards).first(op.num_carried),
                         .gathered = std::span(op.gathered).first(op.num_carried),
                         .in_place = {},
                         .multiply = multiply,
                         .add_slice = add,
                         .trace = op.args.trace},
                        algorithm, workspace);
}

}  // namespace tandem::fused
