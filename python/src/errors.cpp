#include "errors.hpp"

#include <nanobind/stl/string.h>

namespace tandem::python {

bool Interrupt::look() {
  const nb::gil_scoped_acquire locked;
  if (!raised_ && PyErr_CheckSignals() != 0) raised_.emplace();
  return raised_.has_value();
}

void Interrupt::raise() const {
  if (raised_) throw nb::python_error(*raised_);
}

void bind_errors(nb::module_& /*module*/) {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const Raised& raised) {
      // ^C ends all ranks: what one sees of another's end is not the reason.
      if (PyErr_CheckSignals() != 0) return;
      const Error& error = raised.error();
      const std::string_view code = to_string(error.code());
      // Looked up when it is needed: the package imports this module first.
      const nb::object type = nb::module_::import_("tandem._errors").attr("Error");
      const nb::object rank = raised.rank() < 0 ? nb::none() : nb::object(nb::int_(raised.rank()));
      const nb::object made =
          type(nb::str(code.data(), code.size()), error.text(), rank, nb::none(), error.native_code());
      PyErr_SetObject(type.ptr(), made.ptr());
    }
  });
}

}  // namespace tandem::python
