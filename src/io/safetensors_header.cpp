#include "io/safetensors_header.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <tuple>

#include "base/format.hpp"
#include "base/try.hpp"
#include "io/json_text.hpp"
#include "io/mapped_file.hpp"
#include "io/text_cursor.hpp"
#include "io/utf8.hpp"

namespace tandem::io {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read in place");

constexpr std::size_t kLengthBytes = 8;
// {"":{"dtype":"U8","shape":[],"data_offsets":[0,1]},
constexpr std::size_t kFewestBytesPerTensor = 48;

struct TypeName {
  std::string_view name;
  DType dtype;
};
constexpr TypeName kTypeNames[] = {
    {"F64", DType::kF64},        {"F32", DType::kF32},        {"F16", DType::kF16}, {"BF16", DType::kBF16},
    {"F8_E4M3", DType::kF8E4M3}, {"F8_E5M2", DType::kF8E5M2}, {"I64", DType::kI64}, {"I32", DType::kI32},
    {"I8", DType::kI8},          {"U32", DType::kU32},        {"U8", DType::kU8},   {"BOOL", DType::kBool}};

Result<DType> parse_dtype_name(TextCursor& cursor) {
  const std::size_t offset = cursor.offset();
  TANDEM_ASSIGN(const std::string_view name, cursor.quoted('"'));
  std::string known;
  for (const TypeName& type : kTypeNames) {
    if (type.name == name) return type.dtype;
    known += fmt::format(" {}", type.name);
  }
  return failf(ErrorCode::kUnsupported, "byte {}: type '{}', need one of{}", offset, printable(name), known);
}

/// Calls `parse_item` for each item of a list in `open` ... `close`.
template <class ParseItem>
Result<void> parse_list(TextCursor& cursor, std::string_view open, std::string_view close,
                        ParseItem&& parse_item) {
  TANDEM_TRY(cursor.expect(open));
  if (cursor.take(close)) return {};
  for (;;) {
    TANDEM_TRY(parse_item());
    if (cursor.take(close)) return {};
    if (!cursor.take(",")) return cursor.expected(fmt::format("',' or '{}'", close));
  }
}

Result<Dims> parse_sizes(TextCursor& cursor) {
  const std::size_t offset = cursor.offset();
  Dims sizes;
  TANDEM_TRY(parse_list(cursor, "[", "]", [&]() -> Result<void> {
    if (sizes.size() == kMaxDims) {
      return failf(ErrorCode::kUnsupported, "byte {}: more than {} dimensions", offset, kMaxDims);
    }
    TANDEM_ASSIGN(const std::int64_t size, cursor.count());
    sizes.push_back(size);
    return {};
  }));
  return sizes;
}

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Result<Range> parse_range(TextCursor& cursor) {
  TANDEM_TRY(cursor.expect("["));
  TANDEM_ASSIGN(const std::int64_t begin, cursor.count());
  TANDEM_TRY(cursor.expect(","));
  TANDEM_ASSIGN(const std::int64_t end, cursor.count());
  TANDEM_TRY(cursor.expect("]"));
  return Range{static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end)};
}

}  // namespace

/// Fills a header from its text; the form of the text is fixed, so nothing nests deeper than it may.
class SafetensorsHeader::Parser {
 public:
  Parser(SafetensorsHeader& header, std::uint64_t data_bytes)
      : header_(header), cursor_(header.text_, kLengthBytes), data_bytes_(data_bytes) {}

  Result<void> parse() {
    if (const auto invalid = find_invalid_utf8(header_.text_)) {
      return failf(ErrorCode::kParse, "byte {}: the header is not UTF-8", kLengthBytes + *invalid);
    }
    TANDEM_TRY(parse_list(cursor_, "{", "}", [&] { return parse_member(); }));
    if (!cursor_.at_end()) return cursor_.expected("nothing but white space behind the header's '}'");
    return {};
  }

