#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>
#include <tandem/bootstrap/group.hpp>
#include <tandem/bootstrap/store.hpp>
#include <vector>

#include "base/function_ref.hpp"
#include "symm/exchange.hpp"

namespace tandem::symm {

/// The memory of one rendezvous on its way through the group's store: open files between processes, the
/// mapping objects themselves between threads, so that all threads use one mapping at one address. The store
/// forgets with this object what the rank has given.
///
/// Every failure poisons the group: a rank without its peers' memory cannot go on, and the others must not
/// wait for it.
class HandOver {
 public:
  enum class Part { kData, kPad };
  using Object = std::shared_ptr<void>;

  /// `table` has been validated, in rank order.
  HandOver(Group& group, std::span<const Record> table);
  ~HandOver();
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;

  /// The deadline of take() counts from here, and not from the making of this object.
  void restart_deadline();
  /// Between threads: what the first of them makes, for all. `name` tells apart what a rank alone asks for.
  [[nodiscard]] Result<Object> share(std::string_view name, FunctionRef<Result<Object>()> make);
  /// Whether give() needs a file.
  [[nodiscard]] bool carries_files() const { return !store_.carries_objects(); }
  /// `file`: a file that gives access to `memory`; not needed any more when this returns.
  [[nodiscard]] Result<void> give(Part part, const Object& memory, int file);
  /// `import` makes an object of a file.
  [[nodiscard]] Result<Object> take(const Record& from, Part part,
                                    FunctionRef<Result<Object>(const UniqueFd&)> import);
  /// Waits until every rank has taken everything.
  [[nodiscard]] Result<void> finish();

  /// This rank cannot use what `peer` gave, or give its own: the group's error from now on.
  [[nodiscard]] tl::unexpected<Error> give_up(const Record& peer, Part part, const Error& why);

 private:
  Group& group_;
  Store& store_;
  std::span<const Record> table_;
  Deadline deadline_;
  std::vector<std::string> keys_;
};

}  // namespace tandem::symm
