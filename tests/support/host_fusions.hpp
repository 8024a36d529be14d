#pragma once

#include <tandem/program/host/fusion.hpp>
#include <vector>

namespace tandem::testing {

/// A fusion and the tensors of its statement.
struct StatedFusion {
  program::host::Fusion fusion;
  program::host::SymbolicTensor* a = nullptr;
  program::host::SymbolicTensor* b = nullptr;
  program::host::SymbolicTensor* bias = nullptr;
  program::host::SymbolicTensor* partial = nullptr;
  program::host::SymbolicTensor* out = nullptr;
};

inline void finish(StatedFusion& stated, int num_devices) {
  stated.fusion.add_input(stated.a);
  stated.fusion.add_input(stated.b);
  if (stated.bias != nullptr) stated.fusion.add_input(stated.bias);
  stated.fusion.add_output(stated.out);
  const auto mesh = program::host::DeviceMesh::create_for_num_devices(num_devices);
  for (auto* tensor : {stated.a, stated.b, stated.bias, stated.partial, stated.out}) {
    if (tensor != nullptr) tensor->set_device_mesh(mesh);
  }
  stated.a->axis(1).parallelize(program::host::ParallelType::kDIDx);
}

/// a [S, DIDx(D), m, K] * b [K, N].
inline StatedFusion stated_matmul(int num_devices, DType dtype = DType::kF32) {
  StatedFusion stated;
  stated.a = stated.fusion.make_contig_tensor(4, dtype);
  stated.b = stated.fusion.make_contig_tensor(2, dtype);
  stated.out = stated.fusion.matmul(stated.a, stated.b);
  finish(stated, num_devices);
  return stated;
}

/// a [S, DIDx(D), m, K] * weight [N, K] transposed + bias [N].
inline StatedFusion stated_linear(int num_devices, DType dtype = DType::kF32, bool with_bias = true) {
  StatedFusion stated;
  stated.a = stated.fusion.make_contig_tensor(4, dtype);
  stated.b = stated.fusion.make_contig_tensor(2, dtype);
  if (with_bias) stated.bias = stated.fusion.make_contig_tensor(1, dtype);
  stated.out = stated.fusion.linear(stated.a, stated.b, stated.bias);
  finish(stated, num_devices);
  return stated;
}

/// The sum over the mesh of a [S, DIDx(D), D, m, k] * b [DIDx(D), 1, k, N], scattered over axis 2.
inline StatedFusion stated_scatter(int num_devices, DType dtype = DType::kF32) {
  using program::host::ParallelType;
  StatedFusion stated;
  stated.a = stated.fusion.make_contig_tensor(5, dtype);
  stated.b = stated.fusion.make_contig_concrete_tensor({-1, 1, -1, -1}, dtype);
  stated.partial = stated.fusion.matmul(stated.a, stated.b);
  stated.out = stated.fusion.sum(stated.partial, {1});
  finish(stated, num_devices);
  stated.b->axis(0).parallelize(ParallelType::kDIDx);
  stated.partial->axis(1).parallelize(ParallelType::kDIDx);
  stated.out->axis(2).parallelize(ParallelType::kDIDx);
  return stated;
}

}  // namespace tandem::testing
