#include "products.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tandem/gemm/async_input_mm.hpp>
#include <tandem/gemm/matmul_4bit.hpp>
#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/packed_b.hpp>
#include <tandem/gemm/quantize.hpp>
#include <tandem/gemm/scaled_mm.hpp>

#include "stream.hpp"

namespace tandem::python {
namespace {

using MaybeType = std::optional<std::string>;

/// The sizes of a * b; what does not fit is for the library to refuse.
Dims product_sizes(const TensorView& a, const TensorView& b) {
  Dims sizes = a.sizes;
  if (!sizes.empty() && !b.sizes.empty()) sizes[sizes.size() - 1] = b.sizes.back();
  return sizes;
}

DType type_or(const MaybeType& name, DType otherwise) {
  return name ? parse_type(*name) : otherwise;
}

gemm::PackedB pack_b(const PyDevice& device, nb::handle b) {
  const Operand operand = take_array(b, "b", {device.device()->id(), std::nullopt});
  return take_unlocked([&] { return gemm::pack_b(operand.view, *device.device()); });
}

/// b is an array, or packed.
std::optional<Array> mm(PyStream& stream, nb::handle a, nb::handle b, nb::handle out,
                        const MaybeType& out_type, nb::handle bias, bool accumulate) {
  Call call(stream);
  gemm::MmArgs args;
  std::optional<gemm::PackedB> packed;
  std::optional<Array> made;
  args.a = call.take(a, "a");
  Dims sizes = args.a.sizes;
  if (nb::isinstance<gemm::PackedB>(b)) {
    packed = nb::cast<const gemm::PackedB&>(b);
    if (!sizes.empty()) sizes[sizes.size() - 1] = packed->n();
    call.keep(std::make_shared<gemm::PackedB>(*packed));
  } else {
    args.b = call.take(b, "b");
    sizes = product_sizes(args.a, args.b);
  }
  args.bias = call.take_if(bias, "bias");
  args.accumulate = accumulate;
  args.out = call.take_or_make(out, "out", sizes, type_or(out_type, args.a.dtype), made);
  call.run([&] { return packed ? gemm::mm(args, *packed, call.stream()) : gemm::mm(args, call.stream()); });
  call.finish();
  return made;
}

std::optional<Array> scaled_matmul(PyStream& stream, nb::handle a, nb::handle b, nb::handle a_scale,
                                   nb::handle b_scale, nb::handle out, const MaybeType& out_type,
                                   nb::handle bias, nb::handle result_scale, bool fast_accum,
                                   nb::handle addend) {
  Call call(stream);
  gemm::ScaledMmArgs args;
  std::optional<Array> made;
  args.a = call.take(a, "a");
  args.b = call.take(b, "b");
  if (!a_scale.is_none()) args.a_scale = call.take(a_scale, "a_scale");
  if (!b_scale.is_none()) args.b_scale = call.take(b_scale, "b_scale");
  args.bias = call.take_if(bias, "bias");
  args.result_scale = call.take_if(result_scale, "result_scale");
  args.fast_accum = fast_accum;
  args.addend = call.take_if(addend, "addend");
  args.out =
      call.take_or_make(out, "out", product_sizes(args.a, args.b), type_or(out_type, DType::kBF16), made);
  call.run([&] { return gemm::scaled_matmul(args, call.stream()); });
  call.finish();
  return made;
}

nb::tuple quantize_rows(PyStream& stream, nb::handle a, const std::string& type, bool block, nb::handle out,
                        nb::handle scale) {
  Call call(stream);
  gemm::QuantizeRowsArgs args;
  std::optional<Array> made_out;
  std::optional<Array> made_scale;
  args.input = call.take(a, "a");
  const Dims& sizes = args.input.sizes;
  Dims scale_sizes = sizes;
  if (!sizes.empty()) scale_sizes[sizes.size() - 1] = block ? gemm::num_scale_blocks(sizes.back()) : 1;
  args.out = call.take_or_make(out, "out", sizes, parse_type(type), made_out);
  args.scale = call.take_or_make(scale, "scale", scale_sizes, DType::kF32, made_scale);
  call.run([&] { return gemm::quantize_rows(args, call.stream()); });
  call.finish();
  return nb::make_tuple(std::move(made_out), std::move(made_scale));
}

std::optional<Array> async_input_mm(PyStream& stream, nb::handle a, nb::handle b, nb::handle a_chunk_signals,
                                    nb::handle out, std::int64_t a_chunk_pivot, std::uint32_t expected,
                                    std::int64_t chunks_together, bool in_order) {
  Call call(stream);
  gemm::AsyncInputMmArgs args;
  std::optional<Array> made;
  args.a = call.take(a, "a");
  args.b = call.take(b, "b");
  args.a_chunk_signals = call.take(a_chunk_signals, "a_chunk_signals");
  args.a_chunk_pivot = a_chunk_pivot;
  args.expected = expected;
  args.chunks_together = chunks_together;
  args.in_order = in_order;
  args.out = call.take_or_make(out, "out", product_sizes(args.a, args.b), args.a.dtype, made);
  call.run([&] { return gemm::async_input_mm(args, call.stream()); });
  call.finish();
  return made;
}

constexpr Place kHost = {{DeviceKind::kCpu, 0}, std::nullopt};

nb::tuple quantize_weight_4bit(nb::handle weight, std::int64_t group_size) {
  const Operand operand = take_array(weight, "weight", kHost);
  auto made = take_unlocked([&] { return gemm::quantize_weight_4bit(operand.view, group_size); });
  const auto kept = std::make_shared<gemm::Weight4bit>(std::move(made));
  const Dims& sizes = operand.view.sizes;
  const std::int64_t groups = sizes[1] == 0 ? 0 : sizes[1] / group_size;
  return nb::make_tuple(
      Array{TensorView::contiguous(kept->nibbles.data(), {sizes[0], sizes[1] / 2}, DType::kU8), kept},
      Array{TensorView::contiguous(kept->scales.data(), {sizes[0], groups}, DType::kF32), kept});
}

gemm::Packed4bitWeight pack_4bit_weight(nb::handle weight, nb::handle scales, nb::handle bias,
                                        std::int64_t group_size, std::int64_t in_features,
                                        std::int64_t out_features) {
  const Operand nibbles = take_array(weight, "weight", kHost);
  const Operand factors = take_array(scales, "scales", kHost);
  const Operand added = bias.is_none() ? Operand{} : take_array(bias, "bias", kHost);
  gemm::Pack4bitArgs args{.weight = nibbles.view,
                          .scales = factors.view,
                          .group_size = group_size,
                          .in_features = in_features,
                          .out_features = out_features};
  if (!bias.is_none()) args.bias = added.view;
  return take_unlocked([&] { return gemm::pack_4bit_weight(args); });
}

std::optional<Array> matmul_4bit(PyStream& stream, nb::handle input, const gemm::Packed4bitWeight& packed,
                                 nb::handle out, const MaybeType& out_type) {
  Call call(stream);
  gemm::Matmul4bitArgs args;
  std::optional<Array> made;
  args.input = call.take(input, "input");
  Dims sizes = args.input.sizes;
  if (!sizes.empty()) sizes[sizes.size() - 1] = packed.out_features();
  args.out = call.take_or_make(out, "out", sizes, type_or(out_type, args.input.dtype), made);
  call.keep(std::make_shared<gemm::Packed4bitWeight>(packed));
  call.run([&] { return gemm::matmul_4bit(args, packed, call.stream()); });
  call.finish();
  return made;
}

}  // namespace

void bind_products(nb::module_& module) {
  auto packed = nb::class_<gemm::Packed4bitWeight>(
      module, "Packed4bitWeight",
      "A 4-bit weight in the order in which matmul_4bit() reads it, with its scales and bias.");
  refuse_pickling(packed, "Pack the weight in each process.");
  packed.def_prop_ro("in_features", &gemm::Packed4bitWeight::in_features)
      .def_prop_ro("out_features", &gemm::Packed4bitWeight::out_features)
      .def_prop_ro("group_size", &gemm::Packed4bitWeight::group_size)
      .def_prop_ro("num_bytes", &gemm::Packed4bitWeight::num_bytes);
  auto packed_b = nb::class_<gemm::PackedB>(
      module, "PackedB", "The right operand of mm() in the order in which a CPU's products read it.");
  refuse_pickling(packed_b, "Pack b in each process.");
  packed_b.def_prop_ro("k", &gemm::PackedB::k)
      .def_prop_ro("n", &gemm::PackedB::n)
      .def_prop_ro("num_bytes", &gemm::PackedB::num_bytes)
      .def_prop_ro("implementation", &gemm::PackedB::implementation);
  module.def("pack_b", &pack_b, nb::arg("device"), nb::arg("b").none());
  module.def("quantize_weight_4bit", &quantize_weight_4bit, nb::arg("weight").none(), nb::arg("group_size"));
  module.def("pack_4bit_weight", &pack_4bit_weight, nb::arg("weight").none(), nb::arg("scales").none(),
             nb::arg("bias").none(), nb::arg("group_size"), nb::arg("in_features"), nb::arg("out_features"));
  module.def("matmul_4bit", &matmul_4bit, nb::arg("stream"), nb::arg("input").none(), nb::arg("packed"),
             nb::arg("out").none(), nb::arg("out_type").none());
  module.def("mm", &mm, nb::arg("stream"), nb::arg("a").none(), nb::arg("b").none(), nb::arg("out").none(),
             nb::arg("out_type").none(), nb::arg("bias").none(), nb::arg("accumulate"));
  module.def("scaled_matmul", &scaled_matmul, nb::arg("stream"), nb::arg("a").none(), nb::arg("b").none(),
             nb::arg("a_scale").none(), nb::arg("b_scale").none(), nb::arg("out").none(),
             nb::arg("out_type").none(), nb::arg("bias").none(), nb::arg("result_scale").none(),
             nb::arg("fast_accum"), nb::arg("addend").none());
  module.def("quantize_rows", &quantize_rows, nb::arg("stream"), nb::arg("a").none(), nb::arg("type"),
             nb::arg("block"), nb::arg("out").none(), nb::arg("scale").none());
  module.def("async_input_mm", &async_input_mm, nb::arg("stream"), nb::arg("a").none(), nb::arg("b").none(),
             nb::arg("a_chunk_signals").none(), nb::arg("out").none(), nb::arg("a_chunk_pivot"),
             nb::arg("expected"), nb::arg("chunks_together"), nb::arg("in_order"));
}

}  // namespace tandem::python
