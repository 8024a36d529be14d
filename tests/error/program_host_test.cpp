#include <gtest/gtest.h>

#include <string>
#include <tandem/program/host/lower.hpp>

#include "support/host_fusions.hpp"

namespace tandem::program::host {
namespace {

using testing::stated_linear;
using testing::stated_matmul;
using testing::stated_scatter;
using testing::StatedFusion;

constexpr auto kDIDx = ParallelType::kDIDx;
constexpr auto kStream = ParallelType::kStream;

/// Code and text that lower() refuses with.
void expect_refused(const Fusion& fusion, ErrorCode code, const std::string& text,
                    const LowerOptions& options = {}) {
  const auto program = lower(fusion, options);
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code(), code) << program.error().text();
  EXPECT_NE(program.error().text().find(text), std::string::npos) << program.error().text();
}

/// The rule does not apply: can_lower() says so too.
void expect_not_lowered(const Fusion& fusion, const std::string& reason) {
  EXPECT_NE(can_lower(fusion).why_not.find(reason), std::string::npos) << can_lower(fusion).why_not;
  expect_refused(fusion, ErrorCode::kUnsupported, reason);
}

TEST(LoweringRule, AppliesToWhatItIsFor) {
  EXPECT_TRUE(can_lower(stated_matmul(1).fusion));
  EXPECT_TRUE(can_lower(stated_matmul(8).fusion));
  EXPECT_TRUE(can_lower(stated_linear(2).fusion));
  EXPECT_TRUE(can_lower(stated_linear(2, DType::kF32, false).fusion));
  EXPECT_TRUE(can_lower(stated_scatter(4).fusion));
}

TEST(LoweringRule, NeedsASharded) {
  StatedFusion stated = stated_matmul(2);
  stated.a->axis(1).parallelize(ParallelType::kSerial);
  expect_not_lowered(stated.fusion, "need axis 1 of a sharded (DIDx); got T0_g_float[iS0{i0}, iS1{i1}");
}

TEST(LoweringRule, NeedsAShardedOnAxis1) {
  StatedFusion stated = stated_matmul(2);
  stated.a->axis(1).parallelize(ParallelType::kSerial);
  stated.a->axis(2).parallelize(kDIDx);
  expect_not_lowered(stated.fusion, "need axis 1 of a sharded (DIDx)");
  stated.a->axis(1).parallelize(kDIDx);
  expect_not_lowered(stated.fusion, "need no other axis of a parallel");
}

TEST(LoweringRule, NeedsASerialLoopAxis) {
  StatedFusion stated = stated_matmul(2);
  stated.a->axis(0).parallelize(kStream);
  expect_not_lowered(stated.fusion,
                     "need axis 0 of a Serial: it is the host's loop; got T0_g_float[iStream0{i0}");
}

TEST(LoweringRule, RefusesShardsOfB) {
  StatedFusion stated = stated_matmul(2);
  stated.b->axis(1).parallelize(kDIDx);
  expect_not_lowered(stated.fusion, "need b not sharded; got T1_g_float[iS4{i4}, ideviceIdx.x5{i5}]");
}

TEST(LoweringRule, RefusesShardsOfBias) {
  StatedFusion stated = stated_linear(2);
  stated.bias->axis(0).parallelize(kDIDx);
  expect_not_lowered(stated.fusion, "need bias not sharded");
}

TEST(LoweringRule, RefusesShardsOfTheOutput) {
  StatedFusion stated = stated_matmul(2);
  stated.out->axis(1).parallelize(kDIDx);
  expect_not_lowered(stated.fusion, "need the output not sharded");
}

TEST(LoweringRule, NeedsTheStreamsOnAxis0OfTheOutput) {
  StatedFusion stated = stated_matmul(2);
  stated.out->axis(1).parallelize(kStream);
  expect_not_lowered(stated.fusion, "need no other axis of the output parallel");
}

TEST(LoweringRule, NeedsFourAxes) {
  Fusion fusion;
  SymbolicTensor* const a = fusion.make_contig_tensor(3);
  SymbolicTensor* const b = fusion.make_contig_tensor(2);
  SymbolicTensor* const out = fusion.matmul(a, b);
  fusion.add_input(a);
  fusion.add_input(b);
  fusion.add_output(out);
  for (SymbolicTensor* tensor : {a, b, out}) tensor->set_device_mesh(DeviceMesh::create_for_num_devices(2));
  a->axis(1).parallelize(kDIDx);
  expect_not_lowered(fusion, "need a of 4 axes [S, D, m, K]");
}

TEST(LoweringRule, NeedsAProduct) {
  Fusion fusion;
  expect_not_lowered(fusion, "need a matmul, a linear, or a matmul and its sum; got no op");
  SymbolicTensor* const a = fusion.make_contig_tensor(4);
  fusion.sum(a, {1});
  expect_not_lowered(fusion, "got sum");
}

TEST(LoweringRule, NeedsTheSumOverTheMesh) {
  StatedFusion stated = stated_scatter(2);
  stated.partial->axis(1).parallelize(ParallelType::kSerial);
  expect_not_lowered(stated.fusion,
                     "need the product with axis 0 Stream or Serial and axis 1 sharded (DIDx)");
  stated.partial->axis(1).parallelize(kDIDx);
  stated.out->axis(2).parallelize(ParallelType::kSerial);
  expect_not_lowered(stated.fusion, "need axis 2 of the output alone sharded (DIDx)");
  stated.out->axis(2).parallelize(kDIDx);
  stated.b->axis(0).parallelize(ParallelType::kSerial);
  expect_not_lowered(stated.fusion, "need axis 0 of b alone sharded (DIDx)");
}

TEST(WrongFusion, HasNoMesh) {
  StatedFusion stated = stated_matmul(2);
  stated.a->set_device_mesh({});
  expect_refused(stated.fusion, ErrorCode::kInvalidArgument, "a has no device mesh: T0_g_float[");
  EXPECT_FALSE(can_lower(stated.fusion));
  expect_refused(stated_matmul(0).fusion, ErrorCode::kInvalidArgument, "a has no device mesh");
}

TEST(WrongFusion, HasTwoMeshes) {
  StatedFusion stated = stated_matmul(2);
  stated.b->set_device_mesh(DeviceMesh::create_for_num_devices(4));
  expect_refused(
      stated.fusion, ErrorCode::kInvalidArgument,
      "got T1_g_float[iS4{i4}, iS5{i5}] (DeviceMesh{0 1 2 3}), need the mesh of a, DeviceMesh{0 1}");
}

TEST(WrongFusion, HasADeviceTwice) {
  StatedFusion stated = stated_matmul(2);
  stated.a->set_device_mesh(DeviceMesh({0, 0}));
  expect_refused(stated.fusion, ErrorCode::kInvalidArgument, "got DeviceMesh{0 0}, need different devices");
}

TEST(WrongFusion, HasNoOutput) {
  Fusion fusion;
  SymbolicTensor* const a = fusion.make_contig_tensor(4);
  SymbolicTensor* const b = fusion.make_contig_tensor(2);
  fusion.matmul(a, b);
  expect_refused(fusion, ErrorCode::kInvalidArgument, "got 0 outputs, need one: T2_g_float[");
}

TEST(WrongFusion, HasAnOperandThatIsNoInput) {
  Fusion fusion;
  SymbolicTensor* const a = fusion.make_contig_tensor(4);
  SymbolicTensor* const b = fusion.make_contig_tensor(2);
  fusion.add_output(fusion.matmul(a, b));
  fusion.add_input(a);
  expect_refused(fusion, ErrorCode::kInvalidArgument,
                 "T1_g_float[iS4{i4}, iS5{i5}] is an operand, but no input");
}

TEST(WrongFusion, HasShapesThatDoNotFit) {
  Fusion fusion;
  SymbolicTensor* const a = fusion.make_contig_tensor(4);
  fusion.matmul(a, fusion.make_contig_tensor(1));
  expect_refused(fusion, ErrorCode::kInvalidArgument,
                 "matmul: got T0_g_float[iS0{i0}, iS1{i1}, iS2{i2}, iS3{i3}] and T1_g_float[iS4{i4}]");
  Fusion other;
  other.linear(other.make_contig_tensor(4), other.make_contig_tensor(2), other.make_contig_tensor(2));
  expect_refused(other, ErrorCode::kInvalidArgument, "need a [..., k], weight [n, k] and bias [n]");
  Fusion types;
  types.matmul(types.make_contig_tensor(4), types.make_contig_tensor(2, DType::kBF16));
  expect_refused(types, ErrorCode::kInvalidArgument, "need the same type");
  Fusion axes;
  axes.sum(axes.make_contig_tensor(3), {3});
  expect_refused(axes, ErrorCode::kInvalidArgument, "got axes [3] of T0_g_float[");
  Fusion none;
  none.make_contig_tensor(0);
  expect_refused(none, ErrorCode::kInvalidArgument, "got 0 axes, need at least 1");
}

TEST(WrongFusion, UsesTensorsOfAnother) {
  Fusion fusion;
  Fusion other;
  fusion.matmul(other.make_contig_tensor(4), fusion.make_contig_tensor(2));
  expect_refused(fusion, ErrorCode::kInvalidArgument, "an operand is null or another fusion's");
  Fusion third;
  third.add_input(nullptr);
  expect_refused(third, ErrorCode::kInvalidArgument, "add_input: the tensor is null or another fusion's");
}

TEST(WrongOptions, AreRefused) {
  expect_refused(stated_matmul(2).fusion, ErrorCode::kInvalidArgument, "offset_by_rank needs point_to_point",
                 {.offset_by_rank = true});
  expect_refused(stated_scatter(2).fusion, ErrorCode::kUnsupported, "point_to_point is of gathers",
                 {.point_to_point = true});
}

}  // namespace
}  // namespace tandem::program::host
