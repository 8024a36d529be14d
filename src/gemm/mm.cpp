#include <tandem/gemm/mm.hpp>
#include <tandem/gemm/packed_b.hpp>

#include "base/format.hpp"
#include "base/overlap.hpp"
#include "base/try.hpp"
#include "gemm/backend.hpp"
#include "gemm/operand_checks.hpp"

namespace tandem::gemm {
namespace {

ProductArgs product_args(const MmArgs& args) {
  return {.a = &args.a,
          .b = &args.b,
          .out = &args.out,
          .bias = args.bias ? &*args.bias : nullptr,
          .addend = args.addend ? &*args.addend : nullptr,
          .accumulate = args.accumulate,
          .heuristic = args.heuristic};
}

Problem problem_of(const Product& product) {
  return {.m = product.m,
          .n = product.n,
          .k = product.k,
          .in = product.a,
          .out = product.out,
          .bias = product.epilogue.bias.has_value(),
          .accumulate = product.epilogue.accumulate,
          .addend = product.epilogue.addend.has_value(),
          .heuristic = product.heuristic};
}

}  // namespace

std::string to_string(const Problem& problem) {
  return to_string(product_of(problem));
}

Product product_of(const Problem& problem) {
  return {.m = problem.m,
          .n = problem.n,
          .k = problem.k,
          .a = problem.in,
          .b = problem.in,
          .out = problem.out,
          .epilogue = {.accumulate = problem.accumulate,
                       .addend = problem.addend ? std::optional(problem.out) : std::nullopt,
                       .bias = problem.bias ? std::optional(problem.out) : std::nullopt},
          .heuristic = problem.heuristic};
}

Result<Product> mm_product(const ProductArgs& args) {
  TANDEM_TRY(check_matrices("mm", args));
  TANDEM_TRY(check_writable("mm", {"out", -1, args.out}));
  TANDEM_TRY(check_heuristic("mm", args.heuristic));
  return product_of(args);
}

Result<Problem> problem_of(const MmArgs& args) {
  TANDEM_ASSIGN(const Product product, mm_product(product_args(args)));
  return problem_of(product);
}

Support can_run(const Problem& problem, const Device& device) {
  return can_run(product_of(problem), device);
}

Result<Plan> plan(const Problem& problem, const Device& device) {
  return plan_of(problem, device);
}

Result<void> run(const Plan& plan, const MmArgs& args, Stream& stream) {
  return run_planned(kMm, plan, product_args(args), stream);
}

Result<void> prepare(const MmArgs& like, Stream& stream) {
  return prepare(kMm, product_args(like), stream);
}

Result<void> mm(const MmArgs& args, Stream& stream) {
  return run(kMm, product_args(args), stream);
}

Result<void> mm(const MmArgs& args, const PackedB& b, Stream& stream) {
  if (args.b.data != nullptr || args.b.dim() != 0)
    return fail(ErrorCode::kInvalidArgument, "mm: got b twice, packed and as a tensor: leave out args.b");
  ProductArgs operands = product_args(args);
  operands.b = &b.packed().like();
  operands.packed_b = &b.packed();
  return run(kMm, operands, stream);
}

}  // namespace tandem::gemm
