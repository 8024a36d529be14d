#include "base/overlap.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>

#include "base/format.hpp"
#include "base/try.hpp"

namespace tandem {
namespace {

/// More than any memory has, and so little that a sum of three does not overflow.
constexpr std::int64_t kMostSpanBytes = std::int64_t{1} << 61;

bool is_empty(const TensorView& view) {
  return std::any_of(view.sizes.begin(), view.sizes.end(), [](std::int64_t size) { return size == 0; });
}

/// Addresses from the first byte of any element to behind the last one.
struct ByteRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Of a view that is not empty; nothing where it reaches over more than kMostSpanBytes.
std::optional<ByteRange> range_of(const TensorView& view) {
  const std::int64_t element_bytes = size_bytes(view.dtype);
  ByteRange range;
  range.begin = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(view.data));
  std::int64_t span = element_bytes;
  for (int d = 0; d < view.dim(); ++d) {
    std::int64_t reach = 0;
    bool overflow = __builtin_mul_overflow(view.size(d) - 1, view.stride(d), &reach) ||
                    __builtin_mul_overflow(reach, element_bytes, &reach);
    if (reach < 0) {
      overflow = overflow || __builtin_add_overflow(range.begin, reach, &range.begin);
      overflow = overflow || __builtin_sub_overflow(span, reach, &span);
    } else {
      overflow = overflow || __builtin_add_overflow(span, reach, &span);
    }
    if (overflow || span > kMostSpanBytes) return std::nullopt;
  }
  if (__builtin_add_overflow(range.begin, span, &range.end)) return std::nullopt;
  return range;
}

/// The totals that a sum of terms `factor * x` can have, where each x is one of 0, 1, ..., most.
class Totals {
 public:
  /// Needs factor > 0.
  void add(std::int64_t factor, std::int64_t most) {
    if (most > 0) terms_[num_++] = {factor, most};
  }

  /// Whether `total` is one of them; see kMostOverlapSteps.
  [[nodiscard]] bool contain(std::int64_t total) {
    merge();
    return find(num_, total);
  }

 private:
  struct Term {
    std::int64_t factor = 0;
    std::int64_t most = 0;
    std::int64_t below = 0;    ///< largest total of the terms before this one
    std::int64_t divisor = 1;  ///< of all totals of the terms up to this one
  };

  /// Smallest factor first. A term that steps by a multiple of the one before it, and no further than that
  /// reaches, makes it longer: what has no holes becomes one term, whatever its shape.
  void merge() {
    std::sort(terms_.begin(), terms_.begin() + num_,
              [](const Term& x, const Term& y) { return x.factor < y.factor; });
    std::size_t num_merged = 0;
    for (std::size_t i = 0; i < num_; ++i) {
      const Term term = terms_[i];
      Term* const before = num_merged == 0 ? nullptr : &terms_[num_merged - 1];
      if (before != nullptr && term.factor % before->factor == 0 &&
          term.factor / before->factor <= before->most + 1) {
        before->most += term.factor / before->factor * term.most;
      } else {
        terms_[num_merged++] = term;
      }
    }
    num_ = num_merged;
    for (std::size_t i = 0; i < num_; ++i) {
      Term& term = terms_[i];
      term.divisor = i == 0 ? term.factor : std::gcd(terms_[i - 1].divisor, term.factor);
      term.below = i == 0 ? 0 : terms_[i - 1].below + terms_[i - 1].factor * terms_[i - 1].most;
    }
  }

  /// Whether the first `num` terms can have this total. Tries every x of the last one that leaves what the
  /// others can reach: of views with the strides of one matrix these are two or three.
  [[nodiscard]] bool find(std::size_t num, std::int64_t total) {
    if (num == 0) return total == 0;
    const Term& last = terms_[num - 1];
    if (total % last.divisor != 0) return false;
    const std::int64_t least = total <= last.below ? 0 : (total - last.below - 1) / last.factor + 1;
    const std::int64_t most = std::min(last.most, total / last.factor);
    for (std::int64_t x = least; x <= most; ++x) {
      if (--steps_left_ < 0) return true;
      if (find(num - 1, total - x * last.factor)) return true;
    }
    return false;
  }

