#pragma once

#include <string>
#include <string_view>
#include <tandem/base/error.hpp>
#include <tandem/base/tensor.hpp>

namespace tandem {

// Whose memory a call may write: every public call that writes memory asks here, before anything is enqueued.
// No function allocates unless it refuses.

/// A tensor argument and what it is called in errors; idx < 0: not of a list.
struct Named {
  std::string_view name;
  int idx = -1;
  const TensorView* view = nullptr;
};
[[nodiscard]] std::string to_string(const Named& named);

/// Whether the two are the same, element for element: for calls that work in place.
[[nodiscard]] bool is_same_memory(const TensorView& x, const TensorView& y);
/// Whether the elements of the two have a byte in common; holes between elements do not count. The answer is
/// exact unless the views are so entangled that it takes more than kMostOverlapSteps to find: then yes.
[[nodiscard]] bool share_memory(const TensorView& x, const TensorView& y);
/// Whether two elements of the view have a byte in common; exact as above.
[[nodiscard]] bool shares_memory_with_itself(const TensorView& view);

/// At most 0.5 ms, on a busy Xeon. Views of one matrix take a few steps, less than 0.1 us.
inline constexpr int kMostOverlapSteps = 1 << 14;

/// Whether `output` can be written: it is not read-only, and no two of its elements share memory. Errors:
/// kInvalidArgument with the bytes it reaches over.
[[nodiscard]] Result<void> check_writable(std::string_view who, const Named& output);

/// Whether `output` is not read-only and has no memory of `other`. Errors: kInvalidArgument with the bytes
/// both reach over.
[[nodiscard]] Result<void> check_apart(std::string_view who, const Named& output, const Named& other);

/// For calls that copy elements: whether there is anything to do, which is not so where `to` is `from`.
/// Errors: of check_writable() and check_apart().
[[nodiscard]] Result<bool> check_copy(std::string_view who, const Named& from, const Named& to);

}  // namespace tandem
