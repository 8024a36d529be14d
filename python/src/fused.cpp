#include "fused.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <tandem/fused/all_gather_matmul.hpp>
#include <tandem/fused/all_gather_scaled_matmul.hpp>
#include <tandem/fused/layout.hpp>
#include <tandem/fused/matmul_all_reduce.hpp>
#include <tandem/fused/matmul_reduce_scatter.hpp>
#include <tandem/fused/scaled_matmul_all_reduce.hpp>
#include <tandem/fused/scaled_matmul_reduce_scatter.hpp>
#include <vector>

#include "group.hpp"
#include "reports.hpp"

namespace tandem::python {
namespace {

using MaybeSize = std::optional<std::int64_t>;
using MaybeViews = std::vector<std::optional<TensorView>>;
using MaybeHandle = std::shared_ptr<symm::Handle>;

/// The size of the gathered dim if all shards are as large as this one.
std::int64_t gather_size_of(const MaybeSize& given, const TensorView& a, int dim, const PyGroup& group) {
  if (given) return *given;
  return dim >= 0 && dim < a.dim() ? a.size(dim) * group.group().size() : 0;
}

/// Outputs of a call: the caller's, or new ones.
struct Outputs {
  std::vector<TensorView> views;
  nb::list made;
};

template <class Make>
Outputs take_or_make(Call& call, nb::handle given, const char* name, std::size_t count, Make&& make) {
  Outputs outputs;
  outputs.views = call.take_all(given, name);
  if (!given.is_none()) return outputs;
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor tensor = call.run([&] { return make(static_cast<int>(i)); });
    outputs.views.push_back(tensor.view());
    outputs.made.append(nb::cast(call.add(tensor)));
  }
  return outputs;
}

/// One output that may be wanted: None and False are not, True asks for a new one, else it is the caller's.
struct Extra {
  std::optional<TensorView> view;
  nb::object made = nb::none();
};

template <class Make>
Extra take_extra(Call& call, nb::handle wanted, const char* name, Make&& make) {
  Extra extra;
  if (wanted.is_none() || wanted.is(Py_False)) return extra;
  if (!wanted.is(Py_True)) {
    extra.view = call.take(wanted, name);
    return extra;
  }
  const Tensor tensor = call.run(make);
  extra.view = tensor.view();
  extra.made = nb::cast(call.add(tensor));
  return extra;
}

/// The product beside a sum over ranks: contiguous, a's sizes with n last.
Result<Tensor> make_product(const std::vector<TensorView>& a, const std::vector<TensorView>& b, DType dtype,
                            Device& device) {
  if (a.empty() || b.empty() || a[0].dim() < 1 || b[0].dim() != 2) {
    return fail(ErrorCode::kInvalidArgument, "product: need matrices a and b");
  }
  Dims sizes = a[0].sizes;
  sizes[sizes.size() - 1] = b[0].size(1);
  return device.allocate_tensor(sizes, dtype);
}

std::optional<DType> type_if(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  return parse_type(*name);
}

/// The road of every op: its arguments, the op, and what the call owes its stream.
template <class Take, class Output, class Op>
OpReport run_op(Call& call, Take&& take, Output& output, Op&& op) {
  take_arguments(call, take, output, op);
  OpReport report = call.run(op);
  call.finish();
  return report;
}

/// The operands and outputs of a sum over ranks, which live as long as its call.
struct Reduction {
  std::vector<TensorView> lefts;
  std::vector<TensorView> rights;
  MaybeViews a_scales;
  MaybeViews b_scales;
  MaybeViews biases;
  MaybeViews result_scales;
  Outputs outputs;
  Extra own;

