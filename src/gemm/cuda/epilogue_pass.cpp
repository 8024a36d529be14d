#include <algorithm>

#include "gemm/cuda/epilogue_kernel.hpp"
#include "gemm/cuda/operands.hpp"

namespace tandem::gemm::cuda {
namespace {

bool is_aligned(const void* address, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % static_cast<std::uintptr_t>(bytes) == 0;
}

/// Whether rows of `tensor` are read or written by vectors of so many elements.
bool has_vectors(const SumsEpilogue& epilogue, const RowTensor& tensor, DType dtype, std::int64_t width) {
  bool has = tensor.col_stride == 1 &&
             is_aligned(tensor.data, std::min<std::int64_t>(width * size_bytes(dtype), 16));
  for (int d = 0; d < epilogue.num_row_dims; ++d) has = has && tensor.row_strides[d] % width == 0;
  return has;
}

bool fits_vectors(const EpiloguePass& pass) {
  const SumsEpilogue& epilogue = pass.epilogue;
  const std::int64_t width = epilogue_vector_elements(epilogue.out_dtype);
  return pass.n % width == 0 && pass.sums_stride % width == 0 && is_aligned(pass.sums, 16) &&
         has_vectors(epilogue, epilogue.out, epilogue.out_dtype, width) &&
         (epilogue.addend.data == nullptr || has_vectors(epilogue, epilogue.addend, DType::kF32, width));
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
