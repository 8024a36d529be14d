#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <tandem/base/convert.hpp>
#include <tandem/io/safetensors.hpp>
#include <vector>

#include "support/io_folder.hpp"

namespace tandem::io {
namespace {

using tests::Folder;
using tests::read_bytes;
using tests::safetensors_file;
using tests::write_bytes;

// Made by a script with a JSON library: metadata, a bf16 [2, 2] named "w\u00e9" (escaped): 1 -2 0.5 3, an i32
// []: -7.
constexpr std::array<unsigned char, 188> kKnown = {
    0xa8, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x7b, 0x22, 0x5f, 0x5f, 0x6d, 0x65, 0x74, 0x61,
    0x64, 0x61, 0x74, 0x61, 0x5f, 0x5f, 0x22, 0x3a, 0x20, 0x7b, 0x22, 0x66, 0x6f, 0x72, 0x6d, 0x61,
    0x74, 0x22, 0x3a, 0x20, 0x22, 0x70, 0x74, 0x22, 0x7d, 0x2c, 0x20, 0x22, 0x77, 0x5c, 0x75, 0x30,
    0x30, 0x65, 0x39, 0x22, 0x3a, 0x20, 0x7b, 0x22, 0x64, 0x74, 0x79, 0x70, 0x65, 0x22, 0x3a, 0x20,
    0x22, 0x42, 0x46, 0x31, 0x36, 0x22, 0x2c, 0x20, 0x22, 0x73, 0x68, 0x61, 0x70, 0x65, 0x22, 0x3a,
    0x20, 0x5b, 0x32, 0x2c, 0x20, 0x32, 0x5d, 0x2c, 0x20, 0x22, 0x64, 0x61, 0x74, 0x61, 0x5f, 0x6f,
    0x66, 0x66, 0x73, 0x65, 0x74, 0x73, 0x22, 0x3a, 0x20, 0x5b, 0x30, 0x2c, 0x20, 0x38, 0x5d, 0x7d,
    0x2c, 0x20, 0x22, 0x73, 0x22, 0x3a, 0x20, 0x7b, 0x22, 0x64, 0x74, 0x79, 0x70, 0x65, 0x22, 0x3a,
    0x20, 0x22, 0x49, 0x33, 0x32, 0x22, 0x2c, 0x20, 0x22, 0x73, 0x68, 0x61, 0x70, 0x65, 0x22, 0x3a,
    0x20, 0x5b, 0x5d, 0x2c, 0x20, 0x22, 0x64, 0x61, 0x74, 0x61, 0x5f, 0x6f, 0x66, 0x66, 0x73, 0x65,
    0x74, 0x73, 0x22, 0x3a, 0x20, 0x5b, 0x38, 0x2c, 0x20, 0x31, 0x32, 0x5d, 0x7d, 0x7d, 0x20, 0x20,
    0x80, 0x3f, 0x00, 0xc0, 0x00, 0x3f, 0x40, 0x40, 0xf9, 0xff, 0xff, 0xff};

std::vector<NamedTensor> read_good(const std::filesystem::path& path) {
  auto tensors = read_safetensors(path);
  EXPECT_TRUE(tensors.has_value()) << tensors.error().to_string();
  return tensors ? std::move(*tensors) : std::vector<NamedTensor>();
}

void write_good(const std::filesystem::path& path, const std::vector<NamedView>& views) {
  const auto written = write_safetensors(path, views);
  EXPECT_TRUE(written.has_value()) << written.error().to_string();
}

Tensor ramp(DType dtype, const Dims& sizes) {
  Tensor tensor = Tensor::host(sizes, dtype);
  auto* bytes = tensor.view().data_as<std::uint8_t>();
  for (std::int64_t i = 0; i < tensor.view().size_bytes(); ++i)
    bytes[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
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

TEST(Safetensors, ReadsTheKnownFile) {
  const Folder folder;
  write_bytes(folder / "known.safetensors", {reinterpret_cast<const char*>(kKnown.data()), kKnown.size()});
  const auto tensors = read_good(folder / "known.safetensors");
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "w\xc3\xa9");
  EXPECT_EQ(to_string(tensors[0].tensor.view()), "bf16 [2, 2] strides [2, 1] on cpu:0");
  const double want[] = {1, -2, 0.5, 3};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(element_as_f64(tensors[0].tensor.view(), i), want[i]) << i;
  EXPECT_EQ(tensors[1].name, "s");
  EXPECT_EQ(to_string(tensors[1].tensor.view()), "i32 [] strides [] on cpu:0");
  EXPECT_EQ(element_as_f64(tensors[1].tensor.view(), 0), -7);
}

TEST(Safetensors, WritesTheKnownForm) {
  const Folder folder;
  const Tensor bytes = ramp(DType::kU8, {3});
  const Tensor words = ramp(DType::kF16, {2, 1});
  write_good(folder / "x.safetensors", {{"b", bytes.view()}, {"a\"\\\n\x01", words.view()}});
  // The wide elements come first in the data, the header keeps the order it was given.
  const std::string header = R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},)"
                             R"("a\"\\\u000a\u0001":{"dtype":"F16","shape":[2,1],"data_offsets":[0,4]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  EXPECT_EQ(read_bytes(folder / "x.safetensors"), safetensors_file(padded, std::string("\0\0\1\0\0\1\2", 7)));
}

TEST(Safetensors, EveryTypeRoundTripsByBits) {
  const Folder folder;
  std::vector<Tensor> tensors;
  std::vector<NamedView> views;
  for (int i = 0; i < kNumDTypes; ++i) tensors.push_back(ramp(static_cast<DType>(i), {256, 256}));
  for (const Tensor& tensor : tensors)
    views.push_back({std::string(to_string(tensor.dtype())), tensor.view()});
  write_good(folder / "x.safetensors", views);
  const auto back = read_good(folder / "x.safetensors");
  ASSERT_EQ(back.size(), views.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    EXPECT_EQ(back[i].name, views[i].name);
    EXPECT_EQ(to_string(back[i].tensor.view()), to_string(views[i].view));
    EXPECT_TRUE(same_bytes(back[i].tensor.view(), views[i].view)) << views[i].name;
    const auto one = read_safetensors(folder / "x.safetensors", views[i].name);
    ASSERT_TRUE(one.has_value()) << one.error().to_string();
    EXPECT_TRUE(same_bytes(one->view(), views[i].view)) << views[i].name;
  }
}

TEST(Safetensors, ShapesEmptyOnesAndStridedViews) {
  const Folder folder;
  const Tensor matrix = ramp(DType::kBF16, {70, 40});
  const Tensor cube = ramp(DType::kI64, {3, 50, 1000});
  const Tensor scalar = ramp(DType::kF32, {});
  const Tensor eight = ramp(DType::kF8E4M3, {1, 2, 1, 2, 1, 2, 1, 2});
  const std::vector<NamedView> views = {{"turned", matrix.view().movedim(0, 1)},
                                        {"empty", matrix.view().narrow(0, 5, 0)},
                                        {"part", cube.view().narrow(2, 1, 998).movedim(1, 0)},
                                        {"", scalar.view()},
                                        {"eight", eight.view()},
                                        {"nothing", TensorView::contiguous(nullptr, {0, 3}, DType::kF64)}};
  write_good(folder / "x.safetensors", views);
  const auto back = read_good(folder / "x.safetensors");
  ASSERT_EQ(back.size(), views.size());
  for (std::size_t i = 0; i < views.size(); ++i) {
    SCOPED_TRACE(views[i].name);
    const Tensor want = Tensor::host(views[i].view.sizes, views[i].view.dtype);
    ASSERT_TRUE(convert(views[i].view, want.view()));
    EXPECT_EQ(back[i].name, views[i].name);
    EXPECT_EQ(to_string(back[i].tensor.view()), to_string(want.view()));
    EXPECT_TRUE(same_bytes(back[i].tensor.view(), want.view()));
  }
}

TEST(Safetensors, MisalignedElementsAreCopied) {
  const Folder folder;
  const std::string data("\5\1\0\0\0\2\0\0\0", 9);
  for (const char* pad : {"", " ", "  ", "   ", "    ", "     ", "      ", "       "}) {
    const std::string header = R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                               R"("y":{"dtype":"I32","shape":[2],"data_offsets":[1,9]}})" +
                               std::string(pad);
    write_bytes(folder / "x.safetensors", safetensors_file(header, data));
    const auto tensor = read_safetensors(folder / "x.safetensors", "y");
    ASSERT_TRUE(tensor.has_value()) << tensor.error().to_string();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor->view().data) % 4, 0U);
    EXPECT_EQ(element_as_f64(tensor->view(), 0), 1);
    EXPECT_EQ(element_as_f64(tensor->view(), 1), 2);
  }
}

