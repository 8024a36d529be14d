#include "bootstrap/memory_store.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "base/format.hpp"
#include "base/interrupts.hpp"
#include "base/system_refusal.hpp"
#include "base/try.hpp"

namespace tandem {
namespace bootstrap {
namespace {

template <class T>
Result<T> expect_kind(std::string_view key, MemoryStore::Value value) {
  if (T* found = std::get_if<T>(&value)) return std::move(*found);
  return failf(ErrorCode::kInvalidArgument,
               "store: key '{}' holds a value of another kind (bytes, file or object)", key);
}

}  // namespace

Error interrupted(std::string_view key) {
  return Error(ErrorCode::kPeerLost, fmt::format("store: the wait for key '{}' was interrupted", key));
}

Result<UniqueFd> duplicate(int fd) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) {
    return tl::unexpected(
        system_refusal(fmt::format("store: cannot duplicate file descriptor {}", fd), errno));
  }
  return UniqueFd(copy);
}

Result<void> MemoryStore::put(std::string_view key, Value value) {
  TANDEM_TRY(home_.check("the store"));
  {
    const std::lock_guard lock(mutex_);
    if (!values_.emplace(key, std::move(value)).second) {
      return failf(ErrorCode::kInvalidArgument, "store: key '{}' is set already: erase it first", key);
    }
  }
  changed_.notify_all();
  if (observer_) observer_();
  return {};
}

Result<MemoryStore::Value> MemoryStore::wait_for(std::string_view key, Deadline deadline) {
  TANDEM_TRY(home_.check("the store"));
  const auto started = Deadline::Clock::now();
  std::unique_lock lock(mutex_);
  for (;;) {
    if (const auto found = values_.find(key); found != values_.end()) return found->second;
    if (deadline.expired()) break;
    changed_.wait_until(lock, Deadline::earlier(deadline, Deadline::after(longest_nap())).at());
    lock.unlock();
    if (is_interrupted()) return tl::unexpected<Error>(interrupted(key));
    lock.lock();
  }
  const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - started);
  return failf(ErrorCode::kTimeout, "store: key '{}' was not set within {} ms", key, waited.count());
}

std::optional<MemoryStore::Value> MemoryStore::find(std::string_view key) const {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

Result<void> MemoryStore::set(std::string_view key, std::span<const std::byte> value) {
  return put(key, Bytes(value.begin(), value.end()));
}

Result<Store::Bytes> MemoryStore::get(std::string_view key, Deadline deadline) {
  TANDEM_ASSIGN(Value value, wait_for(key, deadline));
  return expect_kind<Bytes>(key, std::move(value));
}

Result<std::int64_t> MemoryStore::add(std::string_view key, std::int64_t delta) {
  TANDEM_TRY(home_.check("the store"));
  const std::lock_guard lock(mutex_);
  auto found = counters_.find(key);
  if (found == counters_.end()) {
    if (delta == 0) return 0;  // a question leaves nothing behind
    found = counters_.emplace(key, 0).first;
  }
  // Unsigned: a client's delta may be anything.
  found->second = static_cast<std::int64_t>(static_cast<std::uint64_t>(found->second) +
                                            static_cast<std::uint64_t>(delta));
  const std::int64_t sum = found->second;
  if (sum == 0) counters_.erase(found);
  return sum;
}

Result<void> MemoryStore::erase(std::string_view key) {
  TANDEM_TRY(home_.check("the store"));
  const std::lock_guard lock(mutex_);
  if (const auto found = values_.find(key); found != values_.end()) values_.erase(found);
  if (const auto found = counters_.find(key); found != counters_.end()) counters_.erase(found);
  return {};
}

Result<void> MemoryStore::set_file(std::string_view key, int fd) {
  TANDEM_ASSIGN(UniqueFd copy, duplicate(fd));
  return put(key, std::make_shared<const UniqueFd>(std::move(copy)));
}

Result<UniqueFd> MemoryStore::get_file(std::string_view key, Deadline deadline) {
  TANDEM_ASSIGN(Value value, wait_for(key, deadline));
  TANDEM_ASSIGN(const File file, expect_kind<File>(key, std::move(value)));
  return duplicate(file->get());
}

Result<void> MemoryStore::set_object(std::string_view key, std::shared_ptr<void> object) {
  if (!carries_objects()) return Store::set_object(key, std::move(object));
  return put(key, std::move(object));
}

Result<std::shared_ptr<void>> MemoryStore::get_object(std::string_view key, Deadline deadline) {
  if (!carries_objects()) return Store::get_object(key, deadline);
  TANDEM_ASSIGN(Value value, wait_for(key, deadline));
  return expect_kind<std::shared_ptr<void>>(key, std::move(value));
}

}  // namespace bootstrap

std::shared_ptr<Store> make_in_process_store() {
  return {new bootstrap::MemoryStore(bootstrap::MemoryStore::Reach::kThreads), DeleteAtHome()};
}

}  // namespace tandem
