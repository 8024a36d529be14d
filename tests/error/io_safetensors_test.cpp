#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <tandem/io/safetensors.hpp>
#include <vector>

#include "support/io_folder.hpp"

namespace tandem::io {
namespace {

using tests::Folder;
using tests::safetensors_file;

const std::string kData(8, '\0');

struct Case {
  std::string file;
  std::string error;
};

void expect_errors(const std::vector<Case>& cases) {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  for (const Case& c : cases) {
    tests::write_bytes(path, c.file);
    const std::size_t colon = c.error.find(": ");
    const std::string want =
        c.error.substr(0, colon) + ": read_safetensors '" + path + "'" + c.error.substr(colon);
    const auto all = read_safetensors(path);
    ASSERT_FALSE(all.has_value()) << "read " << all->size() << " tensors, need " << c.error;
    EXPECT_EQ(all.error().to_string(), want);
    const auto one = read_safetensors(path, "x");
    ASSERT_FALSE(one.has_value());
    EXPECT_EQ(one.error().to_string(), want);
  }
}

std::string with_header(std::string_view header) {
  return safetensors_file(header, kData);
}

TEST(SafetensorsErrors, Length) {
  expect_errors({
      {"", "Parse: the file is empty"},
      {"\2\0", "Parse: 1 bytes are no .safetensors file: its header's length alone has 8"},
      {tests::little_endian(0, 8), "Parse: byte 8: expected '{', found the end of the text"},
      {tests::little_endian(3, 8) + "{}", "Parse: byte 0: header of 3 bytes, but the file ends after 2"},
      {tests::little_endian(100000001, 8) + "{}",
       "Parse: byte 0: header of 100000001 bytes, need at most 100000000: is it a .safetensors file?"},
      {tests::little_endian(~0ULL, 8) + "{}",
       "Parse: byte 0: header of 18446744073709551615 bytes, need at most "
       "100000000: is it a .safetensors file?"},
      {tests::little_endian(~0ULL - 6, 8) + "{}",
       "Parse: byte 0: header of 18446744073709551609 bytes, need at most "
       "100000000: is it a .safetensors file?"},
  });
}

TEST(SafetensorsErrors, Syntax) {
  const std::string deep(100'000, '[');
  expect_errors({
      {with_header("[]"), "Parse: byte 8: expected '{', found '[]'"},
      {with_header("{"), "Parse: byte 9: expected a text in \"...\", found the end of the text"},
      {with_header("{} x"),
       "Parse: byte 11: expected nothing but white space behind the header's '}', found 'x'"},
      {with_header("{\"x\""), "Parse: byte 12: expected ':', found the end of the text"},
      {with_header("{\"x\":5}"), "Parse: tensor 'x': byte 13: expected '{', found '5}'"},
      {with_header("{\"x\":" + deep),
       "Parse: tensor 'x': byte 14: expected a text in \"...\", found '[[[[[[[[[[[[[[[[[[[['"},
      {with_header("{\"x"), "Parse: byte 11: expected the closing \", found the end of the text"},
      {with_header("{\"x\\"), "Parse: byte 12: expected the closing \", found the end of the text"},
      {with_header("{\"x\\q\":{}}"),
       "Parse: byte 9: the text has an escape '\\x5cq' that stands for nothing"},
      {with_header("{\"\\u12\":{}}"),
       "Parse: byte 9: the text has an escape '\\x5cu12' that stands for nothing"},
      {with_header("{\"\\ud800x\":{}}"),
       "Parse: byte 9: the text has an escape '\\x5cud800x' that stands for nothing"},
      {with_header("{\"\\udc00\":{}}"),
       "Parse: byte 9: the text has an escape '\\x5cudc00' that stands for nothing"},
      {with_header("{\"\\ud800\\u0041\":{}}"),
       "Parse: byte 9: the text has an escape '\\x5cud800\\x5cu0041' that stands for nothing"},
      {with_header("{\"a\tb\":{}}"),
       "Parse: byte 12: expected no control character in a text, found 'b\":{}}'"},
      {with_header("{\"\xc3(\":{}}"), "Parse: byte 10: the header is not UTF-8"},
      {with_header("{\"\xc0\xaf\":{}}"), "Parse: byte 10: the header is not UTF-8"},
      {with_header("{\"\xed\xa0\x80\":{}}"), "Parse: byte 10: the header is not UTF-8"},
      {with_header("{\"\xf4\x90\x80\x80\":{}}"), "Parse: byte 10: the header is not UTF-8"},
      {with_header("{\"\xe2\x82"), "Parse: byte 10: the header is not UTF-8"},
      {with_header("{\"__metadata__\":{\"a\":5}}"),
       "Parse: byte 29: expected a text in \"...\", found '5}}'"},
      {with_header("{\"__metadata__\":[]}"), "Parse: byte 24: expected '{', found '[]}'"},
      {with_header("{\"__metadata__\":{},\"\\u005f_metadata__\":{}}"),
       "Parse: byte 47: expected no second '__metadata__', found '{}}'"},
      {with_header("{\"__metadata__\":null,\"__metadata__\":null}"),
       "Parse: byte 44: expected no second '__metadata__', found 'null}'"},
      {with_header("{\"x\":{},}"), "Parse: tensor 'x': has no 'dtype'"},
      {with_header("{\"x\":[\"U8\",[8],[0,8],0]}"), "Parse: tensor 'x': byte 28: expected ']', found ',0]}'"},
      {with_header("{\"x\":[\"U8\",[8]]}"), "Parse: tensor 'x': byte 22: expected ',', found ']}'"},
  });
}

// The header of one tensor "x" with these fields.
std::string with_fields(std::string_view fields) {
  return with_header("{\"x\":{" + std::string(fields) + "}}");
}

TEST(SafetensorsErrors, Fields) {
  expect_errors({
      {with_fields(R"("shape":[2],"data_offsets":[0,8])"), "Parse: tensor 'x': has no 'dtype'"},
      {with_fields(R"("dtype":"F32","data_offsets":[0,8])"), "Parse: tensor 'x': has no 'shape'"},
      {with_fields(R"("dtype":"F32","shape":[2])"), "Parse: tensor 'x': has no 'data_offsets'"},
      {with_fields(R"("dtype":"F32","dtype":"F32")"),
       "Parse: tensor 'x': byte 28: expected no key twice, found '\"dtype\":\"F32\"}}'"},
      {with_fields(R"("shape":[2],"shape":[2])"),
       "Parse: tensor 'x': byte 26: expected no key twice, found '\"shape\":[2]}}'"},
      {with_fields(R"("data_offsets":[0,8],"data_offsets":[0,8])"),
       "Parse: tensor 'x': byte 35: expected no key twice, found '\"data_offsets\":[0,8]'"},
      {with_fields(R"("type":"F32")"), "Parse: tensor 'x': has no 'dtype'"},
      {with_fields(R"("dtype":3)"), "Parse: tensor 'x': byte 22: expected a text in \"...\", found '3}}'"},
      {with_fields(R"("shape":2)"), "Parse: tensor 'x': byte 22: expected '[', found '2}}'"},
      {with_fields(R"("shape":[-2])"),
       "Parse: tensor 'x': byte 23: expected a whole number of 0 or more, found '-2]}}'"},
      {with_fields(R"("shape":[2.0])"), "Parse: tensor 'x': byte 24: expected ',' or ']', found '.0]}}'"},
      {with_fields(R"("shape":[1e3])"), "Parse: tensor 'x': byte 24: expected ',' or ']', found 'e3]}}'"},
      {with_fields(R"("shape":[2,])"),
       "Parse: tensor 'x': byte 25: expected a whole number of 0 or more, found ']}}'"},
      {with_fields(R"("shape":[[2]])"),
       "Parse: tensor 'x': byte 23: expected a whole number of 0 or more, found '[2]]}}'"},
      {with_fields(R"("shape":[99999999999999999999])"),
       "Parse: tensor 'x': byte 23: expected a number below 2^64, found '99999999999999999999'"},
      {with_fields(R"("shape":[null])"),
       "Parse: tensor 'x': byte 23: expected a whole number of 0 or more, found 'null]}}'"},
      {with_fields(R"("dtype":{"U8":0})"), "Parse: tensor 'x': byte 28: expected 'null', found '0}}}'"},
      {with_fields(R"("crc":01)"), "Parse: tensor 'x': byte 20: expected a value, found '01}}'"},
      {with_fields(R"("crc":1.)"), "Parse: tensor 'x': byte 20: expected a value, found '1.}}'"},
      {with_fields(R"("crc":-)"), "Parse: tensor 'x': byte 20: expected a value, found '-}}'"},
      {with_fields(R"("crc":1e+)"), "Parse: tensor 'x': byte 20: expected a value, found '1e+}}'"},
      {with_fields(R"("crc":NaN)"), "Parse: tensor 'x': byte 20: expected a value, found 'NaN}}'"},
      {with_fields(R"("crc":nul)"), "Parse: tensor 'x': byte 20: expected a value, found 'nul}}'"},
      {with_fields(R"("crc":[1,])"), "Parse: tensor 'x': byte 23: expected a value, found ']}}'"},
      {with_fields(R"("crc":{"a"})"), "Parse: tensor 'x': byte 24: expected ':', found '}}}'"},
      {with_fields(R"("crc":{"a":"\q"})"),
       "Parse: tensor 'x': byte 25: the text has an escape '\\x5cq' that stands for nothing"},
      {with_fields("\"crc\":" + std::string(126, '[') + std::string(126, ']')),
       "Parse: tensor 'x': byte 145: expected at most 127 objects and lists in each other, found "
       "'[]]]]]]]]]]]]]]]]]]]'"},
      {with_fields("\"crc\":" + std::string(1'000'000, '[')),
       "Parse: tensor 'x': byte 145: expected at most 127 objects and lists in each other, found "
       "'[[[[[[[[[[[[[[[[[[[['"},
      {with_fields(R"("data_offsets":[0])"), "Parse: tensor 'x': byte 31: expected ',', found ']}}'"},
      {with_fields(R"("data_offsets":[0,8,9])"), "Parse: tensor 'x': byte 33: expected ']', found ',9]}}'"},
  });
}

std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                  std::string_view offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, dtype, shape, offsets);
}

std::string with_entries(const std::vector<std::string>& entries) {
  return with_header(fmt::format("{{{}}}", fmt::join(entries, ",")));
}

TEST(SafetensorsErrors, Ranges) {
  const auto one = [](std::string_view dtype, std::string_view shape, std::string_view offsets) {
    return with_entries({entry("x", dtype, shape, offsets)});
  };
  const auto two = [](const std::string& x, const std::string& y) { return with_entries({x, y}); };
  expect_errors({
      {one("F32", "[2]", "[8,0]"),
       "Parse: tensor 'x': data_offsets [8, 0] do not lie in the 8 bytes of data"},
      {one("F32", "[2]", "[1,9]"),
       "Parse: tensor 'x': data_offsets [1, 9] do not lie in the 8 bytes of data"},
      {one("U8", "[9223372036854775807]", "[0,9223372036854775807]"),
       "Parse: tensor 'x': data_offsets [0, 9223372036854775807] do not lie in the 8 bytes of data"},
      {one("F32", "[2]", "[0,7]"), "Parse: tensor 'x': F32 [2] needs 8 bytes, data_offsets [0, 7] hold 7"},
      {one("F64", "[2]", "[0,8]"), "Parse: tensor 'x': F64 [2] needs 16 bytes, data_offsets [0, 8] hold 8"},
      {one("F64", "[4611686018427387904]", "[0,0]"),
       "Parse: tensor 'x': F64 [4611686018427387904] needs more than 2^64 - 1 bits, data_offsets [0, 0] "
       "hold 0"},
      {one("U8", "[4294967296,4294967296,0]", "[0,0]"),
       "Parse: tensor 'x': U8 [4294967296, 4294967296, 0] needs more "
       "than 2^64 - 1 bits, data_offsets [0, 0] hold 0"},
      {one("F4", "[17]", "[0,8]"),
       "Parse: tensor 'x': F4 [17] needs 68 bits, no whole bytes, data_offsets [0, 8] hold 8"},
      {one("F6_E2M3", "[8]", "[0,8]"),
       "Parse: tensor 'x': F6_E2M3 [8] needs 6 bytes, data_offsets [0, 8] hold 8"},
      {one("U16", "[8]", "[0,8]"), "Parse: tensor 'x': U16 [8] needs 16 bytes, data_offsets [0, 8] hold 8"},
      {one("F9", "[8]", "[4,8]"), "Parse: bytes 0 to 4 of the data, before tensor 'x', belong to no tensor"},
      {two(entry("x", "U8", "[5]", "[0,5]"), entry("y", "U8", "[4]", "[4,8]")),
       "Parse: tensors 'x' and 'y' overlap: data_offsets [0, 5] and [4, 8]"},
      {two(entry("y", "U8", "[8]", "[0,8]"), entry("x", "U8", "[8]", "[0,8]")),
       "Parse: tensors 'y' and 'x' overlap: data_offsets [0, 8] and [0, 8]"},
      {two(entry("x", "U8", "[8]", "[0,8]"), entry("y", "U8", "[0]", "[3,3]")),
       "Parse: tensors 'x' and 'y' overlap: data_offsets [0, 8] and [3, 3]"},
      {two(entry("x", "U8", "[2]", "[0,2]"), entry("y", "U8", "[4]", "[4,8]")),
       "Parse: bytes 2 to 4 of the data, before tensor 'y', belong to no tensor"},
      {one("U8", "[7]", "[1,8]"), "Parse: bytes 0 to 1 of the data, before tensor 'x', belong to no tensor"},
      {one("U8", "[7]", "[0,7]"), "Parse: bytes 7 to 8 of the data, at the end, belong to no tensor"},
      {with_header("{}"), "Parse: bytes 0 to 8 of the data, at the end, belong to no tensor"},
      {two(entry("x", "U8", "[4]", "[0,4]"), entry("x", "U8", "[4]", "[4,8]")),
       "Parse: bytes 0 to 4 of the data, before tensor 'x', belong to no tensor; 'x' comes twice: the last "
       "one counts"},
      {two(entry("x", "U8", "[8]", "[0,8]"), entry("\\u0078", "U8", "[4]", "[0,8]")),
       "Parse: tensor 'x': U8 [4] needs 4 bytes, data_offsets [0, 8] hold 8; 'x' comes twice: the last one "
       "counts"},
      // A name without a letter is a name too.
      {two(entry("", "U8", "[8]", "[0,8]"), entry("", "U8", "[0]", "[8,8]")),
       "Parse: bytes 0 to 8 of the data, before tensor '', belong to no tensor; '' comes twice: the last one "
       "counts"},
      {two(entry("\\u001b[2J", "U8", "[4]", "[0,4]"), entry("x", "U8", "[3]", "[4,8]")),
       "Parse: tensor 'x': U8 [3] needs 3 bytes, data_offsets [4, 8] hold 4"},
  });
}

TEST(SafetensorsErrors, NamesInMessagesAreHarmless) {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  tests::write_bytes(path,
                     with_entries({entry("a\\u001b[2J\\n" + std::string(500, 'b'), "U8", "[3]", "[0,4]")}));
  const auto tensors = read_safetensors(path);
  ASSERT_FALSE(tensors.has_value());
  EXPECT_EQ(tensors.error().to_string(), "Parse: read_safetensors '" + path + "': tensor 'a\\x1b[2J\\x0a" +
                                             std::string(122, 'b') +
                                             "...': U8 [3] needs 3 bytes, data_offsets [0, 4] "
                                             "hold 4");
}

TEST(SafetensorsErrors, Choice) {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  const std::string call = "InvalidArgument: read_safetensors '" + path + "': ";
  const auto error_of = [&](std::string_view name) {
    const auto tensor = read_safetensors(path, name);
    return tensor ? "read" : tensor.error().to_string();
  };
  tests::write_bytes(path, safetensors_file("{}", ""));
  EXPECT_EQ(error_of(""), call + "it holds no tensor");
  EXPECT_EQ(error_of("x"), call + "it holds no tensor");
  tests::write_bytes(path,
                     with_entries({entry("q", "U8", "[4]", "[4,8]"), entry("k", "U8", "[4]", "[0,4]")}));
  EXPECT_EQ(error_of(""), call + "it holds 2 tensors, name one of 'q', 'k'");
  EXPECT_EQ(error_of("v"), call + "no tensor 'v', there is 'q', 'k'");
  std::vector<std::string> entries;
  for (int i = 0; i < 10; ++i) entries.push_back(entry(fmt::format("t{}", i), "U8", "[0]", "[8,8]"));
  entries.push_back(entry("data", "U8", "[8]", "[0,8]"));
  tests::write_bytes(path, with_entries(entries));
  EXPECT_EQ(error_of("v"),
            call + "no tensor 'v', there is 't0', 't1', 't2', 't3', 't4', 't5', 't6', 't7' and 3 more");
}

// What a TensorView has not is an error of the tensor that is asked for, not of its file.
TEST(SafetensorsErrors, TensorsThatCannotBeHad) {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  const std::string types = ", need one of F64 F32 F16 BF16 F8_E4M3 F8_E5M2 I64 I32 I8 U32 U8 BOOL";
  const std::string as_one = ": store it as one of these";
  const std::string overflow = ": the sizes that are not 0 come to more than 2^63 - 1 bytes";
  struct Other {
    std::string type, sizes, offsets, error;
  };
  const Other others[] = {
      {"I16", "[2]", "[4,8]", "type 'I16'" + types + as_one},
      {"U16", "[2]", "[4,8]", "type 'U16'" + types + as_one},
      {"U64", "[]", "[0,8]", "type 'U64'" + types + as_one},
      {"C64", "[1]", "[0,8]", "type 'C64'" + types + as_one},
      {"F4", "[4,2]", "[4,8]", "type 'F4'" + types + as_one},
      {"F6_E2M3", "[4]", "[5,8]", "type 'F6_E2M3'" + types + as_one},
      {"F6_E3M2", "[4]", "[5,8]", "type 'F6_E3M2'" + types + as_one},
      {"F8_E8M0", "[4]", "[4,8]", "type 'F8_E8M0'" + types + as_one},
      {"F8_E4M3FNUZ", "[4]", "[4,8]", "type 'F8_E4M3FNUZ'" + types + as_one},
      {"F8_E5M2FNUZ", "[4]", "[4,8]", "type 'F8_E5M2FNUZ'" + types + as_one},
      // Of a later version of the format.
      {"f32", "[1]", "[4,8]", "type 'f32'" + types + as_one},
      {"F3\\n", "[77]", "[4,8]", "type 'F3\\x0a'" + types + as_one},
      {"U8", "[1,1,1,1,1,1,1,1,4]", "[4,8]", "9 dimensions, need at most 8: reshape it before it is stored"},
      {"U8", "[0,4294967296,4294967296]", "[8,8]", "U8 [0, 4294967296, 4294967296]" + overflow},
      {"U8", "[0,18446744073709551615]", "[8,8]", "U8 [0, 18446744073709551615]" + overflow}};
  for (const Other& other : others) {
    SCOPED_TRACE(other.type + " " + other.sizes);
    const int begin = other.offsets[1] - '0';
    const std::string good = begin == 0
                                 ? entry("w", "U8", "[0]", "[0,0]")
                                 : entry("w", "U8", fmt::format("[{}]", begin), fmt::format("[0,{}]", begin));
    tests::write_bytes(path, with_entries({entry("s", other.type, other.sizes, other.offsets), good}));
    const auto w = read_safetensors(path, "w");
    ASSERT_TRUE(w.has_value()) << w.error().to_string();
    EXPECT_EQ(w->sizes()[0], begin);
    const auto s = read_safetensors(path, "s");
    ASSERT_FALSE(s.has_value());
    const std::string want = "Unsupported: read_safetensors '" + path + "': tensor 's': " + other.error;
    EXPECT_EQ(s.error().to_string(), want);
    const auto all = read_safetensors(path);
    ASSERT_FALSE(all.has_value());
    EXPECT_EQ(all.error().to_string(), want + "; tensors can be read by name, without this one");
  }
}

TEST(SafetensorsErrors, Writing) {
  const Folder folder;
  const std::string path = folder / "x.safetensors";
  const Tensor tensor = Tensor::host({2}, DType::kF32);
  const auto error_of = [&](const std::vector<NamedView>& views) {
    const auto written = write_safetensors(path, views);
    return written ? "written" : written.error().to_string();
  };
  const std::string call = "InvalidArgument: write_safetensors '" + path + "': ";
  EXPECT_EQ(error_of({{"x", tensor.view()}, {"y", tensor.view()}, {"x", tensor.view()}}),
            call + "two tensors have the name 'x'");
  EXPECT_EQ(error_of({{"__metadata__", tensor.view()}}),
            call + "tensor name '__metadata__': need UTF-8 and not '__metadata__'");
  EXPECT_EQ(error_of({{"\xff", tensor.view()}}),
            call + "tensor name '\\xff': need UTF-8 and not '__metadata__'");
  TensorView on_gpu = tensor.view();
  on_gpu.device = {DeviceKind::kCuda, 0};
  EXPECT_EQ(error_of({{"x", on_gpu}}),
            call + "tensor 'x': needs host memory, got f32 [2] strides [1] on cuda:0: copy it first");
  EXPECT_EQ(error_of({{"x", TensorView::contiguous(nullptr, {2}, DType::kF32)}}),
            call + "tensor 'x': the view has no memory: f32 [2] strides [1] on cpu:0");
  EXPECT_TRUE(folder.names().empty()) << "an error must leave no file";
}

}  // namespace
}  // namespace tandem::io
