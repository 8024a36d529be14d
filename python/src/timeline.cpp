#include "timeline.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <tandem/timeline/timeline.hpp>
#include <tandem/trace/summary.hpp>

#include "group.hpp"

namespace tandem::python {
namespace {

/// The timeline of a group.
class PyTimeline {
 public:
  PyTimeline(std::shared_ptr<PyGroup> group, std::int32_t max_events)
      : group_(std::move(group)),
        timeline_(take(Timeline::create(*group_->device()->device(), max_events), group_->rank())) {}

  void start() const { use(timeline_); }
  void stop() const {
    if (!group_->is_closed()) use(nullptr);
  }
  /// Returns the JSON of all ranks. Rank 0 writes it, too.
  std::string save(const std::string& folder, const std::string& command) const {
    Interrupt interrupt;
    if (!group_->device()->drain(interrupt)) interrupt.raise();
    return group_->run([&](Group& group) -> Result<std::string> {
      auto trace = timeline_->gather(group);
      if (!trace) return tl::unexpected(trace.error());
      const trace::Summary summary = trace::summarize(*trace);
      const trace::Origin origin = origin_here(command);
      auto written = group.rank() == 0 ? tandem::save(*trace, summary, origin, folder) : Result<void>();
      if (!written) return tl::unexpected(written.error());
      return trace::to_json(*trace, summary, origin);
    });
  }

 private:
  void use(const std::shared_ptr<Timeline>& timeline) const {
    group_->run([&](Group& group) -> Result<void> {
      group.set_timeline(timeline);
      return {};
    });
  }

  std::shared_ptr<PyGroup> group_;
  std::shared_ptr<Timeline> timeline_;
};

}  // namespace

void bind_timelines(nb::module_& module) {
  nb::class_<PyTimeline>(module, "GroupTimeline")
      .def(nb::init<std::shared_ptr<PyGroup>, std::int32_t>(), nb::arg("group"), nb::arg("max_events"))
      .def("start", &PyTimeline::start)
      .def("stop", &PyTimeline::stop)
      .def("save", &PyTimeline::save, nb::arg("folder"), nb::arg("command"));
}

}  // namespace tandem::python