 private:
  struct Fields {
    std::optional<DType> dtype;
    std::optional<Dims> sizes;
    std::optional<Range> range;
    std::size_t sizes_offset = 0;
  };

  Result<void> parse_member() {
    const std::size_t name_at = header_.names_.size();
    TANDEM_TRY(parse_json_text(cursor_, &header_.names_));
    const std::string_view name = std::string_view(header_.names_).substr(name_at);
    TANDEM_TRY(cursor_.expect(":"));
    if (name == kMetadataKey) {
      header_.names_.resize(name_at);
      return parse_metadata();
    }
    Fields fields;
    Result<void> result = parse_list(cursor_, "{", "}", [&] { return parse_field(fields); });
    if (result) result = add_record(fields, name_at);
    return result.map_error([&](const Error& error) {
      return Error(error.code(), fmt::format("tensor '{}': {}", printable(name), error.text()));
    });
  }

  Result<void> parse_metadata() {
    if (has_metadata_) return cursor_.expected(fmt::format("no second '{}'", kMetadataKey));
    has_metadata_ = true;
    return parse_list(cursor_, "{", "}", [&]() -> Result<void> {
      TANDEM_TRY(parse_json_text(cursor_, nullptr));
      TANDEM_TRY(cursor_.expect(":"));
      return parse_json_text(cursor_, nullptr);
    });
  }

  Result<void> parse_field(Fields& fields) {
    TextCursor key_start = cursor_;
    TANDEM_ASSIGN(const std::string_view key, cursor_.quoted('"'));
    TANDEM_TRY(cursor_.expect(":"));
    const bool is_repeated = (key == "dtype" && fields.dtype) || (key == "shape" && fields.sizes) ||
                             (key == "data_offsets" && fields.range);
    if (is_repeated) return key_start.expected("no key twice");
    if (key == "dtype") {
      TANDEM_ASSIGN(fields.dtype, parse_dtype_name(cursor_));
    } else if (key == "shape") {
      fields.sizes_offset = cursor_.offset();
      TANDEM_ASSIGN(fields.sizes, parse_sizes(cursor_));
    } else if (key == "data_offsets") {
      TANDEM_ASSIGN(fields.range, parse_range(cursor_));
    } else {
      return key_start.expected("'dtype', 'shape' or 'data_offsets'");
    }
    return {};
  }

  Result<void> add_record(const Fields& fields, std::size_t name_at) {
    if (!fields.dtype || !fields.sizes || !fields.range) {
      return failf(ErrorCode::kParse, "has no '{}'",
                   !fields.dtype   ? "dtype"
                   : !fields.sizes ? "shape"
                                   : "data_offsets");
    }
    const auto [begin, end] = *fields.range;
    if (begin > end || end > data_bytes_) {
      return failf(ErrorCode::kParse, "data_offsets [{}, {}] do not lie in the {} bytes of data", begin, end,
                   data_bytes_);
    }
    const auto needed = checked_size_bytes(*fields.sizes, *fields.dtype);
    if (!needed || static_cast<std::uint64_t>(*needed) != end - begin) {
      return failf(ErrorCode::kParse, "{} {} needs {} bytes, data_offsets [{}, {}] hold {}",
                   to_string(*fields.dtype), to_string(*fields.sizes),
                   needed ? std::to_string(*needed) : "more than 2^63 - 1", begin, end, end - begin);
    }
    header_.records_.push_back({begin, end, static_cast<std::uint32_t>(name_at),
                                static_cast<std::uint32_t>(header_.names_.size() - name_at),
                                static_cast<std::uint32_t>(fields.sizes_offset - kLengthBytes),
                                *fields.dtype});
    return {};
  }

  SafetensorsHeader& header_;
  TextCursor cursor_;
  std::uint64_t data_bytes_;
  bool has_metadata_ = false;
};

