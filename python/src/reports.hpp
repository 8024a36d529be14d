#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <tandem/coll/collectives.hpp>
#include <tandem/fused/report.hpp>

namespace tandem::python {

[[nodiscard]] Algorithm algorithm_of(const std::string& name);
[[nodiscard]] coll::ReduceOp reduce_op_of(const std::string& name);

void bind_reports(nanobind::module_& module);

}  // namespace tandem::python
