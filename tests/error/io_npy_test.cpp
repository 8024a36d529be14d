#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <tandem/io/npy.hpp>

#include "support/io_folder.hpp"

namespace tandem::io {
namespace {

using tests::Folder;
using tests::npy_file;

const std::string kData(24, '\0');

std::string npy_dict(std::string_view dict) {
  return npy_file(dict, kData);
}

struct Case {
  std::string file;
  std::string error;
};

void expect_errors(const std::vector<Case>& cases) {
  const Folder folder;
  const std::string path = folder / "x.npy";
  for (const Case& c : cases) {
    tests::write_bytes(path, c.file);
    const auto tensor = read_npy(path);
    ASSERT_FALSE(tensor.has_value()) << "read as " << to_string(tensor->view()) << ", need " << c.error;
    const std::size_t colon = c.error.find(": ");
    EXPECT_EQ(tensor.error().to_string(),
              c.error.substr(0, colon) + ": read_npy '" + path + "'" + c.error.substr(colon));
  }
}

TEST(NpyErrors, AHeaderThatIsCutOffAnywhere) {
  const std::string good = npy_dict("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
  std::vector<Case> cases;
  for (std::size_t kept = 0; kept < 59; ++kept) {
    cases.push_back({good.substr(0, 10 + kept),
                     "Parse: byte 8: header of 59 bytes, but the file ends after " + std::to_string(kept)});
  }
  expect_errors(cases);
}

TEST(NpyErrors, Preamble) {
  const std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  const std::string good = npy_dict(dict);
  std::string version4 = good;
  version4[6] = 4;
  std::string version1_1 = good;
  version1_1[7] = 1;
  expect_errors({
      {"", "Parse: the file is empty"},
      {"\x93NUM", "Parse: byte 0: not a .npy file: it begins with '\\x93NUM', need '\\x93NUMPY'"},
      {"PK\x03\x04 a zip file",
       "Parse: byte 0: not a .npy file: it begins with 'PK\\x03\\x04 a', need '\\x93NUMPY'"},
      {good.substr(0, 7), "Parse: cut off after 7 bytes"},
      {good.substr(0, 9), "Parse: cut off after 9 bytes"},
      {npy_file(dict, kData, 2).substr(0, 11), "Parse: cut off after 11 bytes"},
      {version4, "Parse: byte 6: version 4.0, need 1.0, 2.0 or 3.0"},
      {version1_1, "Parse: byte 6: version 1.1, need 1.0, 2.0 or 3.0"},
      {good.substr(0, 40), "Parse: byte 8: header of 59 bytes, but the file ends after 30"},
      {"\x93NUMPY" + tests::little_endian(2, 2) + tests::little_endian((1U << 20) + 1, 4) +
           std::string(64, ' '),
       "Parse: byte 8: header of 1048577 bytes, need at most 1048576"},
      {"\x93NUMPY" + tests::little_endian(2, 2) + tests::little_endian(0xffffffffU, 4),
       "Parse: byte 8: header of 4294967295 bytes, need at most 1048576"},
  });
}

TEST(NpyErrors, Dictionary) {
  expect_errors({
      {npy_dict(""), "Parse: byte 10: expected '{', found the end of the text"},
      {npy_dict("  ["), "Parse: byte 12: expected '{', found '['"},
      {npy_dict("{"), "Parse: byte 11: expected a text in '...', found the end of the text"},
      {npy_dict("{'descr' '<f4'}"), "Parse: byte 19: expected ':', found ''<f4'}'"},
      {npy_dict("{'descr"), "Parse: byte 17: expected the closing ', found the end of the text"},
      {npy_dict("{'de\\x73cr': '<f4'}"),
       "Parse: byte 11: expected a text without escapes, found ''de\\x5cx73cr': '<f4'}'"},
      {npy_dict("{'de\nscr': '<f4'}"),
       "Parse: byte 15: expected no control character in a text, found 'scr': '<f4'}'"},
      {npy_dict("{'type': '<f4'}"),
       "Parse: byte 11: expected 'descr', 'fortran_order' or 'shape', found ''type': '<f4'}'"},
      {npy_dict("{'descr': '<f4', 'descr': '<f4'}"),
       "Parse: byte 36: expected no second 'descr', found ''<f4'}'"},
      {npy_dict("{'descr': '<f4' 'shape': (1,)}"), "Parse: byte 26: expected '}', found ''shape': (1,)}'"},
      {npy_dict("{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}"),
       "Parse: byte 44: expected True or False, found '0, 'shape': (6,)}'"},
      {npy_dict("{'fortran_order': False, 'shape': (6,)}"),
       "Parse: byte 49: expected the key 'descr', found the end of the text"},
      {npy_dict("{'descr': '<f4', 'shape': (6,)}"),
       "Parse: byte 41: expected the key 'fortran_order', found the end of the text"},
      {npy_dict("{'descr': '<f4', 'fortran_order': False}"),
       "Parse: byte 50: expected the key 'shape', found the end of the text"},
      {npy_dict("{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} x"),
       "Parse: byte 66: expected nothing behind the header's '}', found 'x'"},
  });
}

std::string npy_shape(std::string_view shape) {
  return npy_dict("{'descr': '<f4', 'fortran_order': False, 'shape': " + std::string(shape) + "}");
}

TEST(NpyErrors, Shape) {
  expect_errors({
      {npy_shape("[6]"), "Parse: byte 60: expected '(', found '[6]}'"},
      {npy_shape("(6)"), "Parse: byte 62: expected ',', found ')}'"},
      {npy_shape("(2, 3"), "Parse: byte 65: expected ')', found '}'"},
      {npy_shape("(2,, 3)"), "Parse: byte 63: expected a whole number of 0 or more, found ', 3)}'"},
      {npy_shape("(2, -3)"), "Parse: byte 64: expected a whole number of 0 or more, found '-3)}'"},
      {npy_shape("(2, x)"), "Parse: byte 64: expected a whole number of 0 or more, found 'x)}'"},
      {npy_shape("(02, 3)"), "Parse: byte 61: expected a number without leading zeros, found '02, 3)}'"},
      {npy_shape("(9223372036854775808,)"),
       "Parse: byte 61: expected a number below 2^63, found '9223372036854775808,'"},
      {npy_shape("(1, 1, 1, 1, 1, 1, 1, 1, 6)"), "Unsupported: byte 60: more than 8 dimensions"},
      {npy_shape("(9223372036854775807,)"), "Parse: f32 [9223372036854775807] is more than 2^63 - 1 bytes"},
      {npy_shape("(4294967296, 4294967296)"),
       "Parse: f32 [4294967296, 4294967296] is more than 2^63 - 1 bytes"},
      // The product wraps round to 24 bytes, or to 0 by the empty dimension, if it is not watched.
      {npy_shape("(0, 4294967296, 4294967296)"),
       "Parse: f32 [0, 4294967296, 4294967296] is more than 2^63 - 1 bytes"},
      {npy_shape("(4611686018427387910,)"), "Parse: f32 [4611686018427387910] is more than 2^63 - 1 bytes"},
  });
}

TEST(NpyErrors, Size) {
  const std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}\n";
  expect_errors({
      {npy_file(dict, ""), "Parse: byte 68: f32 [2, 3] needs 24 bytes, 0 follow: the file is cut off"},
      {npy_file(dict, kData.substr(1)),
       "Parse: byte 68: f32 [2, 3] needs 24 bytes, 23 follow: the file is cut off"},
      {npy_file(dict, kData + "x"),
       "Parse: byte 68: f32 [2, 3] needs 24 bytes, 25 follow: the file is longer than its header says: "
       "save each array in a file of its own"},
      {npy_file("{'descr': '<f8', 'fortran_order': False, 'shape': ()}", ""),
       "Parse: byte 63: f64 [] needs 8 bytes, 0 follow: the file is cut off"},
      {npy_file("{'descr': '<f8', 'fortran_order': False, 'shape': (0,)}", "x"),
       "Parse: byte 65: f64 [0] needs 0 bytes, 1 follow: the file is longer than its header says: "
       "save each array in a file of its own"},
  });
}

TEST(NpyErrors, Types) {
  const auto descr = [](std::string_view name) {
    return npy_dict("{'descr': " + std::string(name) + ", 'fortran_order': False, 'shape': (6,)}");
  };
  const auto refused = [&](const std::string& name, const std::string& remedy) {
    return Case{descr("'" + name + "'"), "Unsupported: byte 20: element type '" + name +
                                             "', need one of <f2 <f4 <f8 |u1 |i1 <u4 <i4 <i8 |b1; " + remedy};
  };
  const std::string cast = "save np.load(file).astype(np.float32)";
  const std::string view = " of ml_dtypes is stored as this: save np.load(file).view(ml_dtypes.";
  const std::string bf16 = "bf16" + view + "bfloat16).astype(np.float32), or a .safetensors file";
  const std::string f8 =
      "f8" + view + "float8_e4m3fn).astype(np.float32), or with the type that it has; or a .safetensors file";
  const std::string bytes =
      "bytes without a type: save np.load(file).view(np.float32), or with the type that they have";
  const std::string other = "save the array as np.float32";
  expect_errors({
      refused(">f4", cast),
      refused("<u2", cast),
      refused("|b2", cast),
      refused("<f16", cast),
      refused("<U7", cast),
      refused("|S3", cast),
      refused("<M8[s]", cast),
      refused("<m8[s]", cast),
      refused("<V2", bf16),
      refused("|V2", bf16),
      refused("V2", bf16),
      refused("<V1", f8),
      refused("|V1", f8),
      refused("|V4", bytes),
      refused("|V22", bytes),
      refused("<f1",
              "float8_e5m2 of ml_dtypes is stored as this, which np.load refuses: save "
              "array.astype(np.float32) instead of array, or a .safetensors file"),
      refused("<c8", "complex numbers: save np.load(file).real and .imag, each as np.float32"),
      refused("|O", "Python objects: save np.array(objects, np.float32) where they are made"),
      refused("", other),
      refused("<", other),
      refused("<W4", other),
      {descr("'<f4\xc2\x9b[2J'"),
       "Unsupported: byte 20: element type '<f4\\xc2\\x9b[2J', need one of <f2 <f4 <f8 |u1 |i1 <u4 <i4 <i8 "
       "|b1; " +
           cast},
      {descr("[('a', '<f4')]"),
       "Unsupported: byte 20: elements of several fields: save each on its own, as np.load(file)['field']"},
      {descr("5"), "Parse: byte 20: expected a text in '...', found '5, 'fortran_order': '"},
  });
}

}  // namespace
}  // namespace tandem::io
