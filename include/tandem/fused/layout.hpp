#pragma once

#include <span>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>
#include <tandem/device/device.hpp>
#include <tandem/device/stream.hpp>
#include <tandem/fused/report.hpp>

namespace tandem {

/// A tensor in another memory order.
struct Restrided {
  TensorView view;
  Tensor storage;  ///< what `view` is in; empty when nothing was copied
};
/// Returns a tensor with the values of `t` whose permutation by `perm` is contiguous. That is `t` itself when
/// it already fits. Otherwise it is new storage, filled by one copy on `stream`.
/// Errors:  kInvalidArgument if `perm` does not name each dim of `t` once; kOutOfMemory.
[[nodiscard]] Result<Restrided> make_contiguous_for_perm(const TensorView& t, std::span<const int> perm,
                                                         Stream& stream);

/// Brings `a` into the order that fused_all_gather_matmul() takes without a copy: gather_dim outermost, the
/// other dims in order.
/// Errors:  kInvalidArgument for a dim that does not exist; kOutOfMemory.
[[nodiscard]] Result<Restrided> restride_for_all_gather_matmul(const TensorView& a, int gather_dim,
                                                               Stream& stream);
/// The same for fused_matmul_reduce_scatter().
[[nodiscard]] Result<Restrided> restride_for_matmul_reduce_scatter(const TensorView& a, int scatter_dim,
                                                                   Stream& stream);

/// Allocates a zeroed tensor of `device` with these sizes and strides.
/// Errors:  kInvalidArgument for sizes or strides that are negative, not as many as each other, or reach over
///          more than 2^62 bytes; kOutOfMemory.
[[nodiscard]] Result<Tensor> make_tensor(const Layout& layout, DType dtype, Device& device);

}  // namespace tandem
