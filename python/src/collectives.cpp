#include "collectives.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <optional>
#include <tandem/base/shard.hpp>
#include <tandem/coll/collectives.hpp>

#include "group.hpp"
#include "reports.hpp"

namespace tandem::python {
namespace {

/// The sizes of `view` with so many indices in `dim`. Where there is no such dim, the op says so.
Dims with_size(const TensorView& view, int dim, std::int64_t size) {
  Dims sizes = view.sizes;
  if (dim >= 0 && dim < sizes.size()) sizes[dim] = size;
  return sizes;
}

std::int64_t size_of(const TensorView& view, int dim) {
  return dim >= 0 && dim < view.dim() ? view.size(dim) : 0;
}

std::optional<Array> all_gather(PyGroup& group, PyStream& stream, nb::handle input,
                                std::optional<std::int64_t> total, nb::handle out) {
  Call call(stream, group.rank(), &group.user());
  coll::AllGatherArgs args;
  std::optional<Array> made;
  const auto op = [&] { return coll::all_gather(args, group.group(), call.stream()); };
  const auto take = [&] {
    args.input = call.take(input, "input");
    const std::int64_t rows = total.value_or(size_of(args.input, 0) * group.group().size());
    args.output = call.take_or_make(out, "out", with_size(args.input, 0, rows), args.input.dtype, made);
  };
  take_arguments(call, take, args.output, op);
  call.run(op);
  call.finish();
  return made;
}

std::optional<Array> reduce_scatter(PyGroup& group, PyStream& stream, nb::handle input, nb::handle out,
                                    const std::string& reduce_op, nb::handle bias) {
  Call call(stream, group.rank(), &group.user());
  coll::ReduceScatterArgs args;
  std::optional<Array> made;
  const auto op = [&] { return coll::reduce_scatter(args, group.group(), call.stream()); };
  const auto take = [&] {
    args.input = call.take(input, "input");
    args.op = reduce_op_of(reduce_op);
    args.bias = call.take_if(bias, "bias");
    const auto rows = shard_of(size_of(args.input, 0), group.group().size(), group.rank()).size;
    args.output = call.take_or_make(out, "out", with_size(args.input, 0, rows), args.input.dtype, made);
  };
  take_arguments(call, take, args.output, op);
  call.run(op);
  call.finish();
  return made;
}

std::optional<Array> low_contention_all_gather(PyGroup& group, PyStream& stream, nb::handle input,
                                               std::optional<std::int64_t> total, nb::handle out,
                                               int gather_dim,
                                               const std::shared_ptr<symm::Handle>& input_handle) {
  Call call(stream, group.rank(), &group.user());
  coll::LowContentionAllGatherArgs args;
  std::optional<Array> made;
  if (input_handle) call.keep(input_handle);
  const auto op = [&] { return coll::low_contention_all_gather(args, group.group(), call.stream()); };
  const auto take = [&] {
    args.input = call.take(input, "input");
    args.gather_dim = gather_dim;
    args.input_handle = input_handle;
    const std::int64_t size = total.value_or(size_of(args.input, gather_dim) * group.group().size());
    args.output =
        call.take_or_make(out, "out", with_size(args.input, gather_dim, size), args.input.dtype, made);
  };
  take_arguments(call, take, args.output, op);
  call.run(op);
  call.finish();
  return made;
}

std::optional<Array> low_contention_reduce_scatter(PyGroup& group, PyStream& stream, nb::handle input,
                                                   nb::handle out, const std::string& reduce_op,
                                                   int scatter_dim) {
  Call call(stream, group.rank(), &group.user());
  coll::LowContentionReduceScatterArgs args;
  std::optional<Array> made;
  const auto op = [&] { return coll::low_contention_reduce_scatter(args, group.group(), call.stream()); };
  const auto take = [&] {
    args.input = call.take(input, "input");
    args.op = reduce_op_of(reduce_op);
    args.scatter_dim = scatter_dim;
    const auto mine = shard_of(size_of(args.input, scatter_dim), group.group().size(), group.rank()).size;
    args.output =
        call.take_or_make(out, "out", with_size(args.input, scatter_dim, mine), args.input.dtype, made);
  };
  take_arguments(call, take, args.output, op);
  call.run(op);
  call.finish();
  return made;
}

std::string low_contention_barriers(PyGroup& group, PyStream& stream) {
  return std::string(::tandem::python::take(coll::low_contention_barriers(group.group(), stream.stream())));
}

std::optional<Array> all_reduce(PyGroup& group, PyStream& stream, nb::handle input, nb::handle out,
                                const std::string& reduce_op, nb::handle bias) {
  Call call(stream, group.rank(), &group.user());
  coll::AllReduceArgs args;
  std::optional<Array> made;
  const auto op = [&] { return coll::all_reduce(args, group.group(), call.stream()); };
  const auto take = [&] {
    args.input = call.take(input, "input");
    args.op = reduce_op_of(reduce_op);
    args.bias = call.take_if(bias, "bias");
    args.output = call.take_or_make(out, "out", args.input.sizes, args.input.dtype, made);
  };
  take_arguments(call, take, args.output, op);
  call.run(op);
  call.finish();
  return made;
}

std::optional<Array> all_gather_with_progress(PyGroup& group, PyStream& stream, nb::handle input,
                                              nb::handle out, nb::handle progress, int splits_per_rank,
                                              const std::shared_ptr<symm::Handle>& input_handle) {
  Call call(stream, group.rank(), &group.user());
  coll::AllGatherWithProgressArgs args;
  std::optional<Array> made;
  call.keep(input_handle);
  const auto op = [&] { return coll::all_gather_with_progress(args, group.group(), call.stream()); };
  const auto take = [&] {
    args.input = call.take(input, "input");
    args.progress = call.take(progress, "progress");
    args.splits_per_rank = splits_per_rank;
    args.input_handle = input_handle;
    const Dims sizes = with_size(args.input, 0, size_of(args.input, 0) * group.group().size());
    args.output = call.take_or_make(out, "out", sizes, args.input.dtype, made);
  };
  take_arguments(call, take, args.output, op);
  call.run(op);
  call.finish();
  return made;
}

std::optional<Array> reduce_stack(PyStream& stream, nb::handle stack, nb::handle out,
                                  const std::string& reduce_op, nb::handle bias) {
  Call call(stream);
  coll::ReduceStackArgs args;
  std::optional<Array> made;
  args.stack = call.take(stack, "stack");
  args.op = reduce_op_of(reduce_op);
  args.bias = call.take_if(bias, "bias");
  Dims sizes = args.stack.sizes;
  if (!sizes.empty()) sizes.erase(0);
  args.out = call.take_or_make(out, "out", sizes, args.stack.dtype, made);
  call.run([&] { return coll::reduce_stack(args, call.stream()); });
  call.finish();
  return made;
}

}  // namespace

void bind_collectives(nb::module_& module) {
  module.def("all_gather", &all_gather, nb::arg("group"), nb::arg("stream"), nb::arg("input").none(),
             nb::arg("total").none(), nb::arg("out").none());
  module.def("reduce_scatter", &reduce_scatter, nb::arg("group"), nb::arg("stream"), nb::arg("input").none(),
             nb::arg("out").none(), nb::arg("reduce_op"), nb::arg("bias").none());
  module.def("low_contention_all_gather", &low_contention_all_gather, nb::arg("group"), nb::arg("stream"),
             nb::arg("input").none(), nb::arg("total").none(), nb::arg("out").none(), nb::arg("gather_dim"),
             nb::arg("input_handle").none());
  module.def("low_contention_reduce_scatter", &low_contention_reduce_scatter, nb::arg("group"),
             nb::arg("stream"), nb::arg("input").none(), nb::arg("out").none(), nb::arg("reduce_op"),
             nb::arg("scatter_dim"));
  module.def("low_contention_barriers", &low_contention_barriers, nb::arg("group"), nb::arg("stream"));
  module.def("all_reduce", &all_reduce, nb::arg("group"), nb::arg("stream"), nb::arg("input").none(),
             nb::arg("out").none(), nb::arg("reduce_op"), nb::arg("bias").none());
  module.def("all_gather_with_progress", &all_gather_with_progress, nb::arg("group"), nb::arg("stream"),
             nb::arg("input").none(), nb::arg("out").none(), nb::arg("progress").none(),
             nb::arg("splits_per_rank"), nb::arg("input_handle"));
  module.def("reduce_stack", &reduce_stack, nb::arg("stream"), nb::arg("stack").none(), nb::arg("out").none(),
             nb::arg("reduce_op"), nb::arg("bias").none());
}

}  // namespace tandem::python
