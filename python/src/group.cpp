#include "group.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <tandem/bootstrap/flight_record.hpp>
#include <tandem/fused/measure_gpus.hpp>

namespace tandem::python {
namespace {

std::chrono::milliseconds to_milliseconds(double seconds, const char* name) {
  constexpr double kMostSeconds = 1e9;
  if (!(seconds > 0 && seconds <= kMostSeconds)) refuse(std::string(name) + ": need seconds above 0");
  const auto rounded = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
  return std::max(rounded, std::chrono::milliseconds(1));
}

std::shared_ptr<PyGroup> create_group(int rank, int size, const std::shared_ptr<Store>& store,
                                      const std::string& device_name, int device_index,
                                      const std::string& name, std::optional<double> op_timeout,
                                      std::optional<double> rendezvous_timeout,
                                      std::optional<bool> batch_invariant, std::optional<bool> nan_check,
                                      const std::optional<std::string>& fault) {
  Config config = take(Config::from_environment());
  if (op_timeout) config.op_timeout = to_milliseconds(*op_timeout, "op_timeout");
  if (rendezvous_timeout) {
    config.rendezvous_timeout = to_milliseconds(*rendezvous_timeout, "rendezvous_timeout");
  }
  if (batch_invariant) config.batch_invariant = *batch_invariant;
  if (nan_check) config.nan_check = *nan_check;
  if (fault) config.fault = *fault;
  auto device = std::make_shared<PyDevice>(parse_device(device_name, device_index), config);
  GroupOptions options{.rank = rank,
                       .size = size,
                       .name = name,
                       .store = store,
                       .config = config,
                       .device = device->device()->description()};
  auto group = take_unlocked([&] { return Group::create(options); }, rank);
  take_unlocked([&] { return fused::measure_gpus(*group, *device->device()); }, rank);
  return std::make_shared<PyGroup>(std::move(device), std::move(group));
}

nb::list all_gather_bytes(const PyGroup& group, const nb::bytes& mine, const std::string& what) {
  const auto bytes = std::span(static_cast<const std::byte*>(mine.data()), mine.size());
  const auto all = group.run([&](Group& of) { return of.all_gather(bytes, what); });
  nb::list values;
  for (const Store::Bytes& one : all) values.append(nb::bytes(one.data(), one.size()));
  return values;
}

void poison(const PyGroup& group, const std::string& text, int culprit) {
  const nb::gil_scoped_release unlocked;
  group.group().poison(Error(ErrorCode::kPeerLost, text), culprit);
}

}  // namespace

Group& PyGroup::group() const {
  if (!group_) refuse("the group is closed");
  return *group_;
}

std::shared_ptr<PyGroup> PyGroup::subgroup(const std::vector<int>& ranks, const std::string& name) const {
  auto made = run([&](Group& of) { return of.subgroup(ranks, name); });
  return std::make_shared<PyGroup>(std::make_shared<PyDevice>(device_->device()), std::move(made));
}

void PyGroup::close() {
  if (!group_) return;
  const OneUser::Use use(user_);
  Interrupt interrupt;
  if (!device_->drain(interrupt)) {
    const std::string text = "rank " + std::to_string(rank()) + " was interrupted while it closed the group";
    group_->poison(Error(ErrorCode::kPeerLost, text), rank());
  }
  end();
  interrupt.raise();
}

void PyGroup::end() {
  if (!group_) return;
  device_->drain();
  const nb::gil_scoped_release unlocked;
  group_.reset();
}

void bind_groups(nb::module_& module) {
  auto bound = nb::class_<PyGroup>(
      module, "Group",
      "An ordered set of ranks that run collective calls in the same order. One thread at a time\n"
      "may use a group. A timeout, a lost peer or a mismatch poisons it: every later call on\n"
      "every rank raises the first error. Leaving a `with` block closes the group.");
  refuse_pickling(bound, "Make a group in each process.");
  bound.def_prop_ro("rank", &PyGroup::rank)
      .def_prop_ro("size", [](const PyGroup& group) { return group.group().size(); })
      .def_prop_ro("name", [](const PyGroup& group) { return group.group().name(); })
      .def_prop_ro("is_closed", &PyGroup::is_closed)
      .def_prop_rw(
          "nan_check", [](const PyGroup& group) { return group.group().nan_check(); },
          [](const PyGroup& group, bool is_on) { group.group().set_nan_check(is_on); },
          "Whether ops of this rank look for NaN in their floating inputs. What they find is an Error "
          "NUMERIC\n"
          "with the rank, the op, the tensor, the number of NaNs and the index of the first. It poisons the\n"
          "group. Other ranks may have another value.")
      .def_prop_ro("device", &PyGroup::device, "The device that the group's ops run on.")
      .def(
          "subgroup", &PyGroup::subgroup, nb::arg("ranks"), nb::arg("name"),
          "Makes a group of some of this group's ranks, in the given order: a collective call of these "
          "ranks.\n"
          "Its ops run on a stream of its own. Raises Error INVALID_ARGUMENT if this rank is not among them.")
      .def("all_gather_bytes", &all_gather_bytes, nb::arg("mine"), nb::arg("what") = "bytes",
           "Returns every rank's bytes, in rank order. Blocks until all ranks have called.")
      .def(
          "meet",
          [](const PyGroup& group) { group.run([](Group& of) { return of.all_gather({}, "meet"); }); },
          "Blocks until every rank is here.")
      .def(
          "check", [](const PyGroup& group) { take(group.group().status(), group.rank()); },
          "Raises the error that poisoned the group, if one did.")
      .def(
          "flight_record",
          [](const PyGroup& group) {
            return nb::module_::import_("json").attr("loads")(to_json(flight_record(group.group())));
          },
          nb::sig("def flight_record(self) -> dict[str, object]"),
          "Returns what every rank has noted of its last collective calls, as docs/design/flight_recorder.md\n"
          "says. Local; also after an error, and of ranks that have died.")
      .def(
          "refuse_call",
          [](const PyGroup& group, const std::string& text) {
            group.run([&](Group& of) -> Result<void> {
              of.refuse_call(Error(ErrorCode::kInvalidArgument, text));
              return {};
            });
          },
          nb::arg("text"),
          "Tells the other ranks that this one has refused a collective call instead of making it. They get\n"
          "MISMATCH with the text.")
      .def("poison", &poison, nb::arg("text"), nb::arg("culprit") = -1,
           "Poisons the group on every rank with a PEER_LOST error of this text. `culprit` is the rank that\n"
           "caused it.")
      .def(
          "create_stream",
          [](const PyGroup& group, int priority) { return group.device()->create_stream(priority); },
          nb::arg("priority") = 0, "Makes a stream of the group's device.")
      .def("close", &PyGroup::close, "Waits for queued work and ends the group. Closing twice is no error.")
      .def(
          "__enter__", [](nb::handle self) { return self; }, nb::rv_policy::reference,
          nb::sig("def __enter__(self) -> Group"))
      .def(
          "__exit__", [](PyGroup& group, const nb::args&) { group.close(); },
          nb::sig("def __exit__(self, *exception: object) -> None"))
      .def("__repr__", [](const PyGroup& group) -> std::string {
        if (group.is_closed()) return "tandem.Group(closed)";
        return "tandem.Group('" + group.group().name() + "', rank " + std::to_string(group.rank()) + " of " +
               std::to_string(group.group().size()) + ", " + to_string(group.device()->device()->id()) + ")";
      });

  module.def(
      "rendezvous_timeout",
      [] {
        const Config config = take(Config::from_environment());
        return std::chrono::duration<double>(config.rendezvous_timeout).count();
      },
      "The longest wait for other ranks that the environment asks for, in seconds.");
  module.def("create_group", &create_group, nb::kw_only(), nb::arg("rank"), nb::arg("size"), nb::arg("store"),
             nb::arg("device"), nb::arg("device_index"), nb::arg("name"), nb::arg("op_timeout").none(),
             nb::arg("rendezvous_timeout").none(), nb::arg("batch_invariant").none(),
             nb::arg("nan_check").none(), nb::arg("fault").none());
}

}  // namespace tandem::python