  template <class Args, class Make>
  void take_outputs(Call& call, Args& args, nb::handle out, nb::handle product, Make&& make) {
    outputs = take_or_make(call, out, "out", 1, make);
    args.out = outputs.views.at(0);
    const auto make_own = [&] { return make_product(lefts, rights, args.out.dtype, call.device()); };
    own = take_extra(call, product, "product", make_own);
    args.product = own.view;
  }
};

nb::tuple all_gather_matmul(PyGroup& group, PyStream& stream, nb::handle a, nb::handle b, int gather_dim,
                            MaybeSize gather_size, nb::handle out, nb::handle gathered, nb::handle bias,
                            const MaybeHandle& a_handle, const std::string& algorithm, std::int64_t plan_n) {
  Call call(stream, group.rank(), &group.user());
  AllGatherMatmulArgs args;
  std::vector<TensorView> rights;
  std::vector<TensorView> biases;
  Outputs outputs;
  Extra whole;
  const auto op = [&] { return fused_all_gather_matmul(args, group.group(), call.stream()); };
  const auto take = [&] {
    args.a = call.take(a, "a");
    args.b = rights = call.take_all(b, "b");
    args.gather_dim = gather_dim;
    args.gather_size = gather_size_of(gather_size, args.a, gather_dim, group);
    args.bias = biases = call.take_all(bias, "bias");
    args.a_handle = a_handle;
    args.algorithm = algorithm_of(algorithm);
    args.plan_n = plan_n;
    const auto make = [&](int i) { return make_output(args, call.device(), i); };
    outputs = take_or_make(call, out, "out", rights.size(), make);
    args.out = outputs.views;
    whole = take_extra(call, gathered, "gathered", [&] { return make_gathered(args, call.device()); });
    args.gathered = whole.view;
  };
  const OpReport report = run_op(call, take, args.out, op);
  return nb::make_tuple(outputs.made, whole.made, report);
}

/// What Python passes to a plain sum over ranks.
struct PlainReduction {
  PyGroup& group;
  PyStream& stream;
  nb::handle a, b;
  const std::string& reduce_op;
  nb::handle out, product, bias;
  const std::optional<std::string>& partials;
  const std::string& algorithm;
  std::int64_t plan_k;
};

/// `fused` takes such args, and `make` makes an output for them.
template <class Args, class Op, class Make>
nb::tuple reduce(const PlainReduction& given, Args args, Op fused, Make make) {
  PyGroup& group = given.group;
  Call call(given.stream, group.rank(), &group.user());
  Reduction taken;
  const auto op = [&] { return fused(args, group.group(), call.stream()); };
  const auto take = [&] {
    args.a = taken.lefts = call.take_all(given.a, "a");
    args.b = taken.rights = call.take_all(given.b, "b");
    args.reduce_op = reduce_op_of(given.reduce_op);
    args.bias = call.take_if(given.bias, "bias");
    args.partials = type_if(given.partials);
    args.algorithm = algorithm_of(given.algorithm);
    args.plan_k = given.plan_k;
    taken.take_outputs(call, args, given.out, given.product,
                       [&](int) { return make(args, group.group(), call.device()); });
  };
  const OpReport report = run_op(call, take, args.out, op);
  return nb::make_tuple(taken.outputs.made, taken.own.made, report);
}

nb::tuple matmul_reduce_scatter(PyGroup& group, PyStream& stream, nb::handle a, nb::handle b, int scatter_dim,
                                const std::string& reduce_op, nb::handle out, nb::handle product,
                                nb::handle bias, const std::optional<std::string>& partials,
                                const std::string& algorithm, std::int64_t plan_k) {
  return reduce({group, stream, a, b, reduce_op, out, product, bias, partials, algorithm, plan_k},
                MatmulReduceScatterArgs{.scatter_dim = scatter_dim}, &fused_matmul_reduce_scatter,
                [](const MatmulReduceScatterArgs& args, const Group& of, Device& device) {
                  return make_output(args, of, device);
                });
}

nb::tuple matmul_all_reduce(PyGroup& group, PyStream& stream, nb::handle a, nb::handle b,
                            const std::string& reduce_op, nb::handle out, nb::handle product, nb::handle bias,
                            const std::optional<std::string>& partials, const std::string& algorithm,
                            std::int64_t plan_k) {
  return reduce({group, stream, a, b, reduce_op, out, product, bias, partials, algorithm, plan_k},
                MatmulAllReduceArgs{}, &fused_matmul_all_reduce,
                [](const MatmulAllReduceArgs& args, const Group&, Device& device) {
                  return make_output(args, device);
                });
}

Result<Tensor> make_also_gathered(const AllGatherScaledMatmulArgs& args, int i, Device& device) {
  const auto layout = also_gathered_layout(args, i);
  if (!layout) return tl::unexpected(layout.error());
  return make_tensor(*layout, args.also_gather[static_cast<std::size_t>(i)].dtype, device);
}

ScaleMode scale_mode_of(const std::string& name) {
  for (const ScaleMode mode :
       {ScaleMode::kDetect, ScaleMode::kTensorwise, ScaleMode::kRowwiseSharded, ScaleMode::kRowwiseReplicated,
        ScaleMode::kBlockwiseSharded, ScaleMode::kBlockwiseReplicated, ScaleMode::kNone}) {
    if (name == to_string(mode)) return mode;
  }
  refuse("scale mode '" + name +
         "', need detect, tensorwise, rowwise_sharded, rowwise_replicated, blockwise_sharded, "
         "blockwise_replicated or none");
}

nb::tuple all_gather_scaled_matmul(PyGroup& group, PyStream& stream, nb::handle a, nb::handle b,
                                   nb::handle a_scale, nb::handle b_scale, const std::string& scale_mode,
                                   const std::optional<std::string>& quantize, int gather_dim,
                                   MaybeSize gather_size, const std::vector<std::string>& out_types,
                                   nb::handle out, nb::handle gathered, nb::handle bias,
                                   nb::handle result_scale, bool fast_accum, nb::handle also_gather,
                                   nb::handle also_gathered, const std::string& algorithm,
                                   std::int64_t plan_n) {
  Call call(stream, group.rank(), &group.user());
  AllGatherScaledMatmulArgs args;
  std::vector<TensorView> rights;
  std::vector<TensorView> b_scales;
  std::vector<TensorView> others;
  MaybeViews biases;
  MaybeViews result_scales;
  Outputs outputs;
  Outputs whole_others;
  Extra whole;
  const auto op = [&] { return fused_all_gather_scaled_matmul(args, group.group(), call.stream()); };
  const auto take_inputs = [&] {
    args.a = call.take(a, "a");
    args.b = rights = call.take_all(b, "b");
    args.a_scale = call.take_if(a_scale, "a_scale");
    args.b_scale = b_scales = call.take_all(b_scale, "b_scale");
    args.scale_mode = scale_mode_of(scale_mode);
    args.quantize = type_if(quantize);
    args.gather_dim = gather_dim;
    args.gather_size = gather_size_of(gather_size, args.a, gather_dim, group);
    args.bias = biases = call.take_some(bias, "bias");
    args.result_scale = result_scales = call.take_some(result_scale, "result_scale");
    args.fast_accum = fast_accum;
    args.also_gather = others = call.take_all(also_gather, "also_gather");
    args.algorithm = algorithm_of(algorithm);
    args.plan_n = plan_n;
  };
  const auto take_outputs = [&] {
    if (out.is_none() && out_types.size() != rights.size()) refuse("out_dtype: need one type for each b");
    const auto make = [&](int i) {
      return make_output(args, parse_type(out_types[static_cast<std::size_t>(i)]), call.device(), i);
    };
    outputs = take_or_make(call, out, "out", rights.size(), make);
    args.out = outputs.views;
    whole = take_extra(call, gathered, "gathered", [&] { return make_gathered(args, call.device()); });
    args.gathered = whole.view;
    const auto make_other = [&](int i) { return make_also_gathered(args, i, call.device()); };
    whole_others = take_or_make(call, also_gathered, "also_gathered", others.size(), make_other);
    args.also_gathered = whole_others.views;
  };
  const OpReport report = run_op(
      call, [&] { take_inputs(), take_outputs(); }, args.out, op);
  return nb::make_tuple(outputs.made, whole.made, whole_others.made, report);
}

/// What Python passes to a scaled sum over ranks.
struct ScaledReduction {
  PyGroup& group;
  PyStream& stream;
  nb::handle a, b, a_scale, b_scale;
  const std::string& reduce_op;
  const std::optional<std::string>& out_type;
  nb::handle out, product, bias, result_scale;
  const std::optional<std::string>& partials;
  bool fast_accum;
  const std::string& algorithm;
  std::int64_t plan_k;
};

/// As reduce().
template <class Args, class Op, class Make>
nb::tuple reduce_scaled(const ScaledReduction& given, Args args, Op fused, Make make) {
  PyGroup& group = given.group;
  Call call(given.stream, group.rank(), &group.user());
  Reduction taken;
  const auto op = [&] { return fused(args, group.group(), call.stream()); };
  const auto take = [&] {
    args.a = taken.lefts = call.take_all(given.a, "a");
    args.b = taken.rights = call.take_all(given.b, "b");
    args.a_scale = taken.a_scales = call.take_some(given.a_scale, "a_scale");
    args.b_scale = taken.b_scales = call.take_some(given.b_scale, "b_scale");
    args.bias = taken.biases = call.take_some(given.bias, "bias");
    args.result_scale = taken.result_scales = call.take_some(given.result_scale, "result_scale");
    args.reduce_op = reduce_op_of(given.reduce_op);
    args.partials = type_if(given.partials);
    args.fast_accum = given.fast_accum;
    args.algorithm = algorithm_of(given.algorithm);
    args.plan_k = given.plan_k;
    const DType dtype = type_if(given.out_type).value_or(DType::kBF16);
    taken.take_outputs(call, args, given.out, given.product,
                       [&](int) { return make(args, dtype, group.group(), call.device()); });
  };
  const OpReport report = run_op(call, take, args.out, op);
  return nb::make_tuple(taken.outputs.made, taken.own.made, report);
}

nb::tuple scaled_matmul_reduce_scatter(PyGroup& group, PyStream& stream, nb::handle a, nb::handle b,
                                       nb::handle a_scale, nb::handle b_scale, int scatter_dim,
                                       const std::string& reduce_op,
                                       const std::optional<std::string>& out_type, nb::handle out,
                                       nb::handle product, nb::handle bias, nb::handle result_scale,
                                       const std::optional<std::string>& partials, bool fast_accum,
                                       const std::string& algorithm, std::int64_t plan_k) {
  return reduce_scaled({group, stream, a, b, a_scale, b_scale, reduce_op, out_type, out, product, bias,
                        result_scale, partials, fast_accum, algorithm, plan_k},
                       ScaledMatmulReduceScatterArgs{.scatter_dim = scatter_dim},
                       &fused_scaled_matmul_reduce_scatter,
                       [](const ScaledMatmulReduceScatterArgs& args, DType dtype, const Group& of,
                          Device& device) { return make_output(args, dtype, of, device); });
}

nb::tuple scaled_matmul_all_reduce(PyGroup& group, PyStream& stream, nb::handle a, nb::handle b,
                                   nb::handle a_scale, nb::handle b_scale, const std::string& reduce_op,
                                   const std::optional<std::string>& out_type, nb::handle out,
                                   nb::handle product, nb::handle bias, nb::handle result_scale,
                                   const std::optional<std::string>& partials, bool fast_accum,
                                   const std::string& algorithm, std::int64_t plan_k) {
  return reduce_scaled({group, stream, a, b, a_scale, b_scale, reduce_op, out_type, out, product, bias,
                        result_scale, partials, fast_accum, algorithm, plan_k},
                       ScaledMatmulAllReduceArgs{}, &fused_scaled_matmul_all_reduce,
                       [](const ScaledMatmulAllReduceArgs& args, DType dtype, const Group&, Device& device) {
                         return make_output(args, dtype, device);
                       });
}

}  // namespace

