#include "reports.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "errors.hpp"

namespace tandem::python {

Algorithm algorithm_of(const std::string& name) {
  const auto found = parse_algorithm(name);
  if (!found) refuse("algorithm '" + name + "', need auto, native, pipelined or serial");
  return *found;
}

coll::ReduceOp reduce_op_of(const std::string& name) {
  if (name == "sum") return coll::ReduceOp::kSum;
  if (name == "avg") return coll::ReduceOp::kAvg;
  refuse("reduce op '" + name + "', need sum or avg");
}

void bind_reports(nb::module_& module) {
  nb::class_<Candidate>(module, "Candidate", "An algorithm that `auto` could have chosen.")
      .def_prop_ro("algorithm", [](const Candidate& one) { return std::string(to_string(one.algorithm)); })
      .def_ro("why_not", &Candidate::why_not, "Why it cannot run here, or empty.")
      .def_ro("predicted_us", &Candidate::predicted_us, "The time that the cost model predicts, or None.")
      .def_ro("measured_us", &Candidate::measured_us, "The time that `tandem tune` has measured, or None.")
      .def("__repr__", [](const Candidate& one) {
        return "Candidate(" + std::string(to_string(one.algorithm)) +
               (one.why_not.empty() ? std::string() : ": " + one.why_not) + ")";
      });
  nb::class_<OpReport>(module, "OpReport", "What a fused op ran, and why.")
      .def_prop_ro(
          "algorithm", [](const OpReport& report) { return std::string(to_string(report.algorithm)); },
          "\"native\", \"pipelined\" or \"serial\".")
      .def_prop_ro(
          "reason", [](const OpReport& report) { return std::string(report.reason); },
          "\"asked for\", \"predicted ...\".")
      .def_prop_ro(
          "key", [](const OpReport& report) { return std::string(report.key); },
          "The problem: \"all_gather_matmul 4096x3584x8192 bf16 dim 0 w4\".")
      .def_prop_ro("candidates",
                   [](const OpReport& report) {
                     return std::vector<Candidate>(report.candidates.begin(), report.candidates.end());
                   })
      .def_ro("as_graph", &OpReport::as_graph, "Whether a recording of an earlier call was launched.")
      .def_ro("checks_nan", &OpReport::checks_nan, "Whether the call looked for NaN in its inputs.")
      .def_prop_ro("program", &program_text, "The steps that ran, as text.")
      .def("__repr__", [](const OpReport& report) {
        return "OpReport(" + std::string(to_string(report.algorithm)) + ": " + std::string(report.reason) +
               ")";
      });
}

}  // namespace tandem::python
