#pragma once

#include <nanobind/nanobind.h>

namespace tandem::python {

void bind_timelines(nanobind::module_& module);

}  // namespace tandem::python
