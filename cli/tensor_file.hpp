#pragma once

#include <string>
#include <tandem/base/tensor.hpp>

namespace tandem::cli {

/// Reads "file.npy" or, of a model in .safetensors files, "path#name"; the path is that of a file, an index
/// or a folder (io::Checkpoint). The tensor maps the file. Throws exit 2; `flag` is named in the text.
[[nodiscard]] Tensor read_tensor_file(const std::string& spec, const std::string& flag);

/// Claims an output whose name has to have a known ending. Throws exit 2.
void claim_tensor_file(const std::string& path);

/// .npy: f32, named by nothing; .safetensors: the tensor's type under the key "out". Appears whole or not at
/// all.
void write_tensor_file(const std::string& path, const TensorView& tensor);
/// The type that write_tensor_file() stores.
[[nodiscard]] DType stored_dtype(const std::string& path, DType dtype);

}  // namespace tandem::cli
