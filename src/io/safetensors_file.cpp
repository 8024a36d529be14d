#include "io/safetensors_file.hpp"

#include <algorithm>

#include "base/format.hpp"
#include "io/text_cursor.hpp"

namespace tandem::io {

std::string list_names(const NameList& names, std::string_view wanted) {
  constexpr std::size_t kMostNames = 8;
  const auto is_listed = [&](std::size_t idx) {
    return names.name(idx).find(wanted) != std::string_view::npos;
  };
  std::size_t num_like_it = 0;
  for (std::size_t i = 0; i < names.size; ++i) num_like_it += is_listed(i) ? 1 : 0;
  const std::size_t count = num_like_it > 0 ? num_like_it : names.size;
  std::string list;
  std::size_t num_listed = 0;
  for (std::size_t i = 0; i < names.size && num_listed < kMostNames; ++i) {
    if (num_like_it > 0 && !is_listed(i)) continue;
    list += fmt::format("{}'{}'", num_listed > 0 ? ", " : "", printable_name(names.name(i)));
    ++num_listed;
  }
  return count > num_listed ? list + fmt::format(" and {} more", count - num_listed) : list;
}

Result<std::size_t> choose_name(const NameList& names, std::string_view wanted) {
  if (names.size == 0) return fail(ErrorCode::kInvalidArgument, "it holds no tensor");
  if (wanted.empty() && names.size == 1) return 0;
  for (std::size_t i = 0; i < names.size; ++i) {
    if (names.name(i) == wanted) return i;
  }
  if (wanted.empty()) {
    return failf(ErrorCode::kInvalidArgument, "it holds {} tensors, name one of {}", names.size,
                 list_names(names, wanted));
  }
  return failf(ErrorCode::kInvalidArgument, "no tensor '{}', there is {}", printable_name(wanted),
               list_names(names, wanted));
}

}  // namespace tandem::io
