#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tandem/bootstrap/store.hpp>
#include <variant>

#include "base/home_process.hpp"

namespace tandem::bootstrap {

/// A store in this process's memory: the one that thread ranks share, and what a LocalStoreServer serves.
class MemoryStore final : public Store {
 public:
  /// What the ranks behind it can share besides bytes.
  enum class Reach { kThreads, kProcesses };
  using File = std::shared_ptr<const UniqueFd>;
  using Value = std::variant<Bytes, File, std::shared_ptr<void>>;

  explicit MemoryStore(Reach reach) : reach_(reach) {}

  [[nodiscard]] Result<void> set(std::string_view key, std::span<const std::byte> value) override;
  [[nodiscard]] Result<Bytes> get(std::string_view key, Deadline deadline) override;
  [[nodiscard]] Result<std::int64_t> add(std::string_view key, std::int64_t delta) override;
  [[nodiscard]] Result<void> erase(std::string_view key) override;
  [[nodiscard]] bool carries_files() const override { return true; }
  [[nodiscard]] Result<void> set_file(std::string_view key, int fd) override;
  [[nodiscard]] Result<UniqueFd> get_file(std::string_view key, Deadline deadline) override;
  [[nodiscard]] bool carries_objects() const override { return reach_ == Reach::kThreads; }
  [[nodiscard]] Result<void> set_object(std::string_view key, std::shared_ptr<void> object) override;
  [[nodiscard]] Result<std::shared_ptr<void>> get_object(std::string_view key, Deadline deadline) override;

  /// The value if it is there.
  [[nodiscard]] std::optional<Value> find(std::string_view key) const;
  /// Called after each set, without the lock; null to stop. Not while other threads use the store.
  void on_set(std::function<void()> observer) { observer_ = std::move(observer); }

 private:
  [[nodiscard]] Result<void> put(std::string_view key, Value value);
  [[nodiscard]] Result<Value> wait_for(std::string_view key, Deadline deadline);

  const HomeProcess home_;
  const Reach reach_;
  std::function<void()> observer_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Value, std::less<>> values_;
  std::map<std::string, std::int64_t, std::less<>> counters_;
};

/// Of a store's wait that an InterruptCheck ended.
[[nodiscard]] Error interrupted(std::string_view key);

/// A duplicate of `fd`, closed on exec.
[[nodiscard]] Result<UniqueFd> duplicate(int fd);

}  // namespace tandem::bootstrap
