#include "io/safetensors_header.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

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
// "":["",[],[0,0]],
constexpr std::size_t kFewestBytesPerTensor = 17;

struct TypeName {
  std::string_view name;
  int bits = 0;
  std::optional<DType> dtype;  ///< none: files may hold it, a TensorView cannot
};
constexpr TypeName kTypeNames[] = {{"F64", 64, DType::kF64},
                                   {"F32", 32, DType::kF32},
                                   {"F16", 16, DType::kF16},
                                   {"BF16", 16, DType::kBF16},
                                   {"F8_E4M3", 8, DType::kF8E4M3},
                                   {"F8_E5M2", 8, DType::kF8E5M2},
                                   {"I64", 64, DType::kI64},
                                   {"I32", 32, DType::kI32},
                                   {"I8", 8, DType::kI8},
                                   {"U32", 32, DType::kU32},
                                   {"U8", 8, DType::kU8},
                                   {"BOOL", 8, DType::kBool},
                                   {"F8_E8M0", 8, {}},
                                   {"F8_E4M3FNUZ", 8, {}},
                                   {"F8_E5M2FNUZ", 8, {}},
                                   {"F6_E2M3", 6, {}},
                                   {"F6_E3M2", 6, {}},
                                   {"F4", 4, {}},
                                   {"I16", 16, {}},
                                   {"U16", 16, {}},
                                   {"U64", 64, {}},
                                   {"C64", 64, {}}};

const TypeName* find_type(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTypeNames), std::end(kTypeNames),
                                   [&](const TypeName& type) { return type.name == name; });
  return found == std::end(kTypeNames) ? nullptr : found;
}

/// A type's name, plain or, as some writers of JSON have it, as the only key of an object: {"F32":null}.
Result<void> parse_type(TextCursor& cursor, std::string* name) {
  if (!cursor.take("{")) return parse_json_text(cursor, name);
  TANDEM_TRY(parse_json_text(cursor, name));
  for (const char* token : {":", "null", "}"}) TANDEM_TRY(cursor.expect(token));
  return {};
}

/// Calls `use_size` with each size.
template <class UseSize>
Result<void> parse_sizes(TextCursor& cursor, UseSize&& use_size) {
  return parse_json_list(cursor, "[", "]", [&]() -> Result<void> {
    TANDEM_ASSIGN(const std::uint64_t size, cursor.large_count());
    use_size(size);
    return {};
  });
}

struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

Result<Range> parse_range(TextCursor& cursor) {
  TANDEM_TRY(cursor.expect("["));
  TANDEM_ASSIGN(const std::uint64_t begin, cursor.large_count());
  TANDEM_TRY(cursor.expect(","));
  TANDEM_ASSIGN(const std::uint64_t end, cursor.large_count());
  TANDEM_TRY(cursor.expect("]"));
  return Range{begin, end};
}

}  // namespace

/// Fills a header from its text; the form of the text is fixed, so nothing nests deeper than it may.
class SafetensorsHeader::Parser {
 public:
  explicit Parser(SafetensorsHeader& header) : header_(header), cursor_(header.text_, kLengthBytes) {}

  Result<void> parse() {
    if (const auto invalid = find_invalid_utf8(header_.text_)) {
      return failf(ErrorCode::kParse, "byte {}: the header is not UTF-8", kLengthBytes + *invalid);
    }
    TANDEM_TRY(parse_json_list(cursor_, "{", "}", [&] { return parse_member(); }));
    if (!cursor_.at_end()) return cursor_.expected("nothing but white space behind the header's '}'");
    return {};
  }

 private:
  struct Fields {
    std::optional<std::size_t> type_at;  // offsets in the file
    std::optional<std::size_t> sizes_at;
    std::optional<Range> range;
  };

  Result<void> parse_member() {
    const std::size_t name_at = header_.names_.size();
    TANDEM_TRY(parse_json_text(cursor_, &header_.names_));
    const std::string_view name = std::string_view(header_.names_).substr(name_at);
    const auto name_size = static_cast<std::uint32_t>(name.size());
    TANDEM_TRY(cursor_.expect(":"));
    if (name == kMetadataKey) {
      header_.names_.resize(name_at);
      return parse_metadata();
    }
    Fields fields;
    Result<void> result = parse_tensor(fields);
    if (result) result = check_complete(fields);
    if (result) {
      header_.records_.push_back({fields.range->begin, fields.range->end, static_cast<std::uint32_t>(name_at),
                                  name_size, static_cast<std::uint32_t>(*fields.type_at - kLengthBytes),
                                  static_cast<std::uint32_t>(*fields.sizes_at - kLengthBytes)});
    }
    return result.map_error([&](const Error& error) {
      const std::string_view shown = std::string_view(header_.names_).substr(name_at, name_size);
      return Error(error.code(), fmt::format("tensor '{}': {}", printable_name(shown), error.text()));
    });
  }

