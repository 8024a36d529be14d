#pragma once

#include <cstddef>
#include <optional>
#include <ranges>
#include <span>
#include <tandem/base/tensor.hpp>
#include <type_traits>

namespace tandem {

/// Views as an argument: none, one, or the elements of a span, a vector or an array. Element is a TensorView,
/// or an optional one where a list may have gaps. It allocates nothing.
/// Memory:  one view is kept by value, so it may be a temporary. Of several, the list refers to the caller's
///          array, which must live as long as the list. So a temporary vector does not convert, and neither
///          does a braced list of several views, whose array ends with the declaration.
template <class Element>
class BasicTensorList {
 public:
  BasicTensorList() = default;
  // Implicit, so that an argument reads `args.b = b.view()` and `args.b = views`.
  BasicTensorList(const Element& one) : one_(one) {}                                     // NOLINT: a list
  BasicTensorList(const TensorView& one) requires(!std::is_same_v<Element, TensorView>)  // NOLINT: a list
      : one_(Element(one)) {}
  BasicTensorList(const Element* elements, std::size_t count) : several_(elements, count) {}
  template <class Range>
  requires(!std::is_same_v<std::remove_cvref_t<Range>, BasicTensorList> &&
           std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
           std::is_same_v<std::ranges::range_value_t<Range>, Element> &&
           (std::is_lvalue_reference_v<Range> || std::ranges::borrowed_range<Range>))
      BasicTensorList(Range&& range)  // NOLINT: a list
      : several_(std::ranges::data(range), std::ranges::size(range)) {}

  [[nodiscard]] const Element* data() const { return one_ ? &*one_ : several_.data(); }
  [[nodiscard]] std::size_t size() const { return one_ ? 1 : several_.size(); }
  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] const Element* begin() const { return data(); }
  [[nodiscard]] const Element* end() const { return data() + size(); }
  /// Needs idx < size().
  [[nodiscard]] const Element& operator[](std::size_t idx) const { return data()[idx]; }
  /// Needs a list that is not empty.
  [[nodiscard]] const Element& front() const { return *data(); }

 private:
  std::optional<Element> one_;
  std::span<const Element> several_;
};

using TensorList = BasicTensorList<TensorView>;
/// An element that is nullopt is absent; an empty list has no element at all.
using OptionalTensorList = BasicTensorList<std::optional<TensorView>>;

}  // namespace tandem
