#pragma once

#include <nanobind/nanobind.h>

namespace tandem::python {

/// Stores and jobs: how ranks are started and find each other.
void bind_jobs(nanobind::module_& module);

}  // namespace tandem::python