  Result<void> parse_metadata() {
    if (has_metadata_) return cursor_.expected(fmt::format("no second '{}'", kMetadataKey));
    has_metadata_ = true;
    if (cursor_.take("null")) return {};
    return parse_json_list(cursor_, "{", "}", [&]() -> Result<void> {
      TANDEM_TRY(parse_json_text(cursor_, nullptr));
      TANDEM_TRY(cursor_.expect(":"));
      return parse_json_text(cursor_, nullptr);
    });
  }

  /// An object, or a list of the three fields in order.
  Result<void> parse_tensor(Fields& fields) {
    if (cursor_.peek() != '[') {
      return parse_json_list(cursor_, "{", "}", [&] { return parse_member_of_tensor(fields); });
    }
    TANDEM_TRY(cursor_.expect("["));
    for (const char* key : {"dtype", "shape", "data_offsets"}) {
      if (key != std::string_view("dtype")) TANDEM_TRY(cursor_.expect(","));
      TANDEM_TRY(parse_field(key, fields));
    }
    return cursor_.expect("]");
  }

  Result<void> parse_member_of_tensor(Fields& fields) {
    TextCursor key_start = cursor_;
    // Behind the names for a moment: the key may be as long as the header.
    const std::size_t key_at = header_.names_.size();
    TANDEM_TRY(parse_json_text(cursor_, &header_.names_));
    const std::string_view key = std::string_view(header_.names_).substr(key_at);
    TANDEM_TRY(cursor_.expect(":"));
    const bool is_repeated = (key == "dtype" && fields.type_at) || (key == "shape" && fields.sizes_at) ||
                             (key == "data_offsets" && fields.range);
    if (is_repeated) return key_start.expected("no key twice");
    Result<void> result = parse_field(key, fields);
    header_.names_.resize(key_at);
    return result;
  }

  Result<void> parse_field(std::string_view key, Fields& fields) {
    if (key == "dtype") {
      fields.type_at = cursor_.offset();
      return parse_type(cursor_, nullptr);
    }
    if (key == "shape") {
      fields.sizes_at = cursor_.offset();
      return parse_sizes(cursor_, [](std::uint64_t) {});
    }
    if (key == "data_offsets") {
      TANDEM_ASSIGN(fields.range, parse_range(cursor_));
      return {};
    }
    // The header's object and the tensor's.
    return skip_json_value(cursor_, 2);
  }

  static Result<void> check_complete(const Fields& fields) {
    if (!fields.type_at) return fail(ErrorCode::kParse, "has no 'dtype'");
    if (!fields.sizes_at) return fail(ErrorCode::kParse, "has no 'shape'");
    if (!fields.range) return fail(ErrorCode::kParse, "has no 'data_offsets'");
    return {};
  }

  SafetensorsHeader& header_;
  TextCursor cursor_;
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
  TANDEM_TRY(Parser(header).parse());
  const std::string repeated = header.keep_last_of_each_name();
  Result<void> checked = header.check_sizes(data_bytes);
  if (checked) checked = header.check_ranges(data_bytes);
  if (checked) return header;
  return failf(ErrorCode::kParse, "{}{}", checked.error().text(),
               repeated.empty() ? "" : fmt::format("; {} comes twice: the last one counts", repeated));
}

std::string SafetensorsHeader::keep_last_of_each_name() {
  std::sort(records_.begin(), records_.end(), [&](const Record& x, const Record& y) {
    return std::pair(name_of(x), y.sizes_at) < std::pair(name_of(y), x.sizes_at);
  });
  const auto have_same_name = [&](const Record& x, const Record& y) { return name_of(x) == name_of(y); };
  const auto twice = std::adjacent_find(records_.begin(), records_.end(), have_same_name);
  std::string repeated;
  if (twice != records_.end()) repeated = fmt::format("'{}'", printable_name(name_of(*twice)));
  records_.erase(std::unique(twice, records_.end(), have_same_name), records_.end());
  sort_as_in_text();
  return repeated;
}

void SafetensorsHeader::sort_as_in_text() {
  std::sort(records_.begin(), records_.end(),
            [](const Record& x, const Record& y) { return x.sizes_at < y.sizes_at; });
}

