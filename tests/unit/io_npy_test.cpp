#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tandem/base/convert.hpp>
#include <tandem/io/npy.hpp>

#include "support/io_folder.hpp"

namespace tandem::io {
namespace {

using tests::Folder;
using tests::npy_file;
using tests::read_bytes;
using tests::write_bytes;

// Made by a script that packs the documented layout: <f2, (2, 3), C order: 1 -2 0.5 65504 2^-24 inf.
constexpr std::array<unsigned char, 140> kF2 = {
    0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 0x01, 0x00, 0x76, 0x00, 0x7b, 0x27, 0x64, 0x65, 0x73, 0x63,
    0x72, 0x27, 0x3a, 0x20, 0x27, 0x3c, 0x66, 0x32, 0x27, 0x2c, 0x20, 0x27, 0x66, 0x6f, 0x72, 0x74,
    0x72, 0x61, 0x6e, 0x5f, 0x6f, 0x72, 0x64, 0x65, 0x72, 0x27, 0x3a, 0x20, 0x46, 0x61, 0x6c, 0x73,
    0x65, 0x2c, 0x20, 0x27, 0x73, 0x68, 0x61, 0x70, 0x65, 0x27, 0x3a, 0x20, 0x28, 0x32, 0x2c, 0x20,
    0x33, 0x29, 0x2c, 0x20, 0x7d, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20,
    0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20,
    0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20,
    0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x20, 0x0a,
    0x00, 0x3c, 0x00, 0xc0, 0x00, 0x38, 0xff, 0x7b, 0x01, 0x00, 0x00, 0x7c};

template <class Bytes>
std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Tensor read_good(const std::filesystem::path& path) {
  auto tensor = read_npy(path);
  EXPECT_TRUE(tensor.has_value()) << tensor.error().to_string();
  return tensor ? std::move(*tensor) : Tensor();
}

void write_good(const std::filesystem::path& path, const TensorView& view) {
  const auto written = write_npy(path, view);
  EXPECT_TRUE(written.has_value()) << written.error().to_string();
}

TEST(Npy, ReadsAndWritesTheKnownFile) {
  const Folder folder;
  write_bytes(folder / "known.npy", text_of(kF2));
  const Tensor tensor = read_good(folder / "known.npy");
  EXPECT_EQ(to_string(tensor.view()), "f16 [2, 3] strides [3, 1] on cpu:0");
  const double want[] = {1, -2, 0.5, 65504, 0x1p-24, HUGE_VAL};
  for (int i = 0; i < 6; ++i) EXPECT_EQ(element_as_f64(tensor.view(), i), want[i]) << i;
  write_good(folder / "again.npy", tensor.view());
  EXPECT_EQ(read_bytes(folder / "again.npy"), text_of(kF2)) << "byte for byte";
}

TEST(Npy, FortranOrderIsAStridedView) {
  const Folder folder;
  const float values[] = {1, 4, 2, 5, 3, 6};
  const std::string data(reinterpret_cast<const char*>(values), sizeof(values));
  write_bytes(folder / "f.npy",
              npy_file("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", data, 2));
  const Tensor tensor = read_good(folder / "f.npy");
  EXPECT_EQ(to_string(tensor.view()), "f32 [2, 3] strides [1, 2] on cpu:0");
  for (int i = 0; i < 6; ++i) EXPECT_EQ(element_as_f64(tensor.view(), i), i + 1) << i;
  write_good(folder / "c.npy", tensor.view());
  const Tensor back = read_good(folder / "c.npy");
  EXPECT_EQ(to_string(back.view()), "f32 [2, 3] strides [3, 1] on cpu:0");
  for (int i = 0; i < 6; ++i) EXPECT_EQ(element_as_f64(back.view(), i), i + 1) << i;
}

// Every bit pattern of the small types; the wide ones get arbitrary bytes.
Tensor patterns(DType dtype, const Dims& sizes) {
  Tensor tensor = Tensor::host(sizes, dtype);
  auto* bytes = tensor.view().data_as<std::uint8_t>();
  std::uint32_t state = 1;
  for (std::int64_t i = 0; i < tensor.view().size_bytes(); ++i) {
    state = state * 1664525U + 1013904223U;
    bytes[i] = static_cast<std::uint8_t>(state >> 24);
  }
  for (std::int64_t i = 0; i < numel(sizes); ++i) {
    if (size_bytes(dtype) == 1) bytes[i] = static_cast<std::uint8_t>(i);
    if (size_bytes(dtype) == 2) tensor.view().data_as<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
  }
  return tensor;
}

bool same_bytes(const TensorView& x, const TensorView& y) {
  return x.is_contiguous() && y.is_contiguous() && x.size_bytes() == y.size_bytes() &&
         std::memcmp(x.data, y.data, static_cast<std::size_t>(x.size_bytes())) == 0;
}

TEST(Npy, TypesOfTheFormatRoundTripByBits) {
  const Folder folder;
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kF64, DType::kU8, DType::kI8, DType::kU32,
                            DType::kI32, DType::kI64, DType::kBool}) {
    SCOPED_TRACE(to_string(dtype));
    const Tensor tensor = patterns(dtype, {256, 256});
    write_good(folder / "x.npy", tensor.view());
    const Tensor back = read_good(folder / "x.npy");
    EXPECT_EQ(to_string(back.view()), to_string(tensor.view()));
    EXPECT_TRUE(same_bytes(back.view(), tensor.view()));
    EXPECT_EQ(read_bytes(folder / "x.npy").size() % 64, 0U) << "the data begins at a multiple of 64";
  }
}

