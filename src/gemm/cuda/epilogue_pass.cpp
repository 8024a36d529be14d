#include "gemm/cuda/epilogue_kernel.hpp"
#include "gemm/cuda/operands.hpp"

namespace tandem::gemm::cuda {
namespace {

bool fits_vectors(const EpiloguePass& pass) {
  const SumsEpilogue& epilogue = pass.epilogue;
  const std::int64_t width = epilogue_vector_elements(epilogue.out_dtype);
  return pass.n % width == 0 && pass.sums_stride % width == 0 && is_aligned(pass.sums, 16) &&
         has_vectors(epilogue.out, epilogue.num_row_dims, epilogue.out_dtype, width) &&
         (epilogue.addend.data == nullptr ||
          has_vectors(epilogue.addend, epilogue.num_row_dims, epilogue.addend_dtype, width));
}

}  // namespace

EpiloguePass epilogue_pass_of(const Product& product, const ProductArgs& args, const Operand& out) {
  EpiloguePass pass{.m = product.m,
                    .n = product.n,
                    .sums = static_cast<const float*>(out.taken.data),
                    .sums_stride = out.leading,
                    .epilogue = sums_epilogue_of(product, args)};
  merge_rows(pass.epilogue, {});
  pass.by_vectors = fits_vectors(pass);
  return pass;
}

}  // namespace tandem::gemm::cuda
