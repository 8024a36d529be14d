#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tandem/base/unique_fd.hpp>

#include "io/errors.hpp"

namespace tandem::io {

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe that nobody writes to returns at once; it means nothing to a regular file.
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd.valid()) return system_error("cannot open it", errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return system_error("cannot stat it", errno);
  if (!S_ISREG(status.st_mode)) {
    return fail(ErrorCode::kInvalidArgument,
                "not a regular file: it has to be mapped, so copy it to one first");
  }
  if (status.st_size == 0) return fail(ErrorCode::kParse, "the file is empty");
  const auto size_bytes = static_cast<std::size_t>(status.st_size);
  void* data = ::mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return system_error("cannot map it", errno);
  try {
    return std::make_shared<const MappedFile>(data, size_bytes);
  } catch (...) {
    ::munmap(data, size_bytes);
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
