#include "support/writing_calls.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <tandem/gemm/matmul_4bit.hpp>
#include <tandem/gemm/packed_b.hpp>
#include <tandem/program/host/executor.hpp>
#include <tandem/program/host/fusion.hpp>
#include <tandem/program/host/lower.hpp>

namespace tandem::testing {
namespace {

using Needs = WritingCall::Needs;
using Views = std::vector<TensorView>;

Operand in(std::string name, Dims sizes, DType dtype = DType::kF32) {
  return {.name = std::move(name), .sizes = sizes, .dtype = dtype};
}
Operand out(std::string name, Dims sizes, DType dtype = DType::kF32) {
  return {.name = std::move(name), .sizes = sizes, .dtype = dtype, .is_output = true};
}
Operand contiguous(Operand operand) {
  operand.any_strides = false;
  return operand;
}
Operand pointer(Operand operand) {
  operand.is_pointer = true;
  return contiguous(std::move(operand));
}

/// What a fused op returns, for those to whom only its error matters.
Result<void> done(const Result<OpReport>& report) {
  return report ? Result<void>() : tl::unexpected(report.error());
}

void add_device_calls(std::vector<WritingCall>& calls) {
  calls.push_back({.name = "copy",
                   .header = "device/stream.hpp",
                   .operands = {in("from", {4, 3}), out("to", {4, 3})},
                   .make = [](CallSite& at) { return at.rank.stream->copy(at.views[0], at.views[1]); },
                   .in_place = {{"to", "from"}}});
  calls.push_back(
      {.name = "stream_write_value32",
       .header = "device/stream.hpp",
       .operands = {contiguous(out("words", {4}, DType::kU32))},
       .make = [](CallSite& at) { return at.rank.stream->stream_write_value32(at.views[0], 1, 7); }});
  calls.push_back({.name = "memset32",
                   .header = "device/stream.hpp",
                   .operands = {contiguous(out("words", {4}, DType::kU32))},
                   .make = [](CallSite& at) { return at.rank.stream->memset32(at.views[0], 0, 7, 4); }});
  calls.push_back(
      {.name = "copy_from_host",
       .header = "device/device.hpp",
       .operands = {pointer(in("from", {4, 3})), contiguous(out("to", {4, 3}))},
       .make = [](CallSite& at) { return at.rank.device->copy_from_host(at.views[0].data, at.views[1]); },
       .in_place = {{"to", "from"}},
       .needs = Needs::kHostMemory});
  calls.push_back(
      {.name = "copy_to_host",
       .header = "device/device.hpp",
       .operands = {contiguous(in("from", {4, 3})), pointer(out("to", {4, 3}))},
       .make = [](CallSite& at) { return at.rank.device->copy_to_host(at.views[0], at.views[1].data); },
       .in_place = {{"to", "from"}},
       .needs = Needs::kHostMemory});
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const bool differs = dtype != DType::kF32;
    WritingCall call{.name = "convert",
                     .header = "base/convert.hpp",
                     .variant = differs ? "to_bf16" : "",
                     .operands = {in("from", {4, 3}), out("to", {4, 3}, dtype)},
                     .make = [](CallSite& at) { return convert(at.views[0], at.views[1]); },
                     .needs = Needs::kHostMemory};
    if (!differs) call.in_place = {{"to", "from"}};
    calls.push_back(std::move(call));
  }
}

void add_symm_calls(std::vector<WritingCall>& calls) {
  calls.push_back(
      {.name = "get",
       .header = "symm/handle.hpp",
       .operands = {pointer(in("the peer's memory", {4, 3})), contiguous(out("destination", {4, 3}))},
       .make =
           [](CallSite& at) {
             return at.handle->get(*at.rank.stream, at.views[1], at.rank.rank(), at.offset_of(0));
           },
       .in_place = {{"destination", "the peer's memory"}}});
  calls.push_back({.name = "put",
                   .header = "symm/handle.hpp",
                   .operands = {contiguous(in("source", {4, 3})), pointer(out("the peer's memory", {4, 3}))},
                   .make =
                       [](CallSite& at) {
                         return at.handle->put(*at.rank.stream, at.views[0], at.rank.rank(), at.offset_of(1));
                       },
                   .in_place = {{"the peer's memory", "source"}}});
}

constexpr std::int64_t kM = 8;
constexpr std::int64_t kN = 16;
constexpr std::int64_t kK = 24;

gemm::MmArgs mm_args(const Views& views) {
  gemm::MmArgs args{.a = views[0], .b = views[1], .out = views[2], .bias = {}};
  if (views.size() > 3) args.bias = views[3];
  return args;
}

void add_mm_calls(std::vector<WritingCall>& calls) {
  const std::vector<Operand> operands = {in("a", {kM, kK}), in("b", {kK, kN}), out("out", {kM, kN})};
  std::vector<Operand> with_bias = operands;
  with_bias.push_back(in("bias", {kN}));
  calls.push_back({.name = "mm", .header = "gemm/mm.hpp", .operands = with_bias, .make = [](CallSite& at) {
                     return gemm::mm(mm_args(at.views), *at.rank.stream);
                   }});
  calls.push_back({.name = "mm",
                   .header = "gemm/mm.hpp",
                   .variant = "accumulating",
                   .operands = operands,
                   .make = [](CallSite& at) {
                     gemm::MmArgs args = mm_args(at.views);
                     args.accumulate = true;
                     return gemm::mm(args, *at.rank.stream);
                   }});
  std::vector<Operand> with_addend = with_bias;
  with_addend.push_back(in("addend", {kM, kN}));
  calls.push_back({.name = "mm",
                   .header = "gemm/mm.hpp",
                   .variant = "with_addend",
                   .operands = with_addend,
                   .make =
                       [](CallSite& at) {
                         gemm::MmArgs args = mm_args(at.views);
                         args.addend = at.views[4];
                         return gemm::mm(args, *at.rank.stream);
                       },
                   .in_place = {{"out", "addend"}}});
  calls.push_back({.name = "run",
                   .header = "gemm/mm.hpp",
                   .operands = with_bias,
                   .make = [](CallSite& at) -> Result<void> {
                     const gemm::MmArgs args = mm_args(at.views);
                     const auto problem = gemm::problem_of(args);
                     if (!problem) return tl::unexpected(problem.error());
                     const auto plan = gemm::plan(*problem, *at.rank.device);
                     if (!plan) return tl::unexpected(plan.error());
                     return gemm::run(*plan, args, *at.rank.stream);
                   }});
  calls.push_back({.name = "mm",
                   .header = "gemm/packed_b.hpp",
                   .variant = "packed",
                   .operands = {in("a", {kM, kK}), out("out", {kM, kN})},
                   .make = [](CallSite& at) -> Result<void> {
                     std::vector<float> b(static_cast<std::size_t>(kK * kN), 0.5F);
                     const auto packed = gemm::pack_b(TensorView::contiguous(b.data(), {kK, kN}, DType::kF32),
                                                      *at.rank.device);
                     if (!packed) return tl::unexpected(packed.error());
                     const gemm::MmArgs args{.a = at.views[0], .b = {}, .out = at.views[1], .bias = {}};
                     const auto begun = gemm::mm(args, *packed, *at.rank.stream);
                     return begun ? at.rank.stream->synchronize() : begun;  // then the packed b goes
                   },
                   .needs = Needs::kHostMemory});
}

Result<gemm::Packed4bitWeight> packed_4bit_weight() {
  std::vector<float> weight(static_cast<std::size_t>(kN) * 64, 0.5F);
  auto rounded = gemm::quantize_weight_4bit(TensorView::contiguous(weight.data(), {kN, 64}, DType::kF32), 32);
  if (!rounded) return tl::unexpected(rounded.error());
  return gemm::pack_4bit_weight(
      {.weight = TensorView::contiguous(rounded->nibbles.data(), {kN, 32}, DType::kU8),
       .scales = TensorView::contiguous(rounded->scales.data(), {kN, 2}, DType::kF32),
       .group_size = 32,
       .in_features = 64,
       .out_features = kN});
}

void add_4bit_products(std::vector<WritingCall>& calls) {
  const std::vector<Operand> operands = {in("input", {2, 4, 64}), out("out", {2, 4, kN})};
  // The weight goes when a call has run.
  const auto run = [](CallSite& at, const auto& enqueue) -> Result<void> {
    const auto packed = packed_4bit_weight();
    if (!packed) return tl::unexpected(packed.error());
    const auto begun = enqueue(gemm::Matmul4bitArgs{.input = at.views[0], .out = at.views[1]}, *packed);
    return begun ? at.rank.stream->synchronize() : begun;
  };
  calls.push_back({.name = "matmul_4bit",
                   .header = "gemm/matmul_4bit.hpp",
                   .operands = operands,
                   .make =
                       [run](CallSite& at) {
                         return run(at, [&](const auto& args, const auto& packed) {
                           return gemm::matmul_4bit(args, packed, *at.rank.stream);
                         });
                       },
                   .needs = Needs::kHostMemory});
  calls.push_back({.name = "run",
                   .header = "gemm/matmul_4bit.hpp",
                   .variant = "4bit",
                   .operands = operands,
                   .make =
                       [run](CallSite& at) {
                         return run(at, [&](const auto& args, const auto& packed) -> Result<void> {
                           const auto problem = gemm::problem_of(args, packed);
                           if (!problem) return tl::unexpected(problem.error());
                           const auto plan = gemm::plan(*problem, *at.rank.device);
                           if (!plan) return tl::unexpected(plan.error());
                           return gemm::run(*plan, args, packed, *at.rank.stream);
                         });
                       },
                   .needs = Needs::kHostMemory});
}

void add_other_products(std::vector<WritingCall>& calls) {
  calls.push_back(
      {.name = "scaled_matmul",
       .header = "gemm/scaled_mm.hpp",
       .operands = {in("a", {2, 4, kK}, DType::kF8E4M3), in("b", {kK, kN}, DType::kF8E5M2),
                    out("out", {2, 4, kN}), in("a_scale", {2, 4, 1}), in("b_scale", {1, kN}),
                    in("bias", {kN}, DType::kBF16), in("result_scale", {1}), in("addend", {2, 4, kN})},
       .make =
           [](CallSite& at) {
             const Views& v = at.views;
             return gemm::scaled_matmul({.a = v[0],
                                         .b = v[1],
                                         .a_scale = v[3],
                                         .b_scale = v[4],
                                         .out = v[2],
                                         .bias = v[5],
                                         .result_scale = v[6],
                                         .addend = v[7]},
                                        *at.rank.stream);
           },
       .in_place = {{"out", "addend"}}});
  calls.push_back({.name = "quantize_rows",
                   .header = "gemm/quantize.hpp",
                   .operands = {in("input", {2, 4, kK}, DType::kBF16), out("out", {2, 4, kK}, DType::kF8E4M3),
                                out("scale", {2, 4, 1})},
                   .make = [](CallSite& at) {
                     const Views& v = at.views;
                     return gemm::quantize_rows({.input = v[0], .out = v[1], .scale = v[2]}, *at.rank.stream);
                   }});
  calls.push_back(
      {.name = "async_input_mm",
       .header = "gemm/async_input_mm.hpp",
       .operands = {contiguous(in("a", {kM, kK}, DType::kBF16)), contiguous(in("b", {kK, kN}, DType::kBF16)),
                    contiguous(out("out", {kM, kN}, DType::kBF16)),
                    contiguous(in("a_chunk_signals", {4}, DType::kU32)),
                    contiguous(in("complete.rows", {4, kK}, DType::kBF16))},
       .make = [](CallSite& at) {
         const Views& v = at.views;
         return gemm::async_input_mm({.a = v[0],
                                      .b = v[1],
                                      .out = v[2],
                                      .a_chunk_signals = v[3],
                                      .expected = 0,
                                      .complete = gemm::CompleteChunks{v[4], 0, 2}},
                                     *at.rank.stream);
       }});
}

void add_low_contention_collectives(std::vector<WritingCall>& calls, int world) {
  calls.push_back({.name = "low_contention_all_gather",
                   .header = "coll/collectives.hpp",
                   .operands = {in("input", {4 / world, 3}), out("output", {4, 3})},
                   .make =
                       [](CallSite& at) {
                         return coll::low_contention_all_gather({.input = at.views[0], .output = at.views[1]},
                                                                at.rank.group, *at.rank.stream);
                       },
                   .in_place = {{"output", "input"}},
                   .needs = Needs::kOtherRanks,
                   .reads_by_engines = true});
  calls.push_back({.name = "low_contention_reduce_scatter",
                   .header = "coll/collectives.hpp",
                   .operands = {in("input", {4, 3}), out("output", {4 / world, 3})},
                   .make =
                       [](CallSite& at) {
                         return coll::low_contention_reduce_scatter(
                             {.input = at.views[0], .output = at.views[1]}, at.rank.group, *at.rank.stream);
                       },
                   .in_place = {{"output", "input"}},
                   .needs = Needs::kOtherRanks,
                   .reads_by_engines = true});
}

void add_collectives(std::vector<WritingCall>& calls, int world) {
  calls.push_back({.name = "all_gather",
                   .header = "coll/collectives.hpp",
                   .operands = {contiguous(in("input", {4 / world, 3})), contiguous(out("output", {4, 3}))},
                   .make =
                       [](CallSite& at) {
                         return coll::all_gather({.input = at.views[0], .output = at.views[1]}, at.rank.group,
                                                 *at.rank.stream);
                       },
                   .in_place = {{"output", "input"}},
                   .needs = Needs::kOtherRanks});
  calls.push_back(
      {.name = "reduce_scatter",
       .header = "coll/collectives.hpp",
       .operands = {contiguous(in("input", {4, 3})), out("output", {4 / world, 3}), in("bias", {3})},
       .make =
           [](CallSite& at) {
             return coll::reduce_scatter({.input = at.views[0],
                                          .output = at.views[1],
                                          .op = coll::ReduceOp::kSum,
                                          .bias = at.views[2]},
                                         at.rank.group, *at.rank.stream);
           },
       .in_place = {{"output", "input"}},
       .needs = Needs::kOtherRanks});
  calls.push_back({.name = "all_gather_with_progress",
                   .header = "coll/collectives.hpp",
                   .operands = {contiguous(in("input", {4, 3})), contiguous(out("output", {4 * world, 3})),
                                contiguous(out("progress", {2 * world}, DType::kU32))},
                   .make =
                       [](CallSite& at) {
                         return coll::all_gather_with_progress({.output = at.views[1],
                                                                .input = at.views[0],
                                                                .progress = at.views[2],
                                                                .splits_per_rank = 2,
                                                                .input_handle = at.handle},
                                                               at.rank.group, *at.rank.stream);
                       },
                   .in_place = {{"output", "input"}},
                   .needs = Needs::kOtherRanks});
  calls.push_back(
      {.name = "reduce_stack",
       .header = "coll/collectives.hpp",
       .operands = {contiguous(in("stack", {2, 4, 3})), out("output", {4, 3}), in("bias", {3})},
       .make = [](CallSite& at) {
         return coll::reduce_stack(
             {.stack = at.views[0], .out = at.views[1], .op = coll::ReduceOp::kSum, .bias = at.views[2]},
             *at.rank.stream);
       }});
}

void add_fused_gathers(std::vector<WritingCall>& calls, int world) {
  calls.push_back(
      {.name = "fused_all_gather_matmul",
       .header = "fused/all_gather_matmul.hpp",
       .operands = {in("a", {kM / world, kK}), in("b[0]", {kK, kN}), in("b[1]", {kK, kN}),
                    contiguous(out("out[0]", {kM, kN})), contiguous(out("out[1]", {kM, kN})),
                    in("bias[0]", {kN}), in("bias[1]", {kN}), contiguous(out("gathered", {kM, kK}))},
       .make =
           [](CallSite& at) {
             const std::span<const TensorView> v = at.views;
             return done(fused_all_gather_matmul({.a = v[0],
                                                  .b = v.subspan(1, 2),
                                                  .gather_size = kM,
                                                  .out = v.subspan(3, 2),
                                                  .gathered = v[7],
                                                  .bias = v.subspan(5, 2)},
                                                 at.rank.group, *at.rank.stream));
           },
       .needs = Needs::kOtherRanks});
  calls.push_back(
      {.name = "fused_all_gather_scaled_matmul",
       .header = "fused/all_gather_scaled_matmul.hpp",
       .operands = {in("a", {kM / world, kK}, DType::kF8E4M3), in("b[0]", {kK, kN}, DType::kF8E4M3),
                    in("a_scale", {kM / world, 1}), in("b_scale[0]", {1, kN}),
                    contiguous(out("out[0]", {kM, kN}, DType::kBF16)), in("bias[0]", {kN}),
                    in("result_scale[0]", {1}), in("also_gather[0]", {kM / world, 4}),
                    contiguous(out("also_gathered[0]", {kM, 4})),
                    contiguous(out("gathered", {kM, kK}, DType::kF8E4M3))},
       .make =
           [](CallSite& at) {
             const std::span<const TensorView> v = at.views;
             const std::optional<TensorView> bias[] = {v[5]};
             const std::optional<TensorView> result_scale[] = {v[6]};
             return done(fused_all_gather_scaled_matmul({.a = v[0],
                                                         .b = v.subspan(1, 1),
                                                         .a_scale = v[2],
                                                         .b_scale = v.subspan(3, 1),
                                                         .gather_size = kM,
                                                         .out = v.subspan(4, 1),
                                                         .gathered = v[9],
                                                         .bias = bias,
                                                         .result_scale = result_scale,
                                                         .also_gather = v.subspan(7, 1),
                                                         .also_gathered = v.subspan(8, 1)},
                                                        at.rank.group, *at.rank.stream));
           },
       .needs = Needs::kOtherRanks});
}

void add_block_scaled_gather(std::vector<WritingCall>& calls, int world) {
  calls.push_back({.name = "fused_all_gather_block_scaled_matmul",
                   .header = "fused/all_gather_scaled_matmul.hpp",
                   .operands = {in("a", {kM / world, kK}, DType::kF8E4M3),
                                in("b[0]", {kK, kN}, DType::kF8E4M3), in("a_scale", {kM / world, 1}),
                                in("b_scale[0]", {1, kN}), contiguous(out("out[0]", {kM, kN}, DType::kBF16)),
                                contiguous(out("gathered", {kM, kK}, DType::kF8E4M3))},
                   .make =
                       [](CallSite& at) {
                         const std::span<const TensorView> v = at.views;
                         return done(fused_all_gather_block_scaled_matmul({.a = v[0],
                                                                           .b = v.subspan(1, 1),
                                                                           .a_scale = v[2],
                                                                           .b_scale = v.subspan(3, 1),
                                                                           .gather_size = kM,
                                                                           .out = v.subspan(4, 1),
                                                                           .gathered = v[5]},
                                                                          at.rank.group, *at.rank.stream));
                       },
                   .needs = Needs::kOtherRanks});
}

void add_fused_scatters(std::vector<WritingCall>& calls, int world) {
  calls.push_back(
      {.name = "fused_matmul_reduce_scatter",
       .header = "fused/matmul_reduce_scatter.hpp",
       .operands = {in("a[0]", {kM, kK}), in("a[1]", {kM, kN}), in("b[0]", {kK, kN}), in("b[1]", {kN, kN}),
                    contiguous(out("out", {kM / world, kN})), in("bias", {kN}),
                    contiguous(out("product", {kM, kN}))},
       .make =
           [](CallSite& at) {
             const std::span<const TensorView> v = at.views;
             return done(fused_matmul_reduce_scatter(
                 {.a = v.subspan(0, 2), .b = v.subspan(2, 2), .out = v[4], .bias = v[5], .product = v[6]},
                 at.rank.group, *at.rank.stream));
           },
       .needs = Needs::kOtherRanks});
  calls.push_back(
      {.name = "fused_scaled_matmul_reduce_scatter",
       .header = "fused/scaled_matmul_reduce_scatter.hpp",
       .operands = {in("a[0]", {kM, kK}, DType::kF8E4M3), in("b[0]", {kK, kN}, DType::kF8E4M3),
                    in("a_scale[0]", {kM, 1}), in("b_scale[0]", {1, kN}), in("bias[0]", {kN}),
                    in("result_scale[0]", {1}), contiguous(out("out", {kM / world, kN}, DType::kBF16)),
                    contiguous(out("product", {kM, kN}, DType::kBF16))},
       .make =
           [](CallSite& at) {
             const std::span<const TensorView> v = at.views;
             const std::optional<TensorView> others[] = {v[2], v[3], v[4], v[5]};
             const std::span<const std::optional<TensorView>> each = others;
             return done(fused_scaled_matmul_reduce_scatter({.a = v.subspan(0, 1),
                                                             .b = v.subspan(1, 1),
                                                             .a_scale = each.subspan(0, 1),
                                                             .b_scale = each.subspan(1, 1),
                                                             .bias = each.subspan(2, 1),
                                                             .result_scale = each.subspan(3, 1),
                                                             .out = v[6],
                                                             .product = v[7]},
                                                            at.rank.group, *at.rank.stream));
           },
       .needs = Needs::kOtherRanks});
}

void add_all_reduces(std::vector<WritingCall>& calls) {
  calls.push_back(
      {.name = "all_reduce",
       .header = "coll/collectives.hpp",
       .operands = {contiguous(in("input", {4, 3})), contiguous(out("output", {4, 3})), in("bias", {3})},
       .make =
           [](CallSite& at) {
             return coll::all_reduce({.input = at.views[0], .output = at.views[1], .bias = at.views[2]},
                                     at.rank.group, *at.rank.stream);
           },
       .in_place = {{"output", "input"}},
       .needs = Needs::kOtherRanks});
  calls.push_back(
      {.name = "fused_matmul_all_reduce",
       .header = "fused/matmul_all_reduce.hpp",
       .operands = {in("a[0]", {kM, kK}), in("a[1]", {kM, kN}), in("b[0]", {kK, kN}), in("b[1]", {kN, kN}),
                    contiguous(out("out", {kM, kN})), in("bias", {kN}), contiguous(out("product", {kM, kN}))},
       .make =
           [](CallSite& at) {
             const std::span<const TensorView> v = at.views;
             return done(fused_matmul_all_reduce(
                 {.a = v.subspan(0, 2), .b = v.subspan(2, 2), .out = v[4], .bias = v[5], .product = v[6]},
                 at.rank.group, *at.rank.stream));
           },
       .needs = Needs::kOtherRanks});
  calls.push_back({.name = "fused_scaled_matmul_all_reduce",
                   .header = "fused/scaled_matmul_all_reduce.hpp",
                   .operands = {in("a[0]", {kM, kK}, DType::kF8E4M3), in("b[0]", {kK, kN}, DType::kF8E4M3),
                                in("a_scale[0]", {kM, 1}), in("b_scale[0]", {1, kN}), in("bias[0]", {kN}),
                                in("result_scale[0]", {1}), contiguous(out("out", {kM, kN}, DType::kBF16)),
                                contiguous(out("product", {kM, kN}, DType::kBF16))},
                   .make =
                       [](CallSite& at) {
                         const std::span<const TensorView> v = at.views;
                         return done(fused_scaled_matmul_all_reduce({.a = v[0],
                                                                     .b = v[1],
                                                                     .a_scale = v[2],
                                                                     .b_scale = v[3],
                                                                     .bias = v[4],
                                                                     .result_scale = v[5],
                                                                     .out = v[6],
                                                                     .product = v[7]},
                                                                    at.rank.group, *at.rank.stream));
                       },
                   .needs = Needs::kOtherRanks});
}

Result<void> run_host_program(CallSite& at) {
  namespace host = program::host;
  const int world = at.rank.group.size();
  host::Fusion fusion;
  host::SymbolicTensor* const a = fusion.make_contig_tensor(4);
  host::SymbolicTensor* const b = fusion.make_contig_tensor(2);
  host::SymbolicTensor* const c = fusion.matmul(a, b);
  fusion.add_input(a);
  fusion.add_input(b);
  fusion.add_output(c);
  for (host::SymbolicTensor* const tensor : {a, b, c})
    tensor->set_device_mesh(host::DeviceMesh::create_for_num_devices(world));
  a->axis(1).parallelize(host::ParallelType::kDIDx);
  c->axis(0).parallelize(host::ParallelType::kStream);
  host::LowerOptions options;
  options.workers_wait = true;
  const auto program = host::lower(fusion, options);
  if (!program) return tl::unexpected(program.error());
  const std::span inputs = std::span(at.views).first(2);
  const auto executor = host::Executor::create(*program, inputs, at.rank.group, *at.rank.device, 2);
  if (!executor) return tl::unexpected(executor.error());
  auto done = (*executor)->run(inputs, at.views[2], *at.rank.stream);
  const auto ended = at.rank.stream->synchronize();
  return done ? ended : done;
}

void add_host_programs(std::vector<WritingCall>& calls, int world) {
  calls.push_back({.name = "run",
                   .header = "program/host/executor.hpp",
                   .variant = "host_program",
                   .operands = {contiguous(in("input[0]", {2, 1, 2, 3})), contiguous(in("input[1]", {3, 2})),
                                contiguous(out("output", {2, world, 2, 2}))},
                   .make = run_host_program});
}

}  // namespace

std::int64_t CallSite::offset_of(std::size_t idx) const {
  const void* const block = handle->buffer_ptrs()[static_cast<std::size_t>(rank.rank())];
  return (views[idx].data_as<const std::byte>() - static_cast<const std::byte*>(block)) /
         size_bytes(views[idx].dtype);
}

std::vector<WritingCall> writing_calls(int world) {
  std::vector<WritingCall> calls;
  add_device_calls(calls);
  add_symm_calls(calls);
  add_mm_calls(calls);
  add_4bit_products(calls);
  add_other_products(calls);
  add_low_contention_collectives(calls, world);
  add_collectives(calls, world);
  add_fused_gathers(calls, world);
  add_block_scaled_gather(calls, world);
  add_fused_scatters(calls, world);
  add_all_reduces(calls);
  add_host_programs(calls, world);
  return calls;
}

}  // namespace tandem::testing
