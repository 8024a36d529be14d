#pragma once

#include <nanobind/nanobind.h>

#include <exception>
#include <string>
#include <tandem/base/error.hpp>
#include <type_traits>
#include <utility>

namespace tandem::python {

namespace nb = nanobind;

/// An Error on its way to Python, where it becomes a tandem.Error.
class Raised : public std::exception {
 public:
  /// `rank` is -1 where no group is known.
  explicit Raised(Error error, int rank = -1) : error_(std::move(error)), rank_(rank) {}
  [[nodiscard]] const Error& error() const { return error_; }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] const char* what() const noexcept override { return error_.text().c_str(); }

 private:
  Error error_;
  int rank_;
};

/// The value of a Result; throws its error.
template <class T>
T take(Result<T> result, int rank = -1) {
  if (!result) throw Raised(result.error(), rank);
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

/// Calls `f` without Python's lock and takes its Result.
template <class F>
auto take_unlocked(F&& f, int rank = -1) {
  auto result = [&] {
    const nb::gil_scoped_release unlocked;
    return f();
  }();
  return take(std::move(result), rank);
}

[[noreturn]] inline void refuse(std::string text) {
  throw Raised(Error(ErrorCode::kInvalidArgument, std::move(text)));
}

void bind_errors(nb::module_& module);

}  // namespace tandem::python
