#pragma once

#include <optional>
#include <string>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>
#include <tandem/bootstrap/local_store.hpp>

namespace tandem::bootstrap {

// Where the processes of one launch find the store of their rank 0: the file `address` in a directory below
// the temporary directory, which is named by the user and a hash of the job. Only this user may enter the
// directory (0700) and read the file (0600).

/// The directory, in rank 0. It holds a lock (flock) on it, so two launches of one job come one after the
/// other. Directory and file go with the object. Those of killed processes are removed by the next open() of
/// the same user.
class MeetingPlace {
 public:
  /// Errors: kTimeout if another process has the place until the deadline; kInvalidArgument if the path is a
  ///         link, no directory, another user's, or open to others; kUnsupported; kDriver.
  [[nodiscard]] static Result<MeetingPlace> open(const std::string& job, Deadline deadline);
  MeetingPlace(MeetingPlace&& other) noexcept = default;
  MeetingPlace& operator=(MeetingPlace&& other) = delete;
  ~MeetingPlace();

  /// Writes the file. It appears at once as a whole.
  /// Errors: kDriver.
  [[nodiscard]] Result<void> publish(const LocalStoreAddress& address) const;

 private:
  MeetingPlace(UniqueFd lock, std::string path, std::string job)
      : lock_(std::move(lock)), path_(std::move(path)), job_(std::move(job)) {}
  UniqueFd lock_;  ///< invalid in an object that was moved from
  std::string path_;
  std::string job_;
};

/// The address that is published for the job now; nothing if none is. A process that was killed may have left
/// it.
/// Errors: as open(), but for the timeout; kInvalidArgument also for a file of this kind.
[[nodiscard]] Result<std::optional<LocalStoreAddress>> read_address(const std::string& job);

}  // namespace tandem::bootstrap