TEST(Npy, TypesWithoutANameBecomeF32) {
  const Folder folder;
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kF8E5M2}) {
    SCOPED_TRACE(to_string(dtype));
    const Tensor tensor = patterns(dtype, {256, 256});
    write_good(folder / "x.npy", tensor.view());
    const Tensor back = read_good(folder / "x.npy");
    const Tensor wide = Tensor::host({256, 256}, DType::kF32);
    ASSERT_TRUE(convert(tensor.view(), wide.view()));
    EXPECT_EQ(back.dtype(), DType::kF32);
    EXPECT_TRUE(same_bytes(back.view(), wide.view()));
  }
}

TEST(Npy, ShapesRoundTrip) {
  const Folder folder;
  for (const Dims& sizes :
       {Dims{}, Dims{1}, Dims{7}, Dims{0}, Dims{3, 0, 2}, Dims{2, 3, 4}, Dims{1, 2, 1, 2, 1, 2, 1, 2}}) {
    SCOPED_TRACE(to_string(sizes));
    const Tensor tensor = patterns(DType::kF32, sizes);
    write_good(folder / "x.npy", tensor.view());
    const Tensor back = read_good(folder / "x.npy");
    EXPECT_EQ(to_string(back.view()), to_string(tensor.view()));
    EXPECT_TRUE(same_bytes(back.view(), tensor.view()));
  }
}

// More elements than the writer's block, cut along the first dimension or, where one row is larger, along
// later ones.
TEST(Npy, StridedViewsAreGathered) {
  const Folder folder;
  const Tensor rows = patterns(DType::kF32, {700, 400});
  const Tensor wide = patterns(DType::kI32, {3, 300'001});
  const Tensor cube = patterns(DType::kU8, {2, 401, 503});
  const TensorView views[] = {rows.view().movedim(0, 1), rows.view().narrow(1, 3, 390),
                              rows.view().select(1, 7),  wide.view().narrow(1, 1, 300'000),
                              wide.view().movedim(0, 1), wide.view().narrow(1, 1, 299'999).select(0, 2),
                              cube.view().movedim(2, 0), cube.view().movedim(0, 2).narrow(1, 4, 499)};
  for (const TensorView& view : views) {
    SCOPED_TRACE(to_string(view));
    write_good(folder / "x.npy", view);
    const Tensor back = read_good(folder / "x.npy");
    const Tensor want = Tensor::host(view.sizes, view.dtype);
    ASSERT_TRUE(convert(view, want.view()));
    EXPECT_EQ(to_string(back.view()), to_string(want.view()));
    EXPECT_TRUE(same_bytes(back.view(), want.view()));
  }
}

TEST(Npy, OddHeadersOfOtherWriters) {
  const Folder folder;
  const std::string data("\1\0\0\0\2\0\0\0", 8);
  const std::string headers[] = {
      "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }",
      "{'shape':(2,),'fortran_order':False,'descr':'<i4'}",  // another order, no spaces, no last comma
      "{\"descr\": \"<i4\", \"fortran_order\": False, \"shape\": (2,)}  \n",
      "{'descr': '<i4', 'fortran_order': False, 'shape': (2L,), }",  // Python 2
      "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 2), }\n\n\n",
  };
  for (const std::string& header : headers) {
    for (const int version : {1, 2, 3}) {
      SCOPED_TRACE(testing::Message() << header << " version " << version);
      // Headers of all lengths: their data is not always aligned, the tensor's is.
      write_bytes(folder / "x.npy", npy_file(header, data, version));
      const Tensor tensor = read_good(folder / "x.npy");
      ASSERT_EQ(tensor.view().numel(), 2);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.view().data) % 4, 0U);
      EXPECT_EQ(element_as_f64(tensor.view(), 0), 1);
      EXPECT_EQ(element_as_f64(tensor.view(), 1), 2);
    }
  }
}

TEST(Npy, TheTensorOutlivesItsFile) {
  const Folder folder;
  const Tensor values = patterns(DType::kF32, {64});
  write_good(folder / "x.npy", values.view());
  const Tensor mapped = read_good(folder / "x.npy");
  const Tensor other = patterns(DType::kU8, {3});
  write_good(folder / "x.npy", other.view());  // replaces the name, not the bytes
  EXPECT_TRUE(same_bytes(mapped.view(), values.view()));
  std::filesystem::remove(folder / "x.npy");
  EXPECT_TRUE(same_bytes(mapped.view(), values.view()));
}

}  // namespace
}  // namespace tandem::io
