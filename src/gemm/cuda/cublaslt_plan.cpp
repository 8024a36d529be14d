#include "gemm/cuda/cublaslt_plan.hpp"

#include <array>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem::gemm::cuda {
namespace {

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kF8E4M3:
      return CUDA_R_8F_E4M3;
    case DType::kF8E5M2:
      return CUDA_R_8F_E5M2;
    default:
      return CUDA_R_32F;
  }
}

cublasLtMatmulMatrixScale_t mode_of(Scale scale) {
  switch (scale) {
    case Scale::kRow:
    case Scale::kColumn:
      return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case Scale::kVector128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case Scale::kBlock128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    default:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
  }
}

}  // namespace

std::size_t HashLtProblem::operator()(const LtProblem& problem) const {
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto add = [&hash](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3U;
    hash ^= hash >> 29;
  };
  const Product& mm = problem.product;
  for (const std::int64_t value : {mm.m, mm.n, mm.k}) add(value);
  add(static_cast<int>(mm.a) | static_cast<int>(mm.b) << 4 | static_cast<int>(mm.out) << 8 |
      static_cast<int>(mm.a_scale) << 12 | static_cast<int>(mm.b_scale) << 16 |
      (mm.epilogue.addend ? 1 : 0) << 20 | (mm.fast_accum ? 1 : 0) << 21 | mm.heuristic << 22);
  for (const LtProblem::Matrix* matrix : {&problem.a, &problem.b, &problem.out, &problem.addend}) {
    add(matrix->leading);
    add(matrix->alignment | (matrix->is_column_major ? 1 : 0) << 16);
  }
  return hash;
}

LtPlan::LtPlan(const CublasLtApi& api, cublasLtHandle_t handle, const LtProblem& problem)
    : api_(api),
      handle_(handle),
      problem_(problem),
      desc_(nullptr, api.desc_destroy),
      a_(nullptr, api.layout_destroy),
      b_(nullptr, api.layout_destroy),
      out_(nullptr, api.layout_destroy),
      addend_(nullptr, api.layout_destroy) {}

Result<std::unique_ptr<LtPlan>> LtPlan::make(const CublasLtApi& api, cublasLtHandle_t handle,
                                             const LtProblem& problem) {
  std::unique_ptr<LtPlan> plan(new LtPlan(api, handle, problem));
  TANDEM_TRY(plan->describe());
  TANDEM_TRY(plan->choose());
  return plan;
}

// A row-major matrix [rows, cols] is, column by column, its transpose.
Result<LtPlan::Layout> LtPlan::layout_of(DType dtype, const LtProblem::Matrix& matrix, std::int64_t rows,
                                         std::int64_t cols) const {
  cublasLtMatrixLayout_t layout = nullptr;
  const auto height = static_cast<std::uint64_t>(matrix.is_column_major ? rows : cols);
  const auto width = static_cast<std::uint64_t>(matrix.is_column_major ? cols : rows);
  TANDEM_TRY(
      api_.check("layout", api_.layout_create(&layout, type_of(dtype), height, width, matrix.leading)));
  return Layout(layout, api_.layout_destroy);
}

