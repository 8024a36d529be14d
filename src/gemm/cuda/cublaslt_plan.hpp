#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <tandem/base/error.hpp>

#include "gemm/cuda/cublaslt_api.hpp"
#include "gemm/product.hpp"

namespace tandem::gemm::cuda {

/// Everything that cuBLASLt's choice of an algorithm depends on. Units: strides in elements, alignments in
/// bytes.
struct LtProblem {
  /// The library's share: its scales, the type that it makes, no bias and no result scale. What accumulates
  /// has out as its addend.
  Product product;
  struct Matrix {
    bool is_column_major = false;
    std::int64_t leading = 0;
    int alignment = 0;
    friend bool operator==(const Matrix&, const Matrix&) = default;
  };
  Matrix a;
  Matrix b;
  Matrix out;     ///< row-major
  Matrix addend;  ///< the same; out's where nothing else is added
  friend bool operator==(const LtProblem&, const LtProblem&) = default;
};
struct HashLtProblem {
  std::size_t operator()(const LtProblem& problem) const;
};

/// Most scratch memory that an algorithm may ask for.
inline constexpr std::size_t kMaxWorkspaceBytes = std::size_t{32} << 20;

/// What one launch works on.
struct LtPointers {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* addend = nullptr;  ///< may be out; read by products with an addend only
  void* out = nullptr;
  const void* a_scale = nullptr;
  const void* b_scale = nullptr;
  void* workspace = nullptr;  ///< of LtPlan::workspace_bytes()
};

/// One of cuBLASLt's choices for one problem, ready to be launched. The library knows column-major matrices
/// only, so it is asked for the transposed product: out^T = b^T a^T. Its A is our b, and A's scale that of b.
class LtPlan {
 public:
  [[nodiscard]] static Result<std::unique_ptr<LtPlan>> make(const CublasLtApi& api, cublasLtHandle_t handle,
                                                            const LtProblem& problem);

  /// Whether cuBLASLt can do it at all.
  [[nodiscard]] bool has_algorithm() const { return has_algorithm_; }
  [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_bytes_; }
  [[nodiscard]] Result<void> launch(const LtPointers& pointers, cudaStream_t stream) const;
  /// Calls `load` the first time, so that the kernel is loaded once.
  template <class Load>
  [[nodiscard]] Result<void> load_once(Load load) {
    const std::lock_guard lock(load_mutex_);
    if (is_loaded_) return {};
    auto loaded = load();
    is_loaded_ = loaded.has_value();
    return loaded;
  }

 private:
  template <class Opaque>
  using Owned = std::unique_ptr<Opaque, cublasStatus_t (*)(Opaque*)>;
  using Layout = Owned<cublasLtMatrixLayoutOpaque_t>;

  LtPlan(const CublasLtApi& api, cublasLtHandle_t handle, const LtProblem& problem);
  Result<void> describe();
  Result<void> choose();
  Result<void> point_to_scales(cublasLtMatmulDesc_t desc, const LtPointers& pointers) const;
  Result<Layout> layout_of(DType dtype, const LtProblem::Matrix& matrix, std::int64_t rows,
                           std::int64_t cols) const;

  const CublasLtApi& api_;
  cublasLtHandle_t handle_;
  LtProblem problem_;
  Owned<cublasLtMatmulDescOpaque_t> desc_;
  Layout a_;
  Layout b_;
  Layout out_;
  Layout addend_;
  cublasLtMatmulAlgo_t algorithm_ = {};
  bool has_algorithm_ = false;
  std::int64_t workspace_bytes_ = 0;
  std::mutex load_mutex_;
  bool is_loaded_ = false;
};

}  // namespace tandem::gemm::cuda