Result<void> SafetensorsHeader::check_sizes(std::uint64_t data_bytes) const {
  for (const Record& record : records_) {
    const auto wrong = [&](std::string_view text) {
      return failf(ErrorCode::kParse, "tensor '{}': {}", printable_name(name_of(record)), text);
    };
    if (record.begin > record.end || record.end > data_bytes) {
      return wrong(fmt::format("data_offsets [{}, {}] do not lie in the {} bytes of data", record.begin,
                               record.end, data_bytes));
    }
    const TypeName* type = find_type(type_name(record));
    if (type == nullptr) continue;  // of a later version of the format: how large it is nobody here can say
    TextCursor cursor(text_.substr(record.sizes_at), 0);
    std::uint64_t num_bits = 1;
    bool overflows = false;
    const auto multiply = [&](std::uint64_t factor) {
      overflows = overflows || __builtin_mul_overflow(num_bits, factor, &num_bits);
    };
    TANDEM_TRY(parse_sizes(cursor, multiply));
    multiply(static_cast<std::uint64_t>(type->bits));
    if (!overflows && num_bits % 8 == 0 && num_bits / 8 == record.end - record.begin) continue;
    const std::string needed = overflows           ? "more than 2^64 - 1 bits"
                               : num_bits % 8 != 0 ? fmt::format("{} bits, no whole bytes", num_bits)
                                                   : fmt::format("{} bytes", num_bits / 8);
    return wrong(fmt::format("{} needs {}, data_offsets [{}, {}] hold {}", type_and_sizes(record), needed,
                             record.begin, record.end, record.end - record.begin));
  }
  return {};
}

Result<void> SafetensorsHeader::check_ranges(std::uint64_t data_bytes) {
  std::sort(records_.begin(), records_.end(), [](const Record& x, const Record& y) {
    return std::tie(x.begin, x.end, x.sizes_at) < std::tie(y.begin, y.end, y.sizes_at);
  });
  std::uint64_t covered = 0;
  const Record* previous = nullptr;
  for (const Record& record : records_) {
    if (record.begin < covered) {
      return failf(ErrorCode::kParse, "tensors '{}' and '{}' overlap: data_offsets [{}, {}] and [{}, {}]",
                   printable_name(name_of(*previous)), printable_name(name_of(record)), previous->begin,
                   previous->end, record.begin, record.end);
    }
    if (record.begin > covered) {
      return failf(ErrorCode::kParse, "bytes {} to {} of the data, before tensor '{}', belong to no tensor",
                   covered, record.begin, printable_name(name_of(record)));
    }
    covered = record.end;
    previous = &record;
  }
  sort_as_in_text();
  if (covered == data_bytes) return {};
  return failf(ErrorCode::kParse, "bytes {} to {} of the data, at the end, belong to no tensor", covered,
               data_bytes);
}

std::string SafetensorsHeader::type_name(const Record& record) const {
  std::string name;
  TextCursor cursor(text_.substr(record.type_at), 0);
  (void)parse_type(cursor, &name);  // parse() has read the same text
  return name;
}

std::string SafetensorsHeader::type_and_sizes(const Record& record) const {
  constexpr int kMostShown = 16;
  std::string sizes;
  int count = 0;
  TextCursor cursor(text_.substr(record.sizes_at), 0);
  (void)parse_sizes(cursor, [&](std::uint64_t size) {
    if (++count <= kMostShown) sizes += fmt::format("{}{}", count > 1 ? ", " : "", size);
  });
  return fmt::format("{} [{}{}]", printable(type_name(record)), sizes, count > kMostShown ? ", ..." : "");
}

Result<TensorView> SafetensorsHeader::shape(std::size_t idx) const {
  const Record& record = records_[idx];
  const auto unsupported = [&](std::string_view text) {
    return failf(ErrorCode::kUnsupported, "tensor '{}': {}", printable_name(name_of(record)), text);
  };
  const std::string name = type_name(record);
  const TypeName* type = find_type(name);
  if (type == nullptr || !type->dtype) {
    std::string known;
    for (const TypeName& other : kTypeNames) {
      if (other.dtype) known += fmt::format(" {}", other.name);
    }
    return unsupported(
        fmt::format("type '{}', need one of{}: store it as one of these", printable(name), known));
  }
  Dims sizes;
  int num_dims = 0;
  bool is_too_large = false;
  TextCursor cursor(text_.substr(record.sizes_at), 0);
  TANDEM_TRY(parse_sizes(cursor, [&](std::uint64_t size) {
    is_too_large =
        is_too_large || size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (++num_dims <= kMaxDims) sizes.push_back(static_cast<std::int64_t>(size));
  }));
  if (num_dims > kMaxDims) {
    return unsupported(
        fmt::format("{} dimensions, need at most {}: reshape it before it is stored", num_dims, kMaxDims));
  }
  if (is_too_large || !checked_size_bytes(sizes, *type->dtype)) {
    return unsupported(
        fmt::format("{}: the sizes that are not 0 come to more than 2^63 - 1 bytes", type_and_sizes(record)));
  }
  return TensorView::contiguous(nullptr, sizes, *type->dtype);
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