// The arguments have names in the functions of the package, which call these by position.
void bind_fused(nb::module_& module) {
  module.def("all_gather_matmul", &all_gather_matmul, nb::arg("group"), nb::arg("stream"),
             nb::arg("a").none(), nb::arg("b").none(), nb::arg("gather_dim"), nb::arg("gather_size").none(),
             nb::arg("out").none(), nb::arg("gathered").none(), nb::arg("bias").none(),
             nb::arg("a_handle").none(), nb::arg("algorithm"), nb::arg("plan_n"));
  module.def("matmul_reduce_scatter", &matmul_reduce_scatter, nb::arg("group"), nb::arg("stream"),
             nb::arg("a").none(), nb::arg("b").none(), nb::arg("scatter_dim"), nb::arg("reduce_op"),
             nb::arg("out").none(), nb::arg("product").none(), nb::arg("bias").none(),
             nb::arg("partials").none(), nb::arg("algorithm"), nb::arg("plan_k"));
  module.def("matmul_all_reduce", &matmul_all_reduce, nb::arg("group"), nb::arg("stream"),
             nb::arg("a").none(), nb::arg("b").none(), nb::arg("reduce_op"), nb::arg("out").none(),
             nb::arg("product").none(), nb::arg("bias").none(), nb::arg("partials").none(),
             nb::arg("algorithm"), nb::arg("plan_k"));
  module.def("all_gather_scaled_matmul", &all_gather_scaled_matmul, nb::arg("group"), nb::arg("stream"),
             nb::arg("a").none(), nb::arg("b").none(), nb::arg("a_scale").none(), nb::arg("b_scale").none(),
             nb::arg("scale_mode"), nb::arg("quantize").none(), nb::arg("gather_dim"),
             nb::arg("gather_size").none(), nb::arg("out_types"), nb::arg("out").none(),
             nb::arg("gathered").none(), nb::arg("bias").none(), nb::arg("result_scale").none(),
             nb::arg("fast_accum"), nb::arg("also_gather").none(), nb::arg("also_gathered").none(),
             nb::arg("algorithm"), nb::arg("plan_n"));
  module.def("scaled_matmul_reduce_scatter", &scaled_matmul_reduce_scatter, nb::arg("group"),
             nb::arg("stream"), nb::arg("a").none(), nb::arg("b").none(), nb::arg("a_scale").none(),
             nb::arg("b_scale").none(), nb::arg("scatter_dim"), nb::arg("reduce_op"),
             nb::arg("out_type").none(), nb::arg("out").none(), nb::arg("product").none(),
             nb::arg("bias").none(), nb::arg("result_scale").none(), nb::arg("partials").none(),
             nb::arg("fast_accum"), nb::arg("algorithm"), nb::arg("plan_k"));
  module.def("scaled_matmul_all_reduce", &scaled_matmul_all_reduce, nb::arg("group"), nb::arg("stream"),
             nb::arg("a").none(), nb::arg("b").none(), nb::arg("a_scale").none(), nb::arg("b_scale").none(),
             nb::arg("reduce_op"), nb::arg("out_type").none(), nb::arg("out").none(),
             nb::arg("product").none(), nb::arg("bias").none(), nb::arg("result_scale").none(),
             nb::arg("partials").none(), nb::arg("fast_accum"), nb::arg("algorithm"), nb::arg("plan_k"));
}

}  // namespace tandem::python