  std::array<Term, 2 * kMaxDims + 1> terms_;
  std::size_t num_ = 0;
  int steps_left_ = kMostOverlapSteps;
};

std::int64_t magnitude(std::int64_t value) {
  return value < 0 ? -value : value;
}

/// The distances from the first element to each, in units of so many bytes.
void add_elements(const TensorView& view, std::int64_t unit_bytes, Totals& totals) {
  for (int d = 0; d < view.dim(); ++d) {
    if (view.size(d) == 1 || view.stride(d) == 0) continue;  // nothing, or the same elements again
    totals.add(magnitude(view.stride(d)) * (size_bytes(view.dtype) / unit_bytes), view.size(d) - 1);
  }
}

/// Whether each stride reaches beyond all elements of the smaller ones, as in most views: then no two
/// elements are the same.
bool is_nested(const TensorView& view) {
  for (int d = 0; d < view.dim(); ++d) {
    if (view.size(d) == 1) continue;
    const std::int64_t stride = magnitude(view.stride(d));
    std::int64_t reached = 0;  // by the dims of smaller strides; of equal strides by the later ones
    for (int other = 0; other < view.dim(); ++other) {
      if (view.size(other) == 1) continue;
      const std::int64_t smaller = magnitude(view.stride(other));
      if (smaller < stride || (smaller == stride && other > d)) reached += (view.size(other) - 1) * smaller;
    }
    if (stride <= reached) return false;
  }
  return true;
}

/// Whether two elements that differ in dim `first`, and in no dim before it, are the same. The distance from
/// one to the other is a sum of strides times differences of indices, 1 or more in `first` and of any sign in
/// the dims behind it, and is asked to be 0. Counted from the smallest difference each, no term is negative.
bool repeats_from(const TensorView& view, int first) {
  if (view.size(first) == 1) return false;
  const std::int64_t stride = magnitude(view.stride(first));
  if (stride == 0) return true;
  Totals totals;
  totals.add(stride, view.size(first) - 2);
  std::int64_t at_most = stride * (view.size(first) - 1);
  for (int d = first + 1; d < view.dim(); ++d) {
    if (view.size(d) == 1 || view.stride(d) == 0) continue;
    const std::int64_t factor = magnitude(view.stride(d));
    totals.add(factor, 2 * (view.size(d) - 1));
    at_most += factor * (view.size(d) - 1);
  }
  return totals.contain(at_most);
}

bool share_memory(const TensorView& x, const ByteRange& range_x, const TensorView& y,
                  const ByteRange& range_y) {
  if (range_x.begin >= range_y.end || range_y.begin >= range_x.end) return false;
  // In the largest units that all elements begin and end at: bytes only where a view is not aligned to the
  // elements of the other. A unit of x is the same as one of y if its distance from x's first unit and the
  // other's from y's last one add up to the distance between these two.
  const std::int64_t x_bytes = size_bytes(x.dtype);
  const std::int64_t y_bytes = size_bytes(y.dtype);
  const std::int64_t unit = std::gcd(std::gcd(x_bytes, y_bytes), range_y.begin - range_x.begin);
  Totals totals;
  add_elements(x, unit, totals);
  add_elements(y, unit, totals);
  totals.add(1, x_bytes / unit - 1 + y_bytes / unit - 1);
  return totals.contain((range_y.end - range_x.begin) / unit - 1);
}

/// Of a view that is not empty, and whose range is known.
bool repeats(const TensorView& view) {
  if (view.is_contiguous() || is_nested(view)) return false;
  for (int d = 0; d < view.dim(); ++d) {
    if (repeats_from(view, d)) return true;
  }
  return false;
}

std::string described(const Named& named) {
  const auto range = range_of(*named.view);
  return fmt::format("{} ({} bytes at {:#x}, {})", to_string(named), range->end - range->begin, range->begin,
                     to_string(*named.view));
}

// What refusals say, apart from the checks, which are short then.

tl::unexpected<Error> read_only(std::string_view who, const Named& output) {
  return failf(ErrorCode::kInvalidArgument, "{}: {} is written and read-only ({}), need memory to write to",
               who, to_string(output), to_string(*output.view));
}

tl::unexpected<Error> beyond_all_memory(std::string_view who, const Named& named) {
  return failf(ErrorCode::kInvalidArgument, "{}: {} is {}, which reaches over more than 2^61 bytes", who,
               to_string(named), to_string(*named.view));
}

tl::unexpected<Error> overlapping(std::string_view who, const Named& output, const Named& other) {
  for (const Named* named : {&output, &other}) {
    if (!range_of(*named->view)) return beyond_all_memory(who, *named);
  }
  return failf(ErrorCode::kInvalidArgument, "{}: {} is written and overlaps {}, need memory of its own", who,
               described(output), described(other));
}

}  // namespace

std::string to_string(const Named& named) {
  return named.idx < 0 ? std::string(named.name) : fmt::format("{}[{}]", named.name, named.idx);
}

bool is_same_memory(const TensorView& x, const TensorView& y) {
  if (x.data != y.data || x.dtype != y.dtype || x.sizes != y.sizes) return false;
  for (int d = 0; d < x.dim(); ++d) {
    if (x.size(d) != 1 && x.stride(d) != y.stride(d)) return false;
  }
  return true;
}

bool share_memory(const TensorView& x, const TensorView& y) {
  if (is_empty(x) || is_empty(y)) return false;
  const auto range_x = range_of(x);
  const auto range_y = range_of(y);
  return !range_x || !range_y || share_memory(x, *range_x, y, *range_y);
}

bool shares_memory_with_itself(const TensorView& view) {
  return !is_empty(view) && (!range_of(view) || repeats(view));
}

Result<void> check_writable(std::string_view who, const Named& output) {
  if (output.view->is_read_only) return read_only(who, output);
  if (!shares_memory_with_itself(*output.view)) return {};
  if (!range_of(*output.view)) return beyond_all_memory(who, output);
  return failf(ErrorCode::kInvalidArgument,
               "{}: {} is written and its elements overlap, need memory of its own for each", who,
               described(output));
}

Result<void> check_apart(std::string_view who, const Named& output, const Named& other) {
  if (output.view->is_read_only) return read_only(who, output);
  if (!share_memory(*output.view, *other.view)) return {};
  return overlapping(who, output, other);
}

Result<bool> check_copy(std::string_view who, const Named& from, const Named& to) {
  TANDEM_TRY(check_writable(who, to));
  if (is_same_memory(*from.view, *to.view)) return false;
  TANDEM_TRY(check_apart(who, to, from));
  return true;
}

}  // namespace tandem
