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
  ~PyGroup() { end(); }
  PyGroup(const PyGroup&) = delete;
  PyGroup& operator=(const PyGroup&) = delete;

  [[nodiscard]] bool is_closed() const { return !group_; }
  /// Throws once the group is closed.
  [[nodiscard]] Group& group() const;
  [[nodiscard]] const std::shared_ptr<PyDevice>& device() const { return device_; }
  [[nodiscard]] OneUser& user() const { return user_; }
  /// Calls `f` with the group, as take_unlocked() does.
  template <class F>
  auto run(F&& f) const {
    const OneUser::Use use(user_);
    return take_unlocked([&] { return f(group()); }, rank());
  }
  [[nodiscard]] int rank() const { return group().rank(); }
  [[nodiscard]] std::shared_ptr<PyGroup> subgroup(const std::vector<int>& ranks,
                                                  const std::string& name) const;
  /// Waits for the work of its streams, and ends the group. After ^C it ends at once, and the other ranks
  /// hear of it.
  void close();

 private:
  void end();

  std::shared_ptr<PyDevice> device_;
  std::unique_ptr<Group> group_;
  mutable OneUser user_{"the group is in a call of another thread, need one thread at a time"};
};

/// Runs `take`, which takes the arguments of a collective call. Should it throw, the other ranks must hear of
/// it: the call is made without its output, which the library refuses on all ranks.
template <class Take, class Output, class Op>
void take_arguments(Call& call, Take&& take, Output& output, Op&& op) {
  try {
    take();
  } catch (...) {
    output = {};
    try {
      call.run(op);
    } catch (const Raised&) {
      // Of a call that is wrong.
    }
    throw;
  }
}

void bind_groups(nb::module_& module);

}  // namespace tandem::python
