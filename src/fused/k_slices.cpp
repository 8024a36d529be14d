#include "fused/k_slices.hpp"

#include <algorithm>
#include <tandem/coll/collectives.hpp>
#include <tandem/device/device.hpp>
#include <tandem/gemm/mm.hpp>

#include "base/try.hpp"

namespace tandem::fused {

Result<void> make_marks(SliceMarks& marks, int world, Device& device) {
  while (static_cast<int>(marks.arrived.size()) < world) {
    TANDEM_ASSIGN(auto mark, device.create_mark());
    marks.arrived.push_back(std::move(mark));
  }
  if (!marks.summed) {
    TANDEM_ASSIGN(marks.summed, device.create_mark());
  }
  marks.is_here.resize(marks.arrived.size());
  return {};
}

KSlices::KSlices(const GatherOp& op) : op_(op) {
  std::fill(op.marks.is_here.begin(), op.marks.is_here.end(), char{0});
}

Result<void> KSlices::arrived(int source, Stream& stream) {
  if (op_.args.gathered) TANDEM_TRY(keep(source, stream));
  SliceMarks& marks = op_.marks;
  TANDEM_TRY(stream.record(*marks.arrived[static_cast<std::size_t>(source)]));
  marks.is_here[static_cast<std::size_t>(source)] = 1;
  if (source != next_) return {};

  if (next_ > 0) TANDEM_TRY(stream.wait(*marks.summed));
  for (; next_ < op_.problem.world && marks.is_here[static_cast<std::size_t>(next_)] != 0; ++next_) {
    TANDEM_TRY(stream.wait(*marks.arrived[static_cast<std::size_t>(next_)]));
    TANDEM_TRY(add(next_, stream, gemm::mm));
  }
  return stream.record(*marks.summed);
}

Result<void> KSlices::keep(int source, Stream& stream) {
  const Shard part = op_.problem.part_of(source);
  const TensorView columns = op_.args.gathered->flatten_rows().narrow(1, part.offset, part.size);
  return stream.copy(slice_of(source), columns);
}

Result<void> KSlices::prepare(Stream& stream) const {
  for (int source = 0; source < op_.problem.world; ++source) TANDEM_TRY(add(source, stream, gemm::prepare));
  return {};
}

Result<void> KSlices::add(int source, Stream& stream, ProductStep step) const {
  const Shard part = op_.problem.part_of(source);
  if (op_.problem.rows() == 0 || (part.size == 0 && source > 0)) return {};
  for (int i = 0; i < op_.problem.num_b; ++i) {
    const TensorView& b = op_.args.b[static_cast<std::size_t>(i)];
    if (b.size(1) == 0) continue;
    TANDEM_TRY(step({.a = slice_of(source),
                     .b = b.narrow(0, part.offset, part.size),
                     .out = sum_of(i),
                     .bias = {},
                     .accumulate = source > 0},
                    stream));
  }
  return {};
}

Result<void> KSlices::finish(Stream& stream) {
  for (int i = 0; i < op_.problem.num_b; ++i) {
    const auto idx = static_cast<std::size_t>(i);
    TensorView stack = sum_of(i);
    if (stack.numel() == 0) continue;
    stack.sizes.insert(0, 1);
    stack.strides.insert(0, stack.numel());
    coll::ReduceStackArgs cast{
        .stack = stack, .out = op_.args.out[idx].flatten_rows(), .op = coll::ReduceOp::kSum, .bias = {}};
    if (!op_.args.bias.empty()) cast.bias = op_.args.bias[idx];
    TANDEM_TRY(coll::reduce_stack(cast, stream));
  }
  return {};
}

TensorView KSlices::slice_of(int source) const {
  const Shard part = op_.problem.part_of(source);
  const TensorView units =
      source == op_.group.rank() ? op_.shard : op_.gathered.narrow(0, part.offset, part.size);
  return TensorView::contiguous(units.data, {op_.problem.rows(), part.size}, units.dtype, units.device);
}

TensorView KSlices::sum_of(int i) const {
  std::int64_t column = 0;
  for (int j = 0; j < i; ++j) column += op_.args.b[static_cast<std::size_t>(j)].size(1);
  const std::int64_t n = op_.args.b[static_cast<std::size_t>(i)].size(1);
  const TensorView part = op_.sums.narrow(0, op_.problem.rows() * column, op_.problem.rows() * n);
  return TensorView::contiguous(part.data, {op_.problem.rows(), n}, DType::kF32, part.device);
}

}  // namespace tandem::fused
