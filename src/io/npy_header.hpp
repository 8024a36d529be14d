#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem::io {

struct NpyHeader {
  std::size_t data_offset = 0;
  /// Sizes, strides and type of the elements; no data.
  TensorView shape;
};

/// Parses and checks the header of a whole .npy file, its size included.
[[nodiscard]] Result<NpyHeader> parse_npy_header(std::span<const std::byte> file);

/// The version 1.0 header of a C-order file; its size is a multiple of 64. `dtype` is one that the format
/// has.
[[nodiscard]] std::string format_npy_header(const Dims& sizes, DType dtype);

}  // namespace tandem::io
