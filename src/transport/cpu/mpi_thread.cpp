#include "transport/cpu/mpi_thread.hpp"

#include <algorithm>
#include <chrono>

#include "base/format.hpp"
#include "base/make_thread.hpp"
#include "base/try.hpp"

namespace tandem::transport {
namespace {

/// MPI counts bytes by ints.
constexpr std::size_t kPartBytes = std::size_t{1} << 30;
/// As long as a sleep between two looks may be while messages are under way, and while none is.
constexpr auto kShortNap = std::chrono::microseconds(30);
constexpr auto kLongNap = std::chrono::milliseconds(1);
constexpr auto kLongestFarewell = std::chrono::seconds(10);

}  // namespace

Result<std::shared_ptr<MpiThread>> MpiThread::start(const Config& config) {
  TANDEM_ASSIGN(MpiLibrary library, MpiLibrary::load(config));
  std::shared_ptr<MpiThread> mpi(new MpiThread(std::move(library)));
  TANDEM_ASSIGN(mpi->thread_, make_thread("MPI", [raw = mpi.get()] { raw->run(); }));
  std::unique_lock lock(mpi->mutex_);
  mpi->progressed_.wait(lock, [&] { return mpi->begun_.has_value(); });
  TANDEM_TRY(*mpi->begun_);
  return mpi;
}

MpiThread::~MpiThread() {
  if (!home_.is_here()) {  // the thread is the parent's
    thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  posted_or_ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<void> MpiThread::begin() {
  TANDEM_ASSIGN(const bool is_there, library_.is_initialized());
  is_ours_ = !is_there;
  if (is_ours_) {
    TANDEM_TRY(library_.init());
  } else {
    TANDEM_ASSIGN(const bool may_call, library_.may_call_at_once());
    if (!may_call) {
      return failf(ErrorCode::kUnsupported,
                   "{}: the program has initialised it without MPI_THREAD_MULTIPLE, which a second thread "
                   "needs; initialise it with MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...), or leave it to "
                   "tandem",
                   library_.version());
    }
  }
  TANDEM_ASSIGN(comm_, library_.duplicate_world());
  TANDEM_ASSIGN(rank_, library_.rank(comm_));
  TANDEM_ASSIGN(size_, library_.size(comm_));
  serve(Tag::kLeaves, [this](int, const auto&) { ++num_left_; });
  serve(Tag::kAllHaveLeft, [this](int, const auto&) { have_all_left_ = true; });
  return {};
}

void MpiThread::run() {
  auto begun = begin();
  const bool is_fine = begun.has_value();
  {
    const std::lock_guard lock(mutex_);
    begun_ = std::move(begun);
  }
  progressed_.notify_all();
  if (!is_fine) return;
  while (true) {
    const bool has_moved = turn();
    std::unique_lock lock(mutex_);
    if (ends_) break;
    if (!posted_.empty() || has_moved) continue;
    posted_or_ended_.wait_for(lock, active_.empty() ? std::chrono::microseconds(kLongNap) : kShortNap);
  }
  leave();
}

void MpiThread::tell(int peer, Tag tag) {
  const auto message = std::make_shared<Message>(Message{
      .peer = peer, .tag = static_cast<int>(tag), .is_sent = true, .bytes = std::vector<std::byte>(1)});
  const std::lock_guard lock(mutex_);
  posted_.push_back(message);
}

void MpiThread::leave() {
  const auto last = std::chrono::steady_clock::now() + kLongestFarewell;
  const auto turn_until = [&](auto is_done) {
    while (!is_done() && std::chrono::steady_clock::now() < last) {
      if (!turn()) std::this_thread::sleep_for(kShortNap);
    }
    return is_done();
  };
  bool is_over = true;
  if (rank_ == 0) {
    is_over = turn_until([&] { return num_left_ == size_ - 1; });
    for (int peer = 1; peer < size_; ++peer) tell(peer, Tag::kAllHaveLeft);
  } else {
    tell(0, Tag::kLeaves);
    is_over = turn_until([&] { return have_all_left_; });
  }
  const auto is_empty = [&] {
    const std::lock_guard lock(mutex_);
    return posted_.empty() && active_.empty();
  };
  is_over = is_over && turn_until(is_empty);
  if (is_ours_ && is_over) static_cast<void>(library_.finalize());
}

bool MpiThread::turn() {
  const bool has_begun = begin_posted();
  const bool has_ended = look_at_active();
  const bool has_served = look_at_served();
  return has_begun || has_ended || has_served;
}

bool MpiThread::begin_posted() {
  std::deque<std::shared_ptr<Message>> posted;
  {
    const std::lock_guard lock(mutex_);
    posted.swap(posted_);
  }
  for (const auto& message : posted) {
    if (auto started = start_parts(*message); !started)
      end(message, std::move(started).error());
    else
      active_.push_back(message);
  }
  return !posted.empty();
}

Result<void> MpiThread::start_parts(Message& message) {
  for (std::size_t first = 0; first < message.bytes.size(); first += kPartBytes) {
    const int num_bytes = static_cast<int>(std::min(kPartBytes, message.bytes.size() - first));
    MpiLibrary::Request& request = message.requests.emplace_back();
    std::byte* const data = message.bytes.data() + first;
    TANDEM_TRY(message.is_sent
                   ? library_.send(data, num_bytes, message.peer, message.tag, comm_, request)
                   : library_.receive(data, num_bytes, message.peer, message.tag, comm_, request));
  }
  return {};
}

bool MpiThread::look_at_active() {
  bool has_moved = false;
  for (auto at = active_.begin(); at != active_.end();) {
    const std::shared_ptr<Message> message = *at;
    std::optional<Error> error;
    while (!error && message->num_done < message->requests.size()) {
      auto done = library_.test(message->requests[message->num_done]);
      if (!done) error = std::move(done).error();
      if (error || !*done) break;
      ++message->num_done;
    }
    if (!error && message->num_done < message->requests.size()) {
      ++at;
      continue;
    }
    at = active_.erase(at);
    end(message, std::move(error));
    has_moved = true;
  }
  return has_moved;
}

void MpiThread::end(const std::shared_ptr<Message>& message, std::optional<Error> error) {
  {
    const std::lock_guard lock(mutex_);
    message->error = std::move(error);
    message->is_done = true;
  }
  progressed_.notify_all();
}

bool MpiThread::look_at_served() {
  bool has_served = false;
  std::vector<std::pair<Tag, Serve>> served;
  {
    const std::lock_guard lock(mutex_);
    served = served_;
  }
  for (const auto& [tag, serve] : served) {
    const auto found = library_.probe(static_cast<int>(tag), comm_);
    if (!found || !*found) continue;
    Message message{.peer = (*found)->source, .tag = static_cast<int>(tag), .is_sent = false};
    message.bytes.resize(static_cast<std::size_t>((*found)->num_bytes));
    if (!start_parts(message)) continue;
    // It has come, so this ends.
    auto done = Result<bool>(message.bytes.empty());
    while (done && !*done) done = library_.test(message.requests.front());
    if (!done) continue;
    serve(message.peer, std::move(message.bytes));
    has_served = true;
  }
  return has_served;
}

void MpiThread::serve(Tag tag, Serve serve) {
  const std::lock_guard lock(mutex_);
  served_.emplace_back(tag, std::move(serve));
}

void MpiThread::post(const std::shared_ptr<Message>& message) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(message);
  }
  posted_or_ended_.notify_one();
}

Result<void> MpiThread::wait(const Message& message, Deadline deadline,
                             const std::function<Result<void>()>& gives_up) {
  constexpr auto kSlice = std::chrono::milliseconds(5);
  std::unique_lock lock(mutex_);
  while (!message.is_done) {
    if (gives_up) {
      lock.unlock();
      TANDEM_TRY(gives_up());
      lock.lock();
      if (message.is_done) break;
    }
    if (deadline.expired()) return fail(ErrorCode::kTimeout, "the deadline has passed");
    progressed_.wait_for(lock, kSlice);
  }
  if (message.error) return tl::unexpected(*message.error);
  return {};
}

}  // namespace tandem::transport
