#pragma once

#include <nanobind/nanobind.h>

namespace tandem::python {

void bind_symmetric_memory(nanobind::module_& module);

}  // namespace tandem::python
