// The one compiled copy of fmt. Every other file sees fmt's declarations only, which halves the build; what
// ships still needs no library of it. The namespace of fmt carries its major version, so another fmt in a
// user's program is another set of names.
#include <fmt/format-inl.h>

static_assert(FMT_VERSION >= 90000, "fmt 9 or later");

FMT_BEGIN_NAMESPACE
namespace detail {

template FMT_API auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API void buffer<char>::append(const char*, const char*);
template FMT_API void vformat_to(buffer<char>&, string_view, basic_format_args<buffer_context<char>>,
                                 locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
