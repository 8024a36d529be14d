#include "gemm/product.hpp"

#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/scaled_mm.hpp>

#include "gemm/operand_checks.hpp"

namespace tandem::gemm {
namespace {

bool is_plain(const ProductArgs& args) {
  const bool is_scaled = args.a_scale || args.b_scale || args.result_scale || args.addend;
  return !is_scaled && args.a->dim() == 2 && is_factor_type(args.a->dtype) &&
         is_factor_type(args.out->dtype) && (args.bias == nullptr || args.bias->dtype == args.out->dtype);
}

std::optional<TensorView> optional_of(const TensorView* view) {
  return view == nullptr ? std::nullopt : std::optional(*view);
}

TensorView view_of(const TensorView* view) {
  return view == nullptr ? TensorView{} : *view;
}

MmArgs mm_args(const ProductArgs& args) {
  return {.a = *args.a,
          .b = *args.b,
          .out = *args.out,
          .bias = optional_of(args.bias),
          .accumulate = args.accumulate,
          .heuristic = args.heuristic};
}

}  // namespace

Result<void> run(const ProductArgs& args, Stream& stream) {
  if (args.arrival != nullptr) {
    const Arrival& arrival = *args.arrival;
    return async_input_mm({.a = *args.a,
                           .b = *args.b,
                           .out = *args.out,
                           .a_chunk_signals = arrival.signals,
                           .a_chunk_pivot = arrival.pivot,
                           .expected = arrival.expected,
                           .chunks_together = arrival.chunks_together,
                           .in_order = arrival.in_order,
                           .complete = arrival.complete,
                           .senders = arrival.senders,
                           .patches = arrival.patches},
                          stream);
  }
  if (is_plain(args)) return mm(mm_args(args), stream);
  return scaled_matmul({.a = *args.a,
                        .b = *args.b,
                        .a_scale = view_of(args.a_scale),
                        .b_scale = view_of(args.b_scale),
                        .out = *args.out,
                        .bias = optional_of(args.bias),
                        .result_scale = optional_of(args.result_scale),
                        .fast_accum = args.fast_accum,
                        .addend = optional_of(args.addend)},
                       stream);
}

Result<void> prepare(const ProductArgs& like, Stream& stream) {
  // Nothing is made at the first call of the others.
  if (like.arrival != nullptr || !is_plain(like)) return {};
  return prepare(mm_args(like), stream);
}

}  // namespace tandem::gemm
