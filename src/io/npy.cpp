#include <tandem/io/npy.hpp>

#include "base/try.hpp"
#include "io/element_writer.hpp"
#include "io/errors.hpp"
#include "io/mapped_file.hpp"
#include "io/npy_header.hpp"
#include "io/whole_file.hpp"

namespace tandem::io {
namespace {

// The format has no bf16 and no f8.
DType stored_dtype(DType dtype) {
  const bool is_missing = dtype == DType::kBF16 || dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
  return is_missing ? DType::kF32 : dtype;
}

}  // namespace

Result<Tensor> read_npy(const std::filesystem::path& path) {
  return at_edge("read_npy", path, [&]() -> Result<Tensor> {
    TANDEM_ASSIGN(const auto file, MappedFile::open(path));
    TANDEM_ASSIGN(const NpyHeader header, parse_npy_header(file->bytes()));
    return tensor_in(file, header.data_offset, header.shape);
  });
}

Result<void> write_npy(const std::filesystem::path& path, const TensorView& tensor) {
  return at_edge("write_npy", path, [&]() -> Result<void> {
    TANDEM_TRY(check_writable(tensor));
    const DType dtype = stored_dtype(tensor.dtype);
    const std::string header = format_npy_header(tensor.sizes, dtype);
    TANDEM_ASSIGN(WholeFile file, WholeFile::create(path));
    TANDEM_TRY(file.write(header.data(), header.size()));
    TANDEM_TRY(write_elements(file, tensor, dtype));
    return file.commit();
  });
}

}  // namespace tandem::io
