#include "base/byte_size.hpp"

#include <algorithm>

#include "base/format.hpp"

namespace tandem {

Result<std::int64_t> byte_size(const Dims& sizes, DType dtype, std::string_view who) {
  const std::int64_t element_bytes = size_bytes(dtype);
  if (element_bytes == 0)
    return failf(ErrorCode::kInvalidArgument, "{}: {} is no dtype", who, static_cast<int>(dtype));
  std::int64_t num_bytes = element_bytes;
  bool overflow = false;
  bool is_empty = false;
  for (const std::int64_t size : sizes) {
    if (size < 0) {
      return failf(ErrorCode::kInvalidArgument, "{}: sizes {}: negative size {}", who, to_string(sizes),
                   size);
    }
    is_empty = is_empty || size == 0;
    if (!is_empty) overflow = __builtin_mul_overflow(num_bytes, size, &num_bytes) || overflow;
  }
  if (is_empty) return 0;
  if (overflow || num_bytes > kMostBytes) {
    return failf(ErrorCode::kInvalidArgument, "{}: sizes {} of {}: more than 2^62 bytes", who,
                 to_string(sizes), to_string(dtype));
  }
  return num_bytes;
}

std::int64_t add_bytes(std::int64_t x, std::int64_t y) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(x, y, &sum) ? kMostBytes : std::min(sum, kMostBytes);
}

std::int64_t multiply_bytes(std::int64_t x, std::int64_t y) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(x, y, &product) ? kMostBytes : std::min(product, kMostBytes);
}

}  // namespace tandem