Result<SafetensorsHeader> SafetensorsHeader::parse(std::span<const std::byte> bytes) {
  const std::string_view file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (file.size() < kLengthBytes) {
    return failf(ErrorCode::kParse, "{} bytes are no .safetensors file: its header's length alone has {}",
                 file.size(), kLengthBytes);
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<std::uint64_t>(static_cast<unsigned char>(file[i])) << (8 * i);
  }
  if (length > kMaxSafetensorsHeaderBytes) {
    return failf(ErrorCode::kParse, "byte 0: header of {} bytes, need at most {}: is it a .safetensors file?",
                 length, kMaxSafetensorsHeaderBytes);
  }
  if (length > file.size() - kLengthBytes) {
    return failf(ErrorCode::kParse, "byte 0: header of {} bytes, but the file ends after {}", length,
                 file.size() - kLengthBytes);
  }
  SafetensorsHeader header;
  header.text_ = file.substr(kLengthBytes, length);
  header.data_offset_ = kLengthBytes + length;
  // What will not be used is never touched, so it costs addresses but no memory.
  header.names_.reserve(length);
  header.records_.reserve(length / kFewestBytesPerTensor);
  const std::uint64_t data_bytes = file.size() - header.data_offset_;
  TANDEM_TRY(Parser(header, data_bytes).parse());
  TANDEM_TRY(header.check_names());
  TANDEM_TRY(header.check_ranges(data_bytes));
  std::sort(header.records_.begin(), header.records_.end(),
            [](const Record& x, const Record& y) { return x.sizes_at < y.sizes_at; });
  return header;
}

Result<void> SafetensorsHeader::check_names() {
  const auto by_name = [&](const Record& x, const Record& y) { return name_of(x) < name_of(y); };
  std::sort(records_.begin(), records_.end(), by_name);
  const auto twice =
      std::adjacent_find(records_.begin(), records_.end(),
                         [&](const Record& x, const Record& y) { return name_of(x) == name_of(y); });
  if (twice == records_.end()) return {};
  return failf(ErrorCode::kParse, "two tensors have the name '{}'", printable(name_of(*twice)));
}

Result<void> SafetensorsHeader::check_ranges(std::uint64_t data_bytes) {
  std::sort(records_.begin(), records_.end(), [](const Record& x, const Record& y) {
    return std::tie(x.begin, x.end) < std::tie(y.begin, y.end);
  });
  std::uint64_t covered = 0;
  const Record* previous = nullptr;
  for (const Record& record : records_) {
    if (record.begin < covered) {
      return failf(ErrorCode::kParse, "tensors '{}' and '{}' overlap: data_offsets [{}, {}] and [{}, {}]",
                   printable(name_of(*previous)), printable(name_of(record)), previous->begin, previous->end,
                   record.begin, record.end);
    }
    if (record.begin > covered) {
      return failf(ErrorCode::kParse, "bytes {} to {} of the data, before tensor '{}', belong to no tensor",
                   covered, record.begin, printable(name_of(record)));
    }
    covered = record.end;
    previous = &record;
  }
  if (covered == data_bytes) return {};
  return failf(ErrorCode::kParse, "bytes {} to {} of the data, at the end, belong to no tensor", covered,
               data_bytes);
}

TensorView SafetensorsHeader::shape(std::size_t idx) const {
  const Record& record = records_[idx];
  TextCursor cursor(text_.substr(record.sizes_at), 0);
  // parse() has read the same text.
  return TensorView::contiguous(nullptr, *parse_sizes(cursor), record.dtype);
}

std::string format_safetensors_header(std::span<const TensorEntry> entries) {
  std::string text = "{";
  for (const TensorEntry& entry : entries) {
    std::string_view dtype;
    for (const TypeName& type : kTypeNames) {
      if (type.dtype == entry.dtype) dtype = type.name;
    }
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                        text.size() > 1 ? "," : "", json_text(entry.name), dtype,
                        fmt::join(entry.sizes.begin(), entry.sizes.end(), ","), entry.begin, entry.end);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string header;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    header += static_cast<char>((text.size() >> (8 * i)) & 0xffU);
  return header + text;
}

}  // namespace tandem::io
