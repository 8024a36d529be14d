#include "coll/cpu/nan_scan.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/nan_rule.hpp"
#include "coll/element_rows.hpp"

namespace tandem::coll::cpu {
namespace {

constexpr std::int64_t kWordBytes = 8;

/// The last bytes are 0 where there are fewer than eight.
std::uint64_t load_word(const std::byte* at, std::int64_t num_bytes = kWordBytes) {
  std::uint64_t word = 0;
  std::memcpy(&word, at, static_cast<std::size_t>(num_bytes));
  return word;
}

class Scan {
 public:
  explicit Scan(const TensorView& view)
      : rows_(ElementRows::of(view)), rule_(nan_rule(view.dtype)), element_bytes_(size_bytes(view.dtype)) {}

  FoundNan run() {
    for (std::int64_t row = 0; row < rows_.num_rows; ++row) {
      const std::byte* const begin =
          static_cast<const std::byte*>(rows_.data) + rows_.offset_of_row(row) * element_bytes_;
      if (rows_.step == 1) {
        scan_neighbours(begin, row * rows_.row_length);
      } else {
        scan_apart(begin, row * rows_.row_length);
      }
    }
    return found_;
  }

 private:
  /// Nearly all words have none: they are looked at many at a time, and one by one only where one has.
  void scan_neighbours(const std::byte* begin, std::int64_t position) {
    constexpr std::int64_t kTogether = 512;
    const std::int64_t num_bytes = rows_.row_length * element_bytes_;
    const std::int64_t num_words = num_bytes / kWordBytes;
    for (std::int64_t first = 0; first < num_words; first += kTogether) {
      const std::int64_t count = std::min(kTogether, num_words - first);
      const std::byte* const at = begin + first * kWordBytes;
      std::uint64_t any = 0;
      for (std::int64_t i = 0; i < count; ++i) any |= rule_.nans_in(load_word(at + i * kWordBytes));
      for (std::int64_t i = 0; any != 0 && i < count; ++i)
        note(rule_.nans_in(load_word(at + i * kWordBytes)), position + (first + i) * per_word());
    }
    const std::int64_t rest = num_words * kWordBytes;
    if (rest < num_bytes)
      note(rule_.nans_in(load_word(begin + rest, num_bytes - rest)), position + num_words * per_word());
  }

  void scan_apart(const std::byte* begin, std::int64_t position) {
    for (std::int64_t i = 0; i < rows_.row_length; ++i) {
      const std::byte* const at = begin + i * rows_.step * element_bytes_;
      note(rule_.nans_in(load_word(at, element_bytes_)), position + i);
    }
  }

  /// `nans`: of elements from `position` on.
  void note(std::uint64_t nans, std::int64_t position) {
    for (; nans != 0; nans &= nans - 1) {
      const std::int64_t idx = rows_.index_at(position + std::countr_zero(nans) / (8 * element_bytes_));
      found_.first = found_.count == 0 ? idx : std::min(found_.first, idx);
      ++found_.count;
    }
  }

  [[nodiscard]] std::int64_t per_word() const { return kWordBytes / element_bytes_; }

  const ElementRows rows_;
  const NanRule rule_;
  const std::int64_t element_bytes_;
  FoundNan found_;
};

}  // namespace

FoundNan find_nan(const TensorView& view) {
  return Scan(view).run();
}

}  // namespace tandem::coll::cpu
