#pragma once

#include <nanobind/nanobind.h>

#include <nanobind/stl/string.h>

#include <exception>
#include <optional>
#include <string>
#include <tandem/base/error.hpp>
#include <tandem/base/interrupt.hpp>
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

/// What a signal's handler has raised while a thread waited: KeyboardInterrupt for ^C.
class Interrupt {
 public:
  /// Lets Python handle signals that have come. Whether a handler has raised. Takes Python's lock.
  bool look();
  /// Raises it in turn.
  void raise() const;

 private:
  std::optional<nb::python_error> raised_;
};

/// Calls `f` without Python's lock and takes its Result. Waits in it for other ranks end with ^C.
template <class F>
auto take_unlocked(F&& f, int rank = -1) {
  Interrupt interrupt;
  auto result = [&] {
    const nb::gil_scoped_release unlocked;
    const InterruptCheck check([&interrupt] { return interrupt.look(); });
    return f();
  }();
  interrupt.raise();
  return take(std::move(result), rank);
}

[[noreturn]] inline void refuse(std::string text) {
  throw Raised(Error(ErrorCode::kInvalidArgument, std::move(text)));
}

/// Makes pickle and copy refuse objects of a class, which belong to their process.
template <class Class>
void refuse_pickling(Class& bound, const char* remedy) {
  bound.def(
      "__reduce_ex__",
      [remedy](nb::handle self, int) -> nb::object {
        const auto name = nb::cast<std::string>(nb::str(self.type().attr("__qualname__")));
        throw nb::type_error(
            ("cannot pickle or copy a tandem." + name + ": it belongs to this process. " + remedy).c_str());
      },
      nb::arg("protocol"), nb::sig("def __reduce_ex__(self, protocol: int, /) -> object"));
}

void bind_errors(nb::module_& module);

}  // namespace tandem::python
