#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <tandem/base/convert.hpp>
#include <tandem/io/checkpoint.hpp>
#include <tandem/io/safetensors.hpp>
#include <vector>

#include "support/io_folder.hpp"

namespace tandem::io {
namespace {

using tests::Folder;
using tests::write_bytes;

/// A file whose tensors are f32 scalars: names and values.
void write_scalars(const std::filesystem::path& path,
                   const std::vector<std::pair<std::string, float>>& scalars) {
  std::vector<Tensor> tensors;
  std::vector<NamedView> views;
  for (const auto& [name, value] : scalars) {
    tensors.push_back(Tensor::host({}, DType::kF32));
    *tensors.back().view().data_as<float>() = value;
    views.push_back({name, tensors.back().view()});
  }
  const auto written = write_safetensors(path, views);
  ASSERT_TRUE(written.has_value()) << written.error().to_string();
}

Checkpoint open_good(const std::filesystem::path& path) {
  auto opened = Checkpoint::open(path);
  EXPECT_TRUE(opened.has_value()) << opened.error().to_string();
  return *std::move(opened);
}

void expect_value(const Checkpoint& checkpoint, const std::string& name, double value) {
  const auto tensor = checkpoint.read(name);
  ASSERT_TRUE(tensor.has_value()) << tensor.error().to_string();
  EXPECT_EQ(element_as_f64(tensor->view(), 0), value) << name;
}

constexpr const char* kIndex = "model.safetensors.index.json";

TEST(Checkpoint, ReadsAModelInSeveralFiles) {
  const Folder folder;
  write_scalars(folder / "model-1.safetensors", {{"embed", 1}, {"layers.0.up", 2}});
  std::filesystem::create_directory(folder / "more");
  write_scalars(folder / "more/model-2.safetensors", {{"layers.1.up", 3}});
  write_bytes(folder / kIndex, R"({"metadata": {"total_size": 12, "x": [null, {"weight_map": {"a": "b"}}]},
      "weight_map": {"layers.1.up": "more/model-2.safetensors", "\u0065mbed": "model-1.safetensors",
                     "layers.0.up": "model-1\u002esafetensors", "elsewhere": "not-here.safetensors"}})");
  // By the index, by the folder, and by a link to the index: files are beside the link.
  const Folder other;
  write_bytes(other / "blob", tests::read_bytes(folder / kIndex));
  const Folder linked;
  std::filesystem::create_symlink(other / "blob", linked / kIndex);
  std::filesystem::create_symlink(folder / "model-1.safetensors", linked / "model-1.safetensors");
  std::filesystem::create_symlink(folder / "more", linked / "more");
  for (const std::filesystem::path& path :
       {folder / kIndex, folder.path(), folder.path() / "", linked / kIndex, linked.path()}) {
    SCOPED_TRACE(path);
    const Checkpoint checkpoint = open_good(path);
    ASSERT_EQ(checkpoint.size(), 4U);
    EXPECT_EQ(checkpoint.name(0), "layers.1.up");
    EXPECT_EQ(checkpoint.name(1), "embed");
    expect_value(checkpoint, "embed", 1);
    expect_value(checkpoint, "layers.0.up", 2);
    expect_value(checkpoint, "layers.1.up", 3);
  }
}

TEST(Checkpoint, ReadsAModelInOneFile) {
  const Folder folder;
  write_scalars(folder / "weights.safetensors", {{"a", 1}, {"", 2}, {"c#1", 3}});
  write_bytes(folder / "config.json", "{}");
  for (const std::filesystem::path& path : {folder / "weights.safetensors", folder.path()}) {
    const Checkpoint checkpoint = open_good(path);
    ASSERT_EQ(checkpoint.size(), 3U);
    EXPECT_EQ(checkpoint.name(2), "c#1");
    expect_value(checkpoint, "a", 1);
    expect_value(checkpoint, "", 2);
    expect_value(checkpoint, "c#1", 3);
  }
}

TEST(Checkpoint, EmptyNameMeansTheOnlyTensor) {
  const Folder folder;
  write_scalars(folder / "x.safetensors", {{"a", 1}, {"b", 2}});
  write_bytes(folder / "x.safetensors.index.json", R"({"weight_map": {"b": "x.safetensors"}})");
  expect_value(open_good(folder.path()), "", 2);
}

TEST(Checkpoint, AnIndexComesBeforeFilesInItsFolder) {
  const Folder folder;
  write_scalars(folder / "a.safetensors", {{"x", 1}});
  write_scalars(folder / "b.safetensors", {{"x", 2}});
  write_bytes(folder / "m.safetensors.index.json", R"({"weight_map":{"x":"b.safetensors"}})");
  write_bytes(folder / "pytorch_model.bin.index.json", "{}");
  expect_value(open_good(folder.path()), "x", 2);
}

TEST(Checkpoint, ATensorOutlivesItsCheckpointAndItsFiles) {
  const Folder folder;
  write_scalars(folder / "x.safetensors", {{"x", 7}});
  Tensor tensor;
  {
    Checkpoint moved = open_good(folder.path());
    const Checkpoint checkpoint = std::move(moved);
    auto read = checkpoint.read("x");
    ASSERT_TRUE(read.has_value());
    tensor = *std::move(read);
  }
  std::filesystem::remove(folder / "x.safetensors");
  EXPECT_EQ(element_as_f64(tensor.view(), 0), 7);
}

}  // namespace
}  // namespace tandem::io
