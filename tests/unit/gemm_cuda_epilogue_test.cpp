// The pass over f32 sums has the bits of the plain kernel, which does the same at the end of its own sums: by
// vectors and by single elements, every type, N-D rows. On a GPU, also a simulated one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <tandem/backend/backend.hpp>
#include <tandem/base/convert.hpp>
#include <vector>

#include "device/cuda/cuda_stream.hpp"
#include "gemm/cuda/epilogue_kernel.hpp"
#include "gemm/cuda/operands.hpp"
#include "gemm/cuda/reference.hpp"
#include "gemm/operand_checks.hpp"
#include "support/test_devices.hpp"

namespace tandem::gemm::cuda {
namespace {

class GemmCudaEpilogue : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::num_test_gpus() == 0) GTEST_SKIP() << "needs a GPU, this machine has none";
    device_ = open_device({DeviceKind::kCuda, 0}, Config{}).value();
    stream_ = device_->create_stream().value();
  }

  /// Numbers between -2 and 2, other ones for each tensor.
  TensorView add(const Dims& sizes, DType dtype) {
    Tensor host = Tensor::host(sizes, DType::kF32);
    for (std::int64_t i = 0; i < host.view().numel(); ++i) {
      const auto number = static_cast<std::int64_t>(7 * i + 13 * static_cast<std::int64_t>(tensors_.size()));
      host.view().data_as<float>()[i] = static_cast<float>(number % 41 - 20) / 10.0F;
    }
    Tensor narrow = Tensor::host(sizes, dtype);
    EXPECT_TRUE(convert(host.view(), narrow.view()));
    const TensorView view = empty(sizes, dtype);
    EXPECT_TRUE(device_->copy_from_host(narrow.view().data, view));
    return view;
  }
  TensorView empty(const Dims& sizes, DType dtype) {
    return tensors_.emplace_back(device_->allocate_tensor(sizes, dtype).value()).view();
  }
  std::vector<std::byte> bytes_of(const TensorView& view) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(view.size_bytes()));
    EXPECT_TRUE(device_->copy_to_host(view, bytes.data()));
    return bytes;
  }

  void run_reference(const ProductArgs& args) {
    ASSERT_TRUE(Reference().run(product_of(args), args, *stream_));
    ASSERT_TRUE(stream_->synchronize());
  }

  void check(const Dims& rows, std::int64_t n, DType out_dtype, unsigned parts) {
    SCOPED_TRACE(fmt::format("{} x {} -> {}, parts {:05b}", to_string(rows), n, to_string(out_dtype), parts));
    tensors_.clear();
    constexpr std::int64_t kK = 24;
    const auto wide = [&](std::int64_t last) {
      Dims sizes = rows;
      sizes.push_back(last);
      return sizes;
    };
    const TensorView a = add(wide(kK), DType::kF8E4M3);
    const TensorView b = add({kK, n}, DType::kF8E5M2);
    const TensorView a_scale = add(wide(1), DType::kF32);
    const TensorView b_scale = add({1, n}, DType::kF32);
    const TensorView bias = add({n}, DType::kF16);
    const TensorView result_scale = add({1}, DType::kF32);
    const TensorView addend = add(wide(n), DType::kF32);
    const TensorView out = empty(wide(n), out_dtype);
    const TensorView sums = empty(wide(n), DType::kF32);
    const auto part = [&](unsigned bit, const TensorView& view) {
      return (parts >> bit & 1U) != 0 ? &view : nullptr;
    };
    const ProductArgs args{.a = &a,
                           .b = &b,
                           .out = &out,
                           .bias = part(0, bias),
                           .a_scale = part(1, a_scale),
                           .b_scale = part(2, b_scale),
                           .result_scale = part(3, result_scale),
                           .addend = part(4, addend)};
    run_reference(args);
    const std::vector<std::byte> want = bytes_of(out);

    run_reference({.a = &a, .b = &b, .out = &sums});
    Operand made;
    made.taken = sums;
    made.leading = n;
    const EpiloguePass pass = epilogue_pass_of(product_of(args), args, made);
    EXPECT_EQ(pass.by_vectors, n % epilogue_vector_elements(out_dtype) == 0);
    auto* const on = tandem::cuda::cuda_stream(*stream_, "test").value();
    ASSERT_TRUE(on->enqueue("test", tandem::cuda::Waits::kForNobody,
                            [&](cudaStream_t native) { return launch_epilogue(pass, native); }));
    ASSERT_TRUE(stream_->synchronize());
    EXPECT_EQ(bytes_of(out), want);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::deque<Tensor> tensors_;
};

TEST_F(GemmCudaEpilogue, HasTheBitsOfThePlainKernel) {
  for (const DType out : {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E4M3, DType::kF8E5M2}) {
    for (unsigned parts = 0; parts < 32; ++parts) check({21}, parts % 2 == 0 ? 48 : 30, out, parts);
    check({2, 3, 5}, 40, out, 31);
    check({2, 3, 5}, 7, out, 31);
  }
}

}  // namespace
}  // namespace tandem::gemm::cuda
