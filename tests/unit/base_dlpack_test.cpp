#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tandem/dlpack.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "base/dlpack_abi.hpp"

namespace tandem {
namespace {

/// A tensor of another library: f32 [2, 3], and a deleter that counts.
class Foreign {
 public:
  Foreign() {
    managed.tensor = versioned.tensor = {.data = memory.data(),
                                         .device = {dlpack::kCpu, 0},
                                         .ndim = 2,
                                         .dtype = {dlpack::kFloat, 32, 1},
                                         .shape = shape.data(),
                                         .strides = strides.data(),
                                         .byte_offset = 0};
    managed.context = versioned.context = this;
    managed.deleter = [](dlpack::Managed* self) { ++static_cast<Foreign*>(self->context)->deleted; };
    versioned.deleter = [](dlpack::ManagedVersioned* self) {
      ++static_cast<Foreign*>(self->context)->deleted;
    };
    versioned.major = 1;
    versioned.minor = 3;
  }

  [[nodiscard]] Result<Tensor> take() { return from_dlpack(reinterpret_cast<DLManagedTensor*>(&managed)); }
  [[nodiscard]] Result<Tensor> take_versioned() {
    return from_dlpack(reinterpret_cast<DLManagedTensorVersioned*>(&versioned));
  }

  alignas(8) std::array<float, 16> memory{};
  std::array<std::int64_t, 9> shape = {2, 3};
  std::array<std::int64_t, 9> strides = {3, 1};
  dlpack::Managed managed{};
  dlpack::ManagedVersioned versioned{};
  int deleted = 0;
};

TEST(FromDlpack, KeepsTheMemoryUntilTheLastOwnerIsGone) {
  Foreign foreign;
  std::shared_ptr<void> owner;
  {
    const auto tensor = foreign.take();
    ASSERT_TRUE(tensor) << tensor.error().to_string();
    EXPECT_EQ(tensor->view().data, foreign.memory.data());
    EXPECT_EQ(tensor->sizes(), (Dims{2, 3}));
    EXPECT_EQ(tensor->view().strides, (Dims{3, 1}));
    EXPECT_EQ(tensor->view().device, (DeviceId{DeviceKind::kCpu, 0}));
    EXPECT_FALSE(tensor->view().is_read_only);
    owner = tensor->owner();
  }
  EXPECT_EQ(foreign.deleted, 0);
  owner.reset();
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(FromDlpack, NeedsNoDeleter) {
  Foreign foreign;
  foreign.managed.deleter = nullptr;
  EXPECT_TRUE(foreign.take());
}

TEST(FromDlpack, TakesStridesAndOffsets) {
  Foreign foreign;
  foreign.strides = {1, 2};
  foreign.managed.tensor.byte_offset = 8;
  auto tensor = foreign.take();
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->view().strides, (Dims{1, 2}));
  EXPECT_EQ(tensor->view().data, foreign.memory.data() + 2);

  foreign.managed.tensor.strides = nullptr;
  tensor = foreign.take();
  ASSERT_TRUE(tensor);
  EXPECT_EQ(tensor->view().strides, (Dims{3, 1}));
}

TEST(FromDlpack, TakesScalarsAndEmptyTensors) {
  Foreign foreign;
  foreign.managed.tensor.ndim = 0;
  foreign.managed.tensor.shape = foreign.managed.tensor.strides = nullptr;
  const auto scalar = foreign.take();
  ASSERT_TRUE(scalar);
  EXPECT_EQ(scalar->view().dim(), 0);
  EXPECT_EQ(scalar->view().numel(), 1);

  Foreign empty;
  empty.shape = {2, 0};
  empty.managed.tensor.data = nullptr;
  const auto nothing = empty.take();
  ASSERT_TRUE(nothing);
  EXPECT_EQ(nothing->view().numel(), 0);
}

TEST(FromDlpack, TakesGpusAndPinnedMemory) {
  Foreign foreign;
  foreign.managed.tensor.device = {dlpack::kCuda, 3};
  EXPECT_EQ(foreign.take()->view().device, (DeviceId{DeviceKind::kCuda, 3}));
  foreign.managed.tensor.device = {dlpack::kCudaHost, 1};
  EXPECT_EQ(foreign.take()->view().device, (DeviceId{DeviceKind::kCpu, 0}));
}

TEST(FromDlpack, TakesTheReadOnlyFlag) {
  Foreign foreign;
  EXPECT_FALSE(foreign.take_versioned()->view().is_read_only);
  foreign.versioned.flags = dlpack::kReadOnly | 2;
  EXPECT_TRUE(foreign.take_versioned()->view().is_read_only);
  EXPECT_EQ(foreign.deleted, 2);
}

/// One thing that is wrong with a tensor, and what is said of it.
struct Fault {
  const char* text;
  ErrorCode code;
  std::function<void(Foreign& foreign)> make;
};

std::vector<Fault> faults() {
  const auto tensor_of = [](Foreign& foreign) -> dlpack::Tensor& { return foreign.managed.tensor; };
  return {
      {"code 5, 64 bits and 1 lanes", ErrorCode::kUnsupported,
       [=](Foreign& f) {
         tensor_of(f).dtype = {5, 64, 1};
       }},
      {"code 2, 32 bits and 4 lanes", ErrorCode::kUnsupported,
       [=](Foreign& f) { tensor_of(f).dtype.lanes = 4; }},
      {"device type 7 with index 1", ErrorCode::kUnsupported,
       [=](Foreign& f) {
         tensor_of(f).device = {static_cast<dlpack::DeviceType>(7), 1};
       }},
      {"device type 2 with index -1", ErrorCode::kUnsupported,
       [=](Foreign& f) {
         tensor_of(f).device = {dlpack::kCuda, -1};
       }},
      {"got -1 dimensions", ErrorCode::kInvalidArgument, [=](Foreign& f) { tensor_of(f).ndim = -1; }},
      {"got 2 dimensions and no shape", ErrorCode::kInvalidArgument,
       [=](Foreign& f) { tensor_of(f).shape = nullptr; }},
      {"got 9 dimensions, need at most 8", ErrorCode::kUnsupported,
       [=](Foreign& f) { tensor_of(f).ndim = 9; }},
      {"size -3 in dim 1", ErrorCode::kInvalidArgument, [](Foreign& f) { f.shape[1] = -3; }},
      {"size 1152921504606846976 in dim 1", ErrorCode::kInvalidArgument,
       [](Foreign& f) { f.shape[1] = std::int64_t{1} << 60; }},
      {"stride -1 in dim 1", ErrorCode::kUnsupported, [](Foreign& f) { f.strides[1] = -1; }},
      {"no memory for sizes [2, 3]", ErrorCode::kInvalidArgument,
       [=](Foreign& f) { tensor_of(f).data = nullptr; }},
      {"(byte_offset 2), need a multiple of 4", ErrorCode::kInvalidArgument,
       [=](Foreign& f) { tensor_of(f).byte_offset = 2; }},
  };
}

TEST(FromDlpack, LeavesWhatItRefusesToTheCaller) {
  for (const Fault& fault : faults()) {
    Foreign foreign;
    fault.make(foreign);
    const auto tensor = foreign.take();
    ASSERT_FALSE(tensor) << fault.text;
    EXPECT_EQ(tensor.error().code(), fault.code) << tensor.error().to_string();
    EXPECT_NE(tensor.error().text().find(fault.text), std::string::npos) << tensor.error().to_string();
    EXPECT_EQ(foreign.deleted, 0);
  }
}

TEST(FromDlpack, RefusesOtherVersionsAndNull) {
  Foreign foreign;
  foreign.versioned.major = 2;
  foreign.versioned.tensor.ndim = -5;  // must not be looked at
  const auto tensor = foreign.take_versioned();
  ASSERT_FALSE(tensor);
  EXPECT_EQ(tensor.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(tensor.error().text(), "from_dlpack: got version 2.3, need version 1");
  EXPECT_EQ(foreign.deleted, 0);
  EXPECT_EQ(from_dlpack(static_cast<DLManagedTensor*>(nullptr)).error().code(), ErrorCode::kInvalidArgument);
}

TEST(ToDlpack, SharesTheMemoryAndItsOwner) {
  Tensor tensor = Tensor::host({2, 4}, DType::kBF16);
  const std::weak_ptr<void> owner = tensor.owner();
  auto managed = to_dlpack(tensor.view().narrow(1, 1, 3), tensor.owner());
  ASSERT_TRUE(managed);
  void* const second = tensor.view().data_as<std::uint16_t>() + 1;
  tensor = {};
  EXPECT_FALSE(owner.expired());
  const auto& other = reinterpret_cast<const dlpack::Managed*>(managed->get())->tensor;
  EXPECT_EQ(static_cast<std::byte*>(other.data) + other.byte_offset, second);
  EXPECT_EQ(other.device.type, dlpack::kCpu);
  EXPECT_EQ(other.device.id, 0);
  ASSERT_EQ(other.ndim, 2);
  EXPECT_EQ(std::pair(other.shape[0], other.shape[1]), std::pair(std::int64_t{2}, std::int64_t{3}));
  EXPECT_EQ(std::pair(other.strides[0], other.strides[1]), std::pair(std::int64_t{4}, std::int64_t{1}));
  EXPECT_EQ(std::tuple(other.dtype.code, other.dtype.bits, other.dtype.lanes),
            std::tuple(dlpack::kBfloat, 16, 1));
  managed->reset();
  EXPECT_TRUE(owner.expired());
}

TEST(ToDlpack, ComesBackWithEveryType) {
  for (int type = 0; type < kNumDTypes; ++type) {
    const Tensor tensor = Tensor::host({3, 2}, static_cast<DType>(type));
    auto managed = to_dlpack(tensor);
    ASSERT_TRUE(managed);
    const auto back = from_dlpack(managed->get());
    ASSERT_TRUE(back) << back.error().to_string();
    managed->release();
    EXPECT_EQ(to_string(back->view()), to_string(tensor.view()));
    EXPECT_EQ(back->view().data, tensor.view().data);
  }
}

TEST(ToDlpack, SaysThatMemoryIsReadOnly) {
  const float value = 1.0F;
  const TensorView view = TensorView::read_only(&value, {}, DType::kF32, {DeviceKind::kCuda, 2});
  const auto unmarked = to_dlpack(view, nullptr);
  ASSERT_FALSE(unmarked);
  EXPECT_EQ(unmarked.error().code(), ErrorCode::kUnsupported);
  auto managed = to_dlpack_versioned(view, nullptr);
  ASSERT_TRUE(managed);
  const auto& other = *reinterpret_cast<const dlpack::ManagedVersioned*>(managed->get());
  EXPECT_EQ(std::pair(other.major, other.minor), std::pair(1U, 1U));
  EXPECT_EQ(other.flags, dlpack::kReadOnly);
  EXPECT_EQ(other.tensor.ndim, 0);
  EXPECT_EQ(other.tensor.device.type, dlpack::kCuda);
  EXPECT_EQ(other.tensor.device.id, 2);
  const auto back = from_dlpack(managed->get());
  ASSERT_TRUE(back);
  managed->release();
  EXPECT_TRUE(back->view().is_read_only);

  const Tensor writable = Tensor::host({1}, DType::kI64);
  managed = to_dlpack_versioned(writable);
  ASSERT_TRUE(managed);
  EXPECT_EQ(reinterpret_cast<const dlpack::ManagedVersioned*>(managed->get())->flags, 0U);
}

}  // namespace
}  // namespace tandem
