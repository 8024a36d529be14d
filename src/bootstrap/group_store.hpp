#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tandem/bootstrap/store.hpp>

namespace tandem::bootstrap {

/// A view on another store: every key gets a prefix, and a blocking get ends early once the group has an
/// error.
class GroupStore final : public Store {
 public:
  using Status = std::function<Result<void>()>;

  GroupStore(std::shared_ptr<Store> store, std::string prefix, Status status)
      : store_(std::move(store)), prefix_(std::move(prefix)), status_(std::move(status)) {}

  [[nodiscard]] Result<void> set(std::string_view key, std::span<const std::byte> value) override;
  [[nodiscard]] Result<Bytes> get(std::string_view key, Deadline deadline) override;
  [[nodiscard]] Result<std::int64_t> add(std::string_view key, std::int64_t delta) override;
  [[nodiscard]] Result<void> erase(std::string_view key) override;
  [[nodiscard]] bool carries_files() const override { return store_->carries_files(); }
  [[nodiscard]] Result<void> set_file(std::string_view key, int fd) override;
  [[nodiscard]] Result<UniqueFd> get_file(std::string_view key, Deadline deadline) override;
  [[nodiscard]] bool carries_objects() const override { return store_->carries_objects(); }
  [[nodiscard]] Result<void> set_object(std::string_view key, std::shared_ptr<void> object) override;
  [[nodiscard]] Result<std::shared_ptr<void>> get_object(std::string_view key, Deadline deadline) override;

 private:
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  template <class Get>
  auto get_in_slices(Deadline deadline, Get get);

  std::shared_ptr<Store> store_;
  std::string prefix_;
  Status status_;
};

}  // namespace tandem::bootstrap
