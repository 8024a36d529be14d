#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <thread>
#include <vector>

#include "base/home_process.hpp"
#include "transport/cpu/mpi_library.hpp"

namespace tandem::transport {

/// One message, out or in. Its bytes are its own: MPI may use them after whoever waited has given up, and the
/// memory of the op may be gone by then.
struct Message {
  int peer = -1;
  int tag = 0;
  bool is_sent = true;
  std::vector<std::byte> bytes = {};

  // The thread's.
  std::vector<MpiLibrary::Request> requests = {};  ///< one a part
  std::size_t num_done = 0;
  // Under the thread's mutex.
  bool is_done = false;
  std::optional<Error> error = {};
};

/// The tags of tandem's messages.
enum class Tag : int {
  kLeaves = 1,
  kAllHaveLeft = 2,
  kStoreRequest = 3,
  kStoreReply = 4,
  kFirstChannel = 16
};

/// The one thread that calls MPI. It starts messages, looks which are done, and hands on those of served
/// tags.
///
/// In the end every rank tells rank 0 that it leaves, and rank 0 serves the others until all have, then
/// tells them. Only then is MPI finalised: that waits for all, without a deadline. A rank that hears nothing
/// for ten seconds leaves MPI as it is.
class MpiThread {
 public:
  /// Called by the thread for each message of a served tag.
  using Serve = std::function<void(int source, std::vector<std::byte> bytes)>;
  /// Errors: those of MPI, kUnsupported.
  [[nodiscard]] static Result<std::shared_ptr<MpiThread>> start(const Config& config);
  ~MpiThread();
  MpiThread(const MpiThread&) = delete;
  MpiThread& operator=(const MpiThread&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] const std::string& version() const { return library_.version(); }

  void serve(Tag tag, Serve serve);
  void post(const std::shared_ptr<Message>& message);
  /// Waits in slices until the message is done, or `gives_up` returns an error.
  [[nodiscard]] Result<void> wait(const Message& message, Deadline deadline,
                                  const std::function<Result<void>()>& gives_up);

 private:
  explicit MpiThread(MpiLibrary library) : library_(std::move(library)) {}
  void run();
  Result<void> begin();
  void leave();
  void tell(int peer, Tag tag);
  /// Whether anything has happened.
  bool turn();
  bool begin_posted();
  bool look_at_active();
  bool look_at_served();
  void end(const std::shared_ptr<Message>& message, std::optional<Error> error);
  [[nodiscard]] Result<void> start_parts(Message& message);

  const HomeProcess home_;
  MpiLibrary library_;
  bool is_ours_ = false;
  MpiLibrary::Word comm_ = 0;
  int rank_ = 0;
  int size_ = 1;

  std::mutex mutex_;
  std::condition_variable posted_or_ended_;
  std::condition_variable progressed_;
  bool ends_ = false;
  std::optional<Result<void>> begun_;
  std::deque<std::shared_ptr<Message>> posted_;
  std::vector<std::pair<Tag, Serve>> served_;

  // The thread's.
  std::list<std::shared_ptr<Message>> active_;
  int num_left_ = 0;
  bool have_all_left_ = false;
  std::thread thread_;
};

}  // namespace tandem::transport
