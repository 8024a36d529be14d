#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <tandem/io/checkpoint.hpp>
#include <vector>

#include "support/io_folder.hpp"

namespace tandem::io {
namespace {

using tests::Folder;
using tests::safetensors_file;

constexpr const char* kIndex = "m.safetensors.index.json";

/// What opening `path` and reading `name` fails with.
std::string error_of(const std::filesystem::path& path, std::string_view name) {
  const auto opened = Checkpoint::open(path);
  if (!opened) return opened.error().to_string();
  const auto tensor = opened->read(name);
  return tensor ? "read" : tensor.error().to_string();
}

struct Case {
  std::string index;
  std::string error;
};

TEST(CheckpointErrors, Index) {
  const Folder folder;
  const std::string path = folder / kIndex;
  const std::string nested = "{\"metadata\":" + std::string(126, '[') + std::string(126, ']') +
                             ",\"weight_map\":{\"x\":\"x.safetensors\"}}";
  const Case cases[] = {
      {"", "byte 0: expected '{', found the end of the text"},
      {"[]", "byte 0: expected '{', found '[]'"},
      {"{}", "has no 'weight_map': is it the index of a model in several files?"},
      {R"({"weight_map":[]})", "byte 14: expected '{', found '[]}'"},
      {R"({"weight_map":null})", "byte 14: expected '{', found 'null}'"},
      {R"({"weight_map":{"x":5}})", "byte 19: expected a text in \"...\", found '5}}'"},
      {R"({"weight_map":{"x":"x.safetensors",}})", "byte 35: expected a text in \"...\", found '}}'"},
      {R"({"weight_map":{},"weight_map":{}})",
       "byte 17: expected no second 'weight_map', found '\"weight_map\":{}}'"},
      {R"({"weight_map":{}} x)",
       "byte 18: expected nothing but white space behind the index's '}', found 'x'"},
      {R"({"weight_map":{"x":"a","\u0078":"b"}})", "two entries have the name 'x'"},
      {"{\"weight_map\":{\"\xff\":\"a\"}}", "byte 16: the index is not UTF-8"},
      {R"({"metadata":nul})", "byte 12: expected a value, found 'nul}'"},
      {"{\"metadata\":" + std::string(1'000'000, '['),
       "byte 138: expected at most 127 objects and lists in each other, found '[[[[[[[[[[[[[[[[[[[['"},
  };
  for (const Case& c : cases) {
    tests::write_bytes(path, c.index);
    EXPECT_EQ(error_of(path, "x"), "Parse: Checkpoint::open '" + path + "': " + c.error);
    EXPECT_EQ(error_of(folder.path(), "x"), "Parse: Checkpoint::open '" + path + "': " + c.error);
  }
  tests::write_bytes(folder / "x.safetensors",
                     safetensors_file(R"({"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", ""));
  tests::write_bytes(path, nested);
  EXPECT_EQ(error_of(path, "x"), "read");
}

TEST(CheckpointErrors, AnIndexThatIsTooLarge) {
  const Folder folder;
  const std::string path = folder / kIndex;
  tests::write_bytes(path, "{");
  std::filesystem::resize_file(path, 100'000'001);
  EXPECT_EQ(error_of(path, "x"),
            "Parse: Checkpoint::open '" + path + "': 100000001 bytes, need at most 100000000");
}

TEST(CheckpointErrors, FilesOfAnIndex) {
  const Folder folder;
  const std::string path = folder / kIndex;
  const std::string good = safetensors_file(R"({"y":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                                            R"("s":{"dtype":"U16","shape":[0],"data_offsets":[0,0]}})",
                                            "");
  tests::write_bytes(folder / "x.safetensors", good);
  tests::write_bytes(folder / "cut.safetensors", good.substr(0, 20));
  ASSERT_EQ(::mkfifo((folder / "pipe.safetensors").c_str(), 0600), 0);
  const std::string leads_out = ", which leads out of its folder";
  const std::string need = ", need one that ends in .safetensors";
  const Case cases[] = {
      {"../x.safetensors", "Parse: the index names the file '../x.safetensors'" + leads_out},
      {"a/../../x.safetensors", "Parse: the index names the file 'a/../../x.safetensors'" + leads_out},
      {"..", "Parse: the index names the file '..'" + leads_out},
      {"/etc/x.safetensors", "Parse: the index names the file '/etc/x.safetensors'" + leads_out},
      {"", "Parse: the index names the file ''" + need},
      {".", "Parse: the index names the file '.'" + need},
      {"x.bin", "Parse: the index names the file 'x.bin'" + need},
      {"x.safetensors\\u0000.safetensors",
       "Parse: the index names the file 'x.safetensors\\x00.safetensors', which is no file's name"},
      {"none.safetensors",
       "Driver: in 'none.safetensors': tensor 'x' is in it, but the file is not there: put it beside the "
       "index"},
      {"cut.safetensors",
       "Parse: in 'cut.safetensors': byte 0: header of 106 bytes, but the file ends after 12"},
      {"pipe.safetensors",
       "InvalidArgument: in 'pipe.safetensors': not a regular file: copy it to one first"},
      {"x.safetensors", "Parse: in 'x.safetensors': no tensor 'x', there is 'y', 's'"},
  };
  for (const Case& c : cases) {
    tests::write_bytes(
        path, R"({"weight_map":{"x":")" + c.index + R"(","y":"x.safetensors","s":"x.safetensors"}})");
    const std::size_t colon = c.error.find(": ");
    const std::string want =
        c.error.substr(0, colon) + ": Checkpoint::read '" + path + "'" + c.error.substr(colon);
    const std::string got = error_of(path, "x");
    EXPECT_EQ(got.substr(0, got.find(" (code 2)")), want);
    // Another tensor has nothing to do with it.
    EXPECT_EQ(error_of(path, "y"), "read") << c.index;
  }
  EXPECT_EQ(error_of(path, "s"),
            "Unsupported: Checkpoint::read '" + path +
                "': in 'x.safetensors': tensor 's': type 'U16', need one of F64 F32 F16 BF16 F8_E4M3 F8_E5M2 "
                "I64 I32 I8 U32 U8 BOOL: store it as one of these");
}

TEST(CheckpointErrors, Names) {
  const Folder folder;
  const std::string path = folder / kIndex;
  std::string entries;
  for (int i = 0; i < 12; ++i) entries += fmt::format(R"("layers.{}.up":"f","layers.{}.down":"f",)", i, i);
  tests::write_bytes(path, R"({"weight_map":{)" + entries + R"("end":"f"}})");
  const std::string call = "InvalidArgument: Checkpoint::read '" + path + "': ";
  EXPECT_EQ(
      error_of(path, "layers.1.upp"),
      call +
          "no tensor 'layers.1.upp', there is 'layers.0.up', 'layers.0.down', 'layers.1.up', "
          "'layers.1.down', 'layers.2.up', 'layers.2.down', 'layers.3.up', 'layers.3.down' and 17 more");
  EXPECT_EQ(error_of(path, "1.down"),
            call + "no tensor '1.down', there is 'layers.1.down', 'layers.11.down'");
  EXPECT_EQ(
      error_of(path, ""),
      call +
          "it holds 25 tensors, name one of 'layers.0.up', 'layers.0.down', 'layers.1.up', "
          "'layers.1.down', 'layers.2.up', 'layers.2.down', 'layers.3.up', 'layers.3.down' and 17 more");
  tests::write_bytes(path, R"({"weight_map":{}})");
  EXPECT_EQ(error_of(path, "x"), call + "it holds no tensor");
}

TEST(CheckpointErrors, Folders) {
  const Folder folder;
  const std::string call = ": Checkpoint::open '" + folder.path().native() + "': ";
  const auto put = [&](const std::string& name) { tests::write_bytes(folder / name, ""); };
  put("model.bin");
  put("config.json");
  EXPECT_EQ(error_of(folder.path(), "x"),
            "InvalidArgument" + call + "the folder holds no *.safetensors.index.json and no *.safetensors");
  put("b.safetensors");
  put("a.safetensors");
  EXPECT_EQ(
      error_of(folder.path(), "x"),
      "InvalidArgument" + call + "the folder holds several: name one of 'a.safetensors', 'b.safetensors'");
  put("b.safetensors.index.json");
  put("a.safetensors.index.json");
  EXPECT_EQ(
      error_of(folder.path(), "x"),
      "InvalidArgument" + call +
          "the folder holds several: name one of 'a.safetensors.index.json', 'b.safetensors.index.json'");
  EXPECT_EQ(error_of(folder / "none.safetensors", "x"),
            "Driver: Checkpoint::open '" + std::string(folder / "none.safetensors") +
                "': cannot open it: No such file or directory (code 2)");
  EXPECT_EQ(error_of(folder / "none.json", "x"), "Driver: Checkpoint::open '" +
                                                     std::string(folder / "none.json") +
                                                     "': cannot open it: No such file or directory (code 2)");
  ASSERT_EQ(::mkfifo((folder / "pipe.json").c_str(), 0600), 0);
  EXPECT_EQ(error_of(folder / "pipe.json", "x"), "InvalidArgument: Checkpoint::open '" +
                                                     std::string(folder / "pipe.json") +
                                                     "': not a regular file: copy it to one first");
}

}  // namespace
}  // namespace tandem::io
