#include "tensor_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <tandem/base/convert.hpp>
#include <tandem/io/checkpoint.hpp>
#include <tandem/io/npy.hpp>
#include <tandem/io/safetensors.hpp>

#include "failure.hpp"
#include "outputs.hpp"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

bool is_npy(const fs::path& path) {
  return path.extension() == ".npy";
}
bool is_safetensors(const fs::path& path) {
  return path.extension() == ".safetensors";
}
bool is_index(const fs::path& path) {
  return path.extension() == ".json";
}

struct Spec {
  std::string path;
  std::string name;
};

/// Cuts "path#name" in two; either may have a '#' in it. docs/cli.md states the rule.
std::optional<Spec> split(const std::string& spec) {
  const auto is_folder = [](const std::string& path) {
    std::error_code ignored;
    return fs::is_directory(path, ignored);
  };
  std::optional<std::string> file, folder, missing;
  for (std::size_t at = 0; at != std::string::npos;) {
    at = spec.find('#', at + 1);
    const std::string path = spec.substr(0, at);
    if (is_folder(path)) {
      folder = path;
      continue;
    }
    if (!is_npy(path) && !is_safetensors(path) && !is_index(path)) continue;
    std::error_code ignored;
    std::optional<std::string>& first = fs::exists(path, ignored) ? file : missing;
    if (!first) first = path;
  }
  const auto& path = file ? file : folder ? folder : missing;
  if (!path) return std::nullopt;
  return Spec{*path, spec.substr(std::min(path->size() + 1, spec.size()))};
}

}  // namespace

Tensor read_tensor_file(const std::string& spec, const std::string& flag) {
  const auto found = split(spec);
  if (!found) {
    bad_input(
        fmt::format("{} {}: need a file whose name ends in .npy, .safetensors or .safetensors.index.json, "
                    "or a folder with a model",
                    flag, spec));
  }
  const auto& [path, name] = *found;
  if (is_npy(path) && !name.empty()) {
    bad_input(fmt::format("{} {}: a .npy file holds one tensor; leave out '#{}'", flag, spec, name));
  }
  if (is_npy(path)) return take_input(io::read_npy(path), flag);
  const io::Checkpoint tensors = take_input(io::Checkpoint::open(path), flag);
  return take_input(tensors.read(name), flag);
}

void claim_tensor_file(const std::string& path) {
  if (!is_npy(path) && !is_safetensors(path)) {
    bad_input(fmt::format("--out {}: need a file whose name ends in .npy or .safetensors", path));
  }
  claim_output("--out", path);
}

DType stored_dtype(const std::string& path, DType dtype) {
  return is_npy(path) ? DType::kF32 : dtype;
}

void write_tensor_file(const std::string& path, const TensorView& tensor) {
  const Writing writing(path);
  if (is_safetensors(path)) {
    take(io::write_safetensors(path, {{"out", tensor}}));
  } else if (tensor.dtype == DType::kF32) {
    take(io::write_npy(path, tensor));
  } else {
    const Tensor widened = Tensor::host(tensor.sizes, DType::kF32);
    take(convert(tensor, widened.view()));
    take(io::write_npy(path, widened.view()));
  }
  writing.kept();
}

}  // namespace tandem::cli