Result<void> LtPlan::describe() {
  const Product& mm = problem_.product;
  TANDEM_ASSIGN(a_, layout_of(mm.a, problem_.a, mm.m, mm.k));
  TANDEM_ASSIGN(b_, layout_of(mm.b, problem_.b, mm.k, mm.n));
  TANDEM_ASSIGN(out_, layout_of(mm.out, problem_.out, mm.m, mm.n));
  TANDEM_ASSIGN(addend_, layout_of(mm.out, problem_.addend, mm.m, mm.n));

  cublasLtMatmulDesc_t desc = nullptr;
  // Full f32 for f32 operands, and f32 sums for all: never TF32.
  TANDEM_TRY(api_.check("descriptor", api_.desc_create(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F)));
  desc_.reset(desc);
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
    return api_.check("descriptor", api_.desc_set(desc, attribute, &value, sizeof(value)));
  };
  const auto turned = [](const LtProblem::Matrix& matrix) {
    return matrix.is_column_major ? CUBLAS_OP_T : CUBLAS_OP_N;
  };
  TANDEM_TRY(set(CUBLASLT_MATMUL_DESC_TRANSA, turned(problem_.b)));
  TANDEM_TRY(set(CUBLASLT_MATMUL_DESC_TRANSB, turned(problem_.a)));
  if (mm.fast_accum) TANDEM_TRY(set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1}));
  TANDEM_TRY(set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, static_cast<std::int32_t>(mode_of(mm.b_scale))));
  TANDEM_TRY(set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, static_cast<std::int32_t>(mode_of(mm.a_scale))));
  // The choice of an algorithm asks whether there are scales, not where.
  return point_to_scales(desc, {.a_scale = handle_, .b_scale = handle_});
}

Result<void> LtPlan::point_to_scales(cublasLtMatmulDesc_t desc, const LtPointers& pointers) const {
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const void* scale) {
    return api_.check("descriptor", api_.desc_set(desc, attribute, &scale, sizeof(scale)));
  };
  const Product& mm = problem_.product;
  if (mm.b_scale != Scale::kNone) TANDEM_TRY(set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, pointers.b_scale));
  if (mm.a_scale != Scale::kNone) TANDEM_TRY(set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, pointers.a_scale));
  return {};
}

Result<void> LtPlan::choose() {
  cublasLtMatmulPreference_t created = nullptr;
  TANDEM_TRY(api_.check("preference", api_.preference_create(&created)));
  const Owned<cublasLtMatmulPreferenceOpaque_t> preference(created, api_.preference_destroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    return api_.check("preference", api_.preference_set(created, attribute, &value, sizeof(value)));
  };
  const auto alignment = [](const LtProblem::Matrix& matrix) {
    return static_cast<std::uint32_t>(matrix.alignment);
  };
  TANDEM_TRY(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspaceBytes));
  // Parts of a sum over k stay f32 until they are added: one rounding.
  TANDEM_TRY(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                 static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
  TANDEM_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(problem_.b)));
  TANDEM_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(problem_.a)));
  TANDEM_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(problem_.addend)));
  TANDEM_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(problem_.out)));

  std::array<cublasLtMatmulHeuristicResult_t, kMostHeuristics> all = {};
  const int wanted = problem_.product.heuristic + 1;
  int num_found = 0;
  const cublasStatus_t status = api_.get_heuristic(handle_, desc_.get(), b_.get(), a_.get(), addend_.get(),
                                                   out_.get(), created, wanted, all.data(), &num_found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) TANDEM_TRY(api_.check("heuristic", status));
  const cublasLtMatmulHeuristicResult_t& found = all[static_cast<std::size_t>(wanted - 1)];
  has_algorithm_ =
      status == CUBLAS_STATUS_SUCCESS && num_found == wanted && found.state == CUBLAS_STATUS_SUCCESS;
  if (!has_algorithm_) return {};
  algorithm_ = found.algo;
  workspace_bytes_ = static_cast<std::int64_t>(found.workspaceSize);
  return {};
}

Result<void> LtPlan::launch(const LtPointers& pointers, cudaStream_t stream) const {
  const float one = 1.0F;
  const float of_addend = problem_.product.epilogue.addend ? 1.0F : 0.0F;
  // Threads may launch one plan at once, so the scales are those of a copy.
  cublasLtMatmulDescOpaque_t desc = *desc_;
  TANDEM_TRY(point_to_scales(&desc, pointers));
  return api_.check("matmul",
                    api_.matmul(handle_, &desc, &one, pointers.b, b_.get(), pointers.a, a_.get(), &of_addend,
                                pointers.addend, addend_.get(), pointers.out, out_.get(), &algorithm_,
                                pointers.workspace, static_cast<std::size_t>(workspace_bytes_), stream));
}

}  // namespace tandem::gemm::cuda
