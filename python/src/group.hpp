#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <tandem/bootstrap/group.hpp>
#include <utility>
#include <vector>

#include "stream.hpp"

namespace tandem::python {

/// A group with the device that its ops run on.
class PyGroup {
 public:
  PyGroup(std::shared_ptr<PyDevice> device, std::unique_ptr<Group> group)
      : device_(std::move(device)), group_(std::move(group)) {}
  ~PyGroup() { close(); }
  PyGroup(const PyGroup&) = delete;
  PyGroup& operator=(const PyGroup&) = delete;

  /// Throws once the group is closed.
  [[nodiscard]] Group& group() const;
  [[nodiscard]] const std::shared_ptr<PyDevice>& device() const { return device_; }
  [[nodiscard]] int rank() const { return group().rank(); }
  [[nodiscard]] std::shared_ptr<PyGroup> subgroup(const std::vector<int>& ranks,
                                                  const std::string& name) const;
  /// Waits for the work of its streams, and ends the group.
  void close();

 private:
  std::shared_ptr<PyDevice> device_;
  std::unique_ptr<Group> group_;
};

/// Runs `take`, which takes the arguments of a collective call. Should it throw, the other ranks must hear of
/// it: the call is made without its output, which the library refuses on all ranks.
template <class Take, class Output, class Op>
void take_arguments(Take&& take, Output& output, Op&& op) {
  try {
    take();
  } catch (...) {
    output = {};
    const nb::gil_scoped_release unlocked;
    static_cast<void>(op());
    throw;
  }
}

void bind_groups(nb::module_& module);

}  // namespace tandem::python
