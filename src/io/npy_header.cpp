#include "io/npy_header.hpp"

#include <bit>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/format.hpp"
#include "base/try.hpp"
#include "io/mapped_file.hpp"
#include "io/text_cursor.hpp"

namespace tandem::io {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read in place");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeaderBytes = std::size_t{1} << 20;

struct TypeName {
  std::string_view name;
  DType dtype;
};
constexpr TypeName kTypeNames[] = {{"<f2", DType::kF16}, {"<f4", DType::kF32}, {"<f8", DType::kF64},
                                   {"|u1", DType::kU8},  {"|i1", DType::kI8},  {"<u4", DType::kU32},
                                   {"<i4", DType::kI32}, {"<i8", DType::kI64}, {"|b1", DType::kBool}};

struct Preamble {
  std::size_t dict_offset = 0;
  std::size_t dict_bytes = 0;
};

Result<Preamble> parse_preamble(std::string_view file) {
  if (file.substr(0, kMagic.size()) != kMagic) {
    return failf(ErrorCode::kParse, "byte 0: not a .npy file: it begins with '{}', need '{}'",
                 printable(file.substr(0, kMagic.size())), printable(kMagic));
  }
  constexpr std::size_t kVersionOffset = kMagic.size();
  constexpr std::size_t kLengthOffset = kVersionOffset + 2;
  const auto byte = [&](std::size_t idx) {
    return static_cast<std::size_t>(static_cast<unsigned char>(file[idx]));
  };
  if (file.size() < kLengthOffset) return failf(ErrorCode::kParse, "cut off after {} bytes", file.size());
  const std::size_t major = byte(kVersionOffset);
  const std::size_t minor = byte(kVersionOffset + 1);
  if (major < 1 || major > 3 || minor != 0) {
    return failf(ErrorCode::kParse, "byte {}: version {}.{}, need 1.0, 2.0 or 3.0", kVersionOffset, major,
                 minor);
  }
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  Preamble preamble{kLengthOffset + length_bytes, 0};
  if (file.size() < preamble.dict_offset)
    return failf(ErrorCode::kParse, "cut off after {} bytes", file.size());
  for (std::size_t i = 0; i < length_bytes; ++i) preamble.dict_bytes |= byte(kLengthOffset + i) << (8 * i);
  if (preamble.dict_bytes > kMaxHeaderBytes) {
    return failf(ErrorCode::kParse, "byte {}: header of {} bytes, need at most {}", kLengthOffset,
                 preamble.dict_bytes, kMaxHeaderBytes);
  }
  if (preamble.dict_bytes > file.size() - preamble.dict_offset) {
    return failf(ErrorCode::kParse, "byte {}: header of {} bytes, but the file ends after {}", kLengthOffset,
                 preamble.dict_bytes, file.size() - preamble.dict_offset);
  }
  return preamble;
}

/// A Python string literal without escapes.
Result<std::string_view> parse_text(TextCursor& cursor) {
  TextCursor start = cursor;
  TANDEM_ASSIGN(const std::string_view text, cursor.quoted(cursor.peek() == '"' ? '"' : '\''));
  if (text.find('\\') != std::string_view::npos) return start.expected("a text without escapes");
  return text;
}

/// What makes an array of another type one of a type that is read: Python that runs as it stands.
std::string_view remedy_for(std::string_view descr) {
  const std::string_view kind = descr.substr(descr.empty() || !std::strchr("<>|=", descr[0]) ? 0 : 1);
  // Types of ml_dtypes: np.save drops their names, and np.load takes '<f1' for damage.
  if (kind == "V2") {
    return "bf16 of ml_dtypes is stored as this: save np.load(file).view(ml_dtypes.bfloat16)"
           ".astype(np.float32), or a .safetensors file";
  }
  if (kind == "V1") {
    return "f8 of ml_dtypes is stored as this: save np.load(file).view(ml_dtypes.float8_e4m3fn)"
           ".astype(np.float32), or with the type that it has; or a .safetensors file";
  }
  if (kind == "f1") {
    return "float8_e5m2 of ml_dtypes is stored as this, which np.load refuses: save array.astype(np.float32) "
           "instead of array, or a .safetensors file";
  }
  switch (kind.empty() ? '\0' : kind[0]) {
    case 'V':
      return "bytes without a type: save np.load(file).view(np.float32), or with the type that they have";
    case 'c':
      return "complex numbers: save np.load(file).real and .imag, each as np.float32";
    case 'O':
      return "Python objects: save np.array(objects, np.float32) where they are made";
    case 'f':
    case 'i':
    case 'u':
    case 'b':
    case 'U':
    case 'S':
    case 'M':
    case 'm':
      return "save np.load(file).astype(np.float32)";
    default:
      return "save the array as np.float32";
  }
}

Result<DType> parse_descr(TextCursor& cursor) {
  const std::size_t offset = cursor.offset();
  if (cursor.peek() == '[' || cursor.peek() == '(') {
    return failf(ErrorCode::kUnsupported,
                 "byte {}: elements of several fields: save each on its own, as np.load(file)['field']",
                 offset);
  }
  TANDEM_ASSIGN(const std::string_view name, parse_text(cursor));
  std::string known;
  for (const TypeName& type : kTypeNames) {
    if (type.name == name) return type.dtype;
    known += fmt::format(" {}", type.name);
  }
  return failf(ErrorCode::kUnsupported, "byte {}: element type '{}', need one of{}; {}", offset,
               printable(name), known, remedy_for(name));
}

Result<bool> parse_bool(TextCursor& cursor) {
  if (cursor.take("True")) return true;
  if (cursor.take("False")) return false;
  return cursor.expected("True or False");
}

Result<Dims> parse_sizes(TextCursor& cursor) {
  const std::size_t offset = cursor.offset();
  Dims sizes;
  TANDEM_TRY(cursor.expect("("));
  while (!cursor.take(")")) {
    if (sizes.size() == kMaxDims) {
      return failf(ErrorCode::kUnsupported, "byte {}: more than {} dimensions", offset, kMaxDims);
    }
    TANDEM_ASSIGN(const std::int64_t size, cursor.count());
    sizes.push_back(size);
    (void)cursor.take("L");  // written by Python 2
    if (cursor.take(",")) continue;
    if (sizes.size() == 1) return cursor.expected("','");
    TANDEM_TRY(cursor.expect(")"));
    break;
  }
  return sizes;
}

struct Dict {
  std::optional<DType> dtype;
  std::optional<bool> fortran_order;
  std::optional<Dims> sizes;
};

/// Stores what `parse` reads; a key may come once.
template <class T>
Result<void> parse_once(TextCursor& cursor, std::string_view key, std::optional<T>& value,
                        Result<T> (*parse)(TextCursor&)) {
  if (value) return cursor.expected(fmt::format("no second '{}'", key));
  TANDEM_ASSIGN(value, parse(cursor));
  return {};
}

Result<Dict> parse_dict(TextCursor& cursor) {
  Dict dict;
  TANDEM_TRY(cursor.expect("{"));
  while (!cursor.take("}")) {
    TextCursor key_start = cursor;
    TANDEM_ASSIGN(const std::string_view key, parse_text(cursor));
    TANDEM_TRY(cursor.expect(":"));
    if (key == "descr") {
      TANDEM_TRY(parse_once(cursor, key, dict.dtype, parse_descr));
    } else if (key == "fortran_order") {
      TANDEM_TRY(parse_once(cursor, key, dict.fortran_order, parse_bool));
    } else if (key == "shape") {
      TANDEM_TRY(parse_once(cursor, key, dict.sizes, parse_sizes));
    } else {
      return key_start.expected("'descr', 'fortran_order' or 'shape'");
    }
    if (cursor.take(",")) continue;
    TANDEM_TRY(cursor.expect("}"));
    break;
  }
  if (!cursor.at_end()) return cursor.expected("nothing behind the header's '}'");
  if (!dict.dtype) return cursor.expected("the key 'descr'");
  if (!dict.fortran_order) return cursor.expected("the key 'fortran_order'");
  if (!dict.sizes) return cursor.expected("the key 'shape'");
  return dict;
}

Dims fortran_strides(const Dims& sizes) {
  Dims strides = sizes;
  std::int64_t stride = 1;
  for (int d = 0; d < sizes.size(); ++d) {
    strides[d] = stride;
    stride *= sizes[d];
  }
  return strides;
}

}  // namespace

