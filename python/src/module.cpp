// The extension behind the package `tandem`: what its Python files call.
#include <nanobind/nanobind.h>

#include "arrays.hpp"
#include "collectives.hpp"
#include "errors.hpp"
#include "fused.hpp"
#include "graph.hpp"
#include "group.hpp"
#include "job.hpp"
#include "products.hpp"
#include "reports.hpp"
#include "stream.hpp"
#include "symmetric_memory.hpp"
#include "timeline.hpp"

NB_MODULE(_core, module) {
  nanobind::set_leak_warnings(
      false);  // a compiled function of PyTorch may keep objects until the process ends
  module.doc() = "The C++ part of tandem. Use the functions of the package instead.";
  tandem::python::bind_errors(module);
  tandem::python::bind_arrays(module);
  tandem::python::bind_streams(module);
  tandem::python::bind_groups(module);
  tandem::python::bind_jobs(module);
  tandem::python::bind_reports(module);
  tandem::python::bind_symmetric_memory(module);
  tandem::python::bind_fused(module);
  tandem::python::bind_collectives(module);
  tandem::python::bind_products(module);
  tandem::python::bind_graphs(module);
  tandem::python::bind_timelines(module);
}
