#include "io/mapped_file.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/try.hpp"
#include "io/errors.hpp"
#include "io/regular_file.hpp"

namespace tandem::io {

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  TANDEM_ASSIGN(const RegularFile file, open_regular(path));
  if (file.size_bytes == 0) return fail(ErrorCode::kParse, "the file is empty");
  void* data = ::mmap(nullptr, file.size_bytes, PROT_READ, MAP_PRIVATE, file.fd.get(), 0);
  if (data == MAP_FAILED) return system_error("cannot map it", errno);
  try {
    return std::make_shared<const MappedFile>(data, file.size_bytes);
  } catch (...) {
    ::munmap(data, file.size_bytes);
    throw;
  }
}

MappedFile::~MappedFile() {
  ::munmap(data_, size_bytes_);
}

Tensor tensor_in(const std::shared_ptr<const MappedFile>& file, std::size_t offset, const TensorView& shape) {
  const std::byte* elements = file->bytes().data() + offset;
  TensorView view = shape;
  if (reinterpret_cast<std::uintptr_t>(elements) % static_cast<std::uintptr_t>(size_bytes(shape.dtype)) ==
      0) {
    // The pages cannot be written to; a view has no other pointer type.
    view.data = const_cast<std::byte*>(elements);
    view.is_read_only = true;
    return {view, std::shared_ptr<void>(file, view.data)};
  }
  const Tensor copy = Tensor::host(shape.sizes, shape.dtype);
  view.data = copy.view().data;
  std::memcpy(view.data, elements, static_cast<std::size_t>(shape.size_bytes()));
  return {view, copy.owner()};
}

std::optional<std::int64_t> checked_size_bytes(const Dims& sizes, DType dtype) {
  std::int64_t with_ones_for_zeros = size_bytes(dtype);
  for (const std::int64_t size : sizes) {
    if (__builtin_mul_overflow(with_ones_for_zeros, std::max<std::int64_t>(size, 1), &with_ones_for_zeros)) {
      return std::nullopt;
    }
  }
  return numel(sizes) * size_bytes(dtype);
}

}  // namespace tandem::io