TEST(Safetensors, EmptyNameMeansTheOnlyTensor) {
  const Folder folder;
  const Tensor tensor = ramp(DType::kF16, {4});
  write_good(folder / "x.safetensors", {{"weights", tensor.view()}});
  const auto back = read_safetensors(folder / "x.safetensors", "");
  ASSERT_TRUE(back.has_value()) << back.error().to_string();
  EXPECT_TRUE(same_bytes(back->view(), tensor.view()));
}

TEST(Safetensors, NoTensorsAtAll) {
  const Folder folder;
  write_good(folder / "x.safetensors", {});
  EXPECT_EQ(read_bytes(folder / "x.safetensors"), safetensors_file("{}      ", ""));
  EXPECT_TRUE(read_good(folder / "x.safetensors").empty());
  write_bytes(folder / "y.safetensors",
              safetensors_file(R"({"__metadata__":{"a":"b","c":"\ud83d\ude00"}})", ""));
  EXPECT_TRUE(read_good(folder / "y.safetensors").empty());
}

TEST(Safetensors, NamesAreDecoded) {
  const Folder folder;
  const std::string header = R"({"\u0041\/\"\\\b\f\n\r\t\u00e9\u20ac\ud83d\ude00":)"
                             R"({ "shape" : [ 1 ] , "dtype" : "U8" , "data_offsets" : [ 0 , 1 ] } })";
  write_bytes(folder / "x.safetensors", safetensors_file(header, "x"));
  const auto tensors = read_good(folder / "x.safetensors");
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].name, "A/\"\\\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
}