Result<NpyHeader> parse_npy_header(std::span<const std::byte> bytes) {
  const std::string_view file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  TANDEM_ASSIGN(const Preamble preamble, parse_preamble(file));
  TextCursor cursor(file.substr(preamble.dict_offset, preamble.dict_bytes), preamble.dict_offset);
  TANDEM_ASSIGN(const Dict dict, parse_dict(cursor));

  NpyHeader header;
  header.data_offset = preamble.dict_offset + preamble.dict_bytes;
  header.shape = TensorView{nullptr, *dict.sizes, {}, *dict.dtype, {}};
  const auto needed = checked_size_bytes(*dict.sizes, *dict.dtype);
  const std::size_t present = file.size() - header.data_offset;
  if (!needed) {
    return failf(ErrorCode::kParse, "{} {} is more than 2^63 - 1 bytes", to_string(*dict.dtype),
                 to_string(*dict.sizes));
  }
  if (static_cast<std::size_t>(*needed) != present) {
    return failf(ErrorCode::kParse, "byte {}: {} {} needs {} bytes, {} follow: the file is {}",
                 header.data_offset, to_string(*dict.dtype), to_string(*dict.sizes), *needed, present,
                 static_cast<std::size_t>(*needed) > present
                     ? "cut off"
                     : "longer than its header says: save each array in a file of its own");
  }
  header.shape.strides = *dict.fortran_order ? fortran_strides(*dict.sizes) : contiguous_strides(*dict.sizes);
  return header;
}

std::string format_npy_header(const Dims& sizes, DType dtype) {
  std::string_view descr;
  for (const TypeName& type : kTypeNames) {
    if (type.dtype == dtype) descr = type.name;
  }
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                                 fmt::join(sizes.begin(), sizes.end(), ", "), sizes.size() == 1 ? "," : "");
  constexpr std::size_t kAlignment = 64;
  const std::size_t fixed_bytes = kMagic.size() + 4;
  const std::size_t total_bytes = (fixed_bytes + dict.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  dict.resize(total_bytes - fixed_bytes - 1, ' ');
  dict += '\n';
  std::string header(kMagic);
  header += {'\1', '\0', static_cast<char>(dict.size() & 0xffU), static_cast<char>(dict.size() >> 8)};
  return header + dict;
}

}  // namespace tandem::io
