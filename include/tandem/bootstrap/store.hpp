#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <tandem/base/deadline.hpp>
#include <tandem/base/error.hpp>
#include <tandem/base/unique_fd.hpp>
#include <vector>

namespace tandem {

/// A small key-value store that all ranks of a job can reach, and through which they find each other. Derive
/// from it to use a store that you have. All calls are thread-safe. A key is written once, unless it is
/// erased.
/// Errors:  kTimeout with the key; kPeerLost if the store's server is gone.
class Store {
 public:
  using Bytes = std::vector<std::byte>;
  virtual ~Store() = default;

  /// Publishes `value` under `key`.
  [[nodiscard]] virtual Result<void> set(std::string_view key, std::span<const std::byte> value) = 0;
  /// Waits until `key` is published, at most until `deadline`, and returns its value.
  [[nodiscard]] virtual Result<Bytes> get(std::string_view key, Deadline deadline) = 0;
  /// Adds to the counter `key`, which starts at 0, and returns its new value.
  [[nodiscard]] virtual Result<std::int64_t> add(std::string_view key, std::int64_t delta) = 0;
  /// Removes `key` and its value. An unknown key is not an error.
  [[nodiscard]] virtual Result<void> erase(std::string_view key) = 0;

  /// Whether the store can pass open files to other processes by set_file() and get_file(). If it cannot,
  /// tandem opens a local socket of its own and announces it through this store.
  [[nodiscard]] virtual bool carries_files() const { return false; }
  /// Publishes a duplicate of `fd`.
  [[nodiscard]] virtual Result<void> set_file(std::string_view key, int fd);
  /// Waits for a file as get() waits for a value.
  [[nodiscard]] virtual Result<UniqueFd> get_file(std::string_view key, Deadline deadline);

  /// Whether all ranks are threads of this process. They then share objects by set_object() and get_object().
  [[nodiscard]] virtual bool carries_objects() const { return false; }
  [[nodiscard]] virtual Result<void> set_object(std::string_view key, std::shared_ptr<void> object);
  [[nodiscard]] virtual Result<std::shared_ptr<void>> get_object(std::string_view key, Deadline deadline);
};

/// Makes a store for ranks that are threads of one process.
[[nodiscard]] std::shared_ptr<Store> make_in_process_store();

}  // namespace tandem
