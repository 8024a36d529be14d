#include <tandem/bootstrap/thread_ranks.hpp>

#include <exception>
#include <mutex>
#include <optional>

#include "base/format.hpp"
#include "base/threads_together.hpp"
#include "base/try.hpp"

namespace tandem {
namespace {

/// No exception may leave a thread, nor this API.
Result<void> call(const std::function<Result<void>(Group&)>& rank_main, Group& group) {
  try {
    return rank_main(group);
  } catch (const tl::bad_expected_access<Error>& failed) {  // of value(), where a call failed
    return tl::unexpected(failed.error());
  } catch (const std::exception& exception) {
    return failf(ErrorCode::kInternal, "rank {} threw: {}", group.rank(), exception.what());
  } catch (...) {
    return failf(ErrorCode::kInternal, "rank {} threw something that is no std::exception", group.rank());
  }
}

class FirstError {
 public:
  void offer(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  [[nodiscard]] Result<void> result() const {
    if (error_) return tl::unexpected(*error_);
    return {};
  }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

Result<void> run_thread_ranks(int size, const Config& config,
                              const std::function<Result<void>(Group&)>& rank_main) {
  if (size < 1) return failf(ErrorCode::kInvalidArgument, "thread ranks: size {}, need at least 1", size);
  FirstError first;
  const auto store = make_in_process_store();
  ThreadsTogether threads;
  const auto run_rank = [&](int rank) {
    auto group =
        Group::create({.rank = rank, .size = size, .name = "world", .store = store, .config = config});
    if (!group) return first.offer(group.error());
    if (const auto result = call(rank_main, **group); !result) {
      first.offer(result.error());
      (*group)->poison(
          Error(ErrorCode::kPeerLost, fmt::format("rank {} failed: {}", rank, result.error().to_string())),
          rank);
    }
  };
  for (int rank = 0; rank < size; ++rank) {
    TANDEM_TRY(threads.add(fmt::format("thread ranks: rank {} of {}", rank, size),
                           [&run_rank, rank] { run_rank(rank); }));
  }
  threads.run();
  return first.result();
}

}  // namespace tandem