// Forms that the original reader takes, found by comparing with it; each holds a U8 [2] "x" with the values 1
// and 2, and maybe others.
TEST(Safetensors, ReadsWhatTheOriginalReaderReads) {
  const Folder folder;
  const std::string x = R"("x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  const auto with = [](const std::string& fields) {
    return R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2],)" + fields + "}}";
  };
  const std::string deep = std::string(125, '[') + std::string(125, ']');
  const std::string headers[] = {
      R"({"__metadata__":null,)" + x + "}",
      R"({"__metadata__":{},)" + x + "}",
      "{" + x + R"(,"\u005f_metadata__":{"a":"b","a":"c"}})",
      "{" + x + R"(,"__metadata_":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
      with(R"("crc":17)"),
      with(R"("crc":-0.5e+3,"crc":null,"":true,"dtype ":{"a":[1,{"b":"\n"}],"a":false})"),
      with(R"("crc":123456789012345678901234567890)"),
      with("\"crc\":" + deep),
      R"({"x":{"d\u0074ype":"\u00558","shap\u0065":[2],"data_offsets":[0,2]}})",
      R"({"x":["U8",[2],[0,2]]})",
      R"({"x":{"dtype":{"U8":null},"shape":[2],"data_offsets":[0,2]}})",
      // The last of a name counts, the others are not judged.
      R"({"x":{"dtype":"F64","shape":[9],"data_offsets":[7,3]},)" + x + "}",
      R"({"y":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},)" + x + "," + x + "}",
      // Empty tensors at every edge.
      R"({"a":{"dtype":"F4","shape":[0],"data_offsets":[0,0]},)" + x +
          R"(,"b":{"dtype":"C64","shape":[3,0],"data_offsets":[2,2]}})",
      R"({"a":{"dtype":"U8","shape":[0,1099511627776,1099511627776],"data_offsets":[0,0]},)" + x + "}",
      R"({"a":{"dtype":"U8","shape":[18446744073709551615,0],"data_offsets":[2,2]},)" + x + "}",
      // White space anywhere that JSON has it.
      " \r\n\t{ " + x + "\n} \r\n\t",
  };
  for (const std::string& header : headers) {
    SCOPED_TRACE(header.substr(0, 200));
    write_bytes(folder / "x.safetensors", safetensors_file(header, "\1\2"));
    const auto tensor = read_safetensors(folder / "x.safetensors", "x");
    ASSERT_TRUE(tensor.has_value()) << tensor.error().to_string();
    EXPECT_EQ(to_string(tensor->view()), "u8 [2] strides [1] on cpu:0");
    EXPECT_EQ(element_as_f64(tensor->view(), 0), 1);
    EXPECT_EQ(element_as_f64(tensor->view(), 1), 2);
  }
}

TEST(Safetensors, TheLastOfANameIsTheTensor) {
  const Folder folder;
  write_bytes(folder / "x.safetensors",
              safetensors_file(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                               R"("y":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},)"
                               R"("x":{"dtype":"I32","shape":[],"data_offsets":[0,4]}})",
                               std::string("\7\0\0\0", 4)));
  const auto tensors = read_good(folder / "x.safetensors");
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "y");
  EXPECT_EQ(tensors[1].name, "x");
  EXPECT_EQ(element_as_f64(tensors[1].tensor.view(), 0), 7);
}

}  // namespace
}  // namespace tandem::io
